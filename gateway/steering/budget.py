"""The budget for extra attempts: a token bucket per model, filled by calls and emptied by extra attempts."""

from collections.abc import Mapping

from gateway.attempt_records import Role
from gateway.settings.model import RaceSettings
from gateway.steering.constants import BURST_CALLS, BURST_TOKENS

FREE = frozenset({Role.PRIMARY, Role.FAILOVER, Role.PROBE})  # a call needs one of these anyway, or does not wait for it


class Budget:
    """The extra attempts that may still start for one model.

    Every call adds ``ratio`` tokens, up to 20. An extra attempt takes one when it starts, not when it is planned: most
    hedges never start. Exploration may overdraw by one burst. So any number of calls uses at most ``ratio`` tokens per
    call and two bursts.

    If ``extra_usd_per_call`` is set, dollars are counted as well. They start at 0, so any number of calls spends at
    most that amount per call, plus the last attempt.
    """

    __slots__ = ("tokens", "usd")

    def __init__(self) -> None:
        self.tokens = BURST_TOKENS
        self.usd = 0.0  # saved

    def accrue(self, ratio: float) -> None:
        """Count one call."""
        self.tokens = min(BURST_TOKENS, self.tokens + ratio)

    def draw(self, role: Role, ratio: float) -> bool:
        """Whether an attempt in this role may start now; if so, charge it."""
        if role in FREE:
            return True
        floor = 1.0 - BURST_TOKENS if role is Role.EXPLORE else 1.0
        if ratio <= 0 or self.tokens < floor:
            return False
        self.tokens -= 1.0
        return True

    def earn(self, usd_per_call: float) -> None:
        """Save the dollars of one call, up to those of 20 calls."""
        self.usd = min(BURST_CALLS * usd_per_call, self.usd + usd_per_call)

    def affords(self, cost_usd: float, usd_per_call: float) -> bool:
        """Whether an attempt of this maximum cost can be paid.

        One that costs more than the maximum savings starts when these are full; later calls pay off the debt.
        """
        return cost_usd <= 0 or (usd_per_call > 0 and self.usd >= min(cost_usd, BURST_CALLS * usd_per_call) * _ROUNDING)

    def pay(self, cost_usd: float) -> None:
        """Charge the dollars of an extra attempt that starts now."""
        self.usd -= cost_usd


def within(race: RaceSettings, costs: Mapping[str, float]) -> RaceSettings:
    """Return ``race`` with its budget limited to what ``extra_usd_per_call`` pays for at these ``costs``, US dollars.

    If the money pays for few attempts only, they become hedges for the slowest calls, not races of the first ones.
    """
    mean_usd = sum(costs.values()) / len(costs) if costs else 0.0
    if race.extra_usd_per_call is None or race.extra_usd_per_call >= race.budget * mean_usd:
        return race
    return race.model_copy(update={"budget": race.extra_usd_per_call / mean_usd})


_ROUNDING = 1 - 1e-9  # sums of many small dollars
