"""How fast a target's error budget is spent: 1 is the rate at which it is gone just when its window ends."""

import msgspec


class Burn(msgspec.Struct, frozen=True):
    """How many of a target's calls were bad in the last ``window_s`` seconds; ``sql`` gives the same figures.

    ``burn_rate``: the share of bad calls over the share that may be bad. None: there were no calls.
    """

    target: str
    window_s: int
    calls: int
    bad: int
    burn_rate: float | None
    sql: str


def burn_rate(calls: int, bad: int, objective: float) -> float | None:
    """Return how many times faster than allowed calls are bad; None without calls."""
    return bad / calls / (1.0 - objective) if calls else None


def budget_left(calls: int, bad: int, objective: float) -> float | None:
    """Return the share of the error budget that is left; below 0 it is overspent. None without calls."""
    rate = burn_rate(calls, bad, objective)
    return None if rate is None else 1.0 - rate
