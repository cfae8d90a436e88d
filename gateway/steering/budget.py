"""The budget of duplicated spend: a token bucket per model, filled by calls and drawn on by extra attempts."""

from collections.abc import Mapping

from gateway.attempt_records import Role
from gateway.settings.model import RaceSettings
from gateway.steering.constants import BURST_CALLS, BURST_TOKENS

FREE = frozenset({Role.PRIMARY, Role.FAILOVER, Role.PROBE})  # of these a call needs one anyway, or nobody waits for it


class Budget:
    """Extra attempts that may still be started for one model.

    Every call adds ``ratio`` tokens up to 20; every extra attempt draws one at the instant it starts, not when it is
    planned: most hedges never start. Exploring may overdraw, down to one burst below nothing, so over any number of
    calls at most ``ratio`` per call and two bursts are spent.

    Beside the attempts dollars may be counted, where ``extra_usd_per_call`` is set. They start at nothing, so over any
    number of calls no more than that per call is spent, but for the last attempt.
    """

    __slots__ = ("tokens", "usd")

    def __init__(self) -> None:
        self.tokens = BURST_TOKENS
        self.usd = 0.0  # saved up

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

    def earn(self, usd_per_call: float) -> None:
        """Save up the dollars of one call, up to those of 20."""
        self.usd = min(BURST_CALLS * usd_per_call, self.usd + usd_per_call)

    def affords(self, cost_usd: float, usd_per_call: float) -> bool:
        """Return whether an attempt that may cost so much can be paid.

        One that costs more than can be saved up starts when all is saved up; the debt is paid off by later calls.
        """
        return cost_usd <= 0 or (usd_per_call > 0 and self.usd >= min(cost_usd, BURST_CALLS * usd_per_call) * _ROUNDING)

    def pay(self, cost_usd: float) -> None:
        """Take the dollars of an extra attempt that starts now."""
        self.usd -= cost_usd


def within(race: RaceSettings, costs: Mapping[str, float]) -> RaceSettings:
    """Return ``race`` with no larger budget than its ``extra_usd_per_call`` pays for at these ``costs``, US dollars.

    So money that pays for few attempts is kept for the latest calls, as hedges, instead of spent on the first to come.
    """
    mean_usd = sum(costs.values()) / len(costs) if costs else 0.0
    if race.extra_usd_per_call is None or race.extra_usd_per_call >= race.budget * mean_usd:
        return race
    return race.model_copy(update={"budget": race.extra_usd_per_call / mean_usd})


_ROUNDING = 1 - 1e-9  # sums of many small dollars
