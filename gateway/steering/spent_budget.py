"""What a budget for extra attempts buys: hedges first, then races. Shared by the planner and the replay."""

from gateway.steering.constants import HEDGE_MAX_S, HEDGE_MIN_S, HEDGE_SHARE


def raced_share(budget: float) -> float:
    """Return the chance that a second attempt starts with its call.

    A tenth of an attempt per call pays for hedges; the rest of the budget buys races at t = 0.
    """
    return min(1.0, max(0.0, (budget - HEDGE_SHARE) / (1.0 - HEDGE_SHARE)))


def hedge_quantile(budget: float) -> float:
    """Return the share of the primary's first tokens that come before the hedge."""
    return 1.0 - min(budget, HEDGE_SHARE)


def hedged_at_s(quantile_s: float) -> float:
    """Return when a hedge starts that waits for this quantile of the primary, in seconds."""
    return min(HEDGE_MAX_S, max(HEDGE_MIN_S, quantile_s))
