"""The budget of duplicated spend: a token bucket per model, filled by calls and drawn on by extra attempts."""

from gateway.calls import Role
from gateway.steering.constants import BURST_TOKENS

FREE = frozenset({Role.PRIMARY, Role.FAILOVER, Role.PROBE})  # of these a call needs one anyway, or nobody waits for it


class Budget:
    """Extra attempts that may still be started for one model.

    Every call adds ``ratio`` tokens up to 20; every extra attempt draws one at the instant it starts, not when it is
    planned: most hedges never start. Exploring may overdraw, down to one burst below nothing, so over any number of
    calls at most ``ratio`` per call and two bursts are spent.
    """

    __slots__ = ("tokens",)

    def __init__(self) -> None:
        self.tokens = BURST_TOKENS

    def accrue(self, ratio: float) -> None:
        """Count one call."""
        self.tokens = min(BURST_TOKENS, self.tokens + ratio)

    def draw(self, role: Role, ratio: float) -> bool:
        """Return whether an attempt in this role may start now, and charge it."""
        if role in FREE:
            return True
        floor = 1.0 - BURST_TOKENS if role is Role.EXPLORE else 1.0
        if ratio <= 0 or self.tokens < floor:
            return False
        self.tokens -= 1.0
        return True
