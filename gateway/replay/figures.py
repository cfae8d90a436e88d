"""Quantiles of replayed calls, with intervals: a bootstrap over calls."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import inf
from operator import itemgetter

from msgspec import Struct

QUANTILES = (0.5, 0.95, 0.99)
_WITHIN = (0.025, 0.975)


class Figure(Struct, frozen=True):
    """One figure with its 95 % interval; None: unknown, as there is too little data or it is beyond what was seen."""

    value: float | None
    low: float | None = None
    high: float | None = None


class Ordered:
    """Values in order, for quantiles under many weights."""

    def __init__(self, values: Sequence[float]) -> None:
        """``values``: one for each call; inf for those that are never reached."""
        places = sorted(range(len(values)), key=values.__getitem__)
        self._pick: Callable[[Sequence[float]], tuple[float, ...]] = itemgetter(*places) if len(places) > 1 else tuple
        self._values = [values[place] for place in places]

    def quantiles(self, weights: Sequence[float], shares: Sequence[float] = QUANTILES) -> list[float]:
        """Return the least values which, with those below them, have these shares of the weight."""
        upto = list(accumulate(self._pick(weights)))
        whole = upto[-1]
        last = len(upto) - 1
        return [self._values[min(last, bisect_left(upto, share * whole * (1 - 1e-12)))] for share in shares]


def figure(estimates: Sequence[float], resampled: Sequence[float]) -> Figure:
    """Return the mean of ``estimates``, with the interval that ``resampled`` shows."""
    if not estimates or any(each == inf for each in estimates):
        return Figure(None)
    value = sum(estimates) / len(estimates)
    ordered = sorted(resampled)
    low, high = (ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in _WITHIN)
    return Figure(value, min(low, value), None if high == inf else max(high, value))
