"""The replayed settings, and the launches of each. The delays and shares are the planner's own."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import inf
from operator import itemgetter

from msgspec import Struct

from gateway.steering import hedge_quantile, hedged_at_s, raced_share

BUDGETS = (0.05, 0.1, 0.2, 0.5)
MOST_BUDGET = 7.0  # as in the settings of a race


class ReplaySetting(Struct, frozen=True):
    """``width`` attempts from the start; or with a ``budget``, the launches of mode auto."""

    name: str
    width: int = 1
    budget: float | None = None

    @property
    def race(self) -> dict[str, object]:
        """The setting as the section ``race:`` of the configuration."""
        if self.budget is not None:
            return {"mode": "auto", "budget": self.budget}
        if self.width == 1:
            return {"mode": "single", "budget": 0.0}
        return {"mode": "race", "width": self.width, "budget": float(self.width - 1)}

    @property
    def is_pair(self) -> bool:
        """Whether two attempts start with every call."""
        return self.width == 2 if self.budget is None else self.budget == 1.0  # noqa: PLR2004

    @property
    def widest(self) -> int:
        """The largest number of attempts of a call, not counting failed ones."""
        if self.budget is None:
            return self.width
        return 2 + max(0, -int(-(self.budget - 1.0) // 1))

    @property
    def raced(self) -> float:
        """The share of calls in which a second attempt starts at once."""
        return float(self.width > 1) if self.budget is None else raced_share(self.budget)

    @property
    def hedged_from(self) -> float | None:
        """The quantile of the primary's first token at which a hedge starts; None if never."""
        return None if self.budget is None or not self.budget else hedge_quantile(self.budget)


def settings(budgets: tuple[float, ...] = BUDGETS) -> tuple[ReplaySetting, ...]:
    """Return all settings, the cheapest first."""
    return (
        ReplaySetting("single"),
        *(ReplaySetting(f"budget {budget:g}", budget=budget) for budget in sorted(set(budgets)) if budget > 0),
        ReplaySetting("race of 2", 2),
        ReplaySetting("race of 3", 3),
    )


def hedge_delay_ms(quantile_ms: float) -> float:
    """Return the delay of a hedge for a quantile of the primary's first token; both in ms."""
    return 1000 * hedged_at_s(quantile_ms / 1000)


# Quantiles of replayed calls, with intervals: a bootstrap over calls.

QUANTILES = (0.5, 0.95, 0.99)
_WITHIN = (0.025, 0.975)


class Figure(Struct, frozen=True):
    """One figure with its 95 % interval; None: there is too little data, or it is beyond all observed values."""

    value: float | None
    low: float | None = None
    high: float | None = None


class SortedValues:
    """Values in order, for quantiles under many weights."""

    def __init__(self, values: Sequence[float]) -> None:
        """``values``: one for each call; inf if it never happened."""
        places = sorted(range(len(values)), key=values.__getitem__)
        self._pick: Callable[[Sequence[float]], tuple[float, ...]] = itemgetter(*places) if len(places) > 1 else tuple
        self._values = [values[place] for place in places]

    def quantiles(self, weights: Sequence[float], shares: Sequence[float] = QUANTILES) -> list[float]:
        """Return the weighted quantiles: the least values that have these shares of the weight at or below them."""
        upto = list(accumulate(self._pick(weights)))
        whole = upto[-1]
        last = len(upto) - 1
        return [self._values[min(last, bisect_left(upto, share * whole * (1 - 1e-12)))] for share in shares]


def figure(estimates: Sequence[float], resampled: Sequence[float]) -> Figure:
    """Return the mean of ``estimates``, with the interval of ``resampled``."""
    if not estimates or any(each == inf for each in estimates):
        return Figure(None)
    value = sum(estimates) / len(estimates)
    ordered = sorted(resampled)
    low, high = (ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in _WITHIN)
    return Figure(value, min(low, value), None if high == inf else max(high, value))
