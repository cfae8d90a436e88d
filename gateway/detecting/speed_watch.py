"""Watches a time, a speed or gaps of one deployment, window by window."""

from math import log

import msgspec

from gateway.detecting.evidence import FACTORS, Evidence
from gateway.detecting.slowdowns import Change
from gateway.detecting.watch import BACK, SETTLED_S, Watch
from gateway.detecting.windows import WINDOW_S, Metric

_ALMOST_TWICE = log(1.8)  # what is twice as bad may be seen as a little less
_OTHER = 4.0  # evidence of the other comparison since then; by chance it is ever so much in 2 % of cases
_BLURRED = 6.0  # times the variance: if its peers blur the comparison so much, it is compared with itself only


class Compared(msgspec.Struct, frozen=True):
    """A window's value beyond what is expected, in natural logarithms, and its variance if nothing has changed.

    ``beside``: the same beyond its peers' at that time, and its variance; None: nothing is known of them.
    """

    start_s: int
    value: float
    variance: float
    n: float
    beside: tuple[float, float] | None = None

    @property
    def views(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """The two comparisons, each with its variance, the sharper one first. Peers that tell little are left out."""
        itself = self.value, self.variance
        if self.beside is None or self.beside[1] > _BLURRED * self.variance:
            return itself, itself
        return (itself, self.beside) if self.variance < self.beside[1] else (self.beside, itself)


class SpeedWatch(Watch):
    """An alarm needs enough evidence by the sharper comparison, and some by the other.

    So neither prompts that all got longer, nor a peer that got faster, is an alarm.
    """

    def __init__(self, model: str, deployment: str, metric: Metric) -> None:
        super().__init__(model, deployment, metric)
        self._evidence = [Evidence(log(factor)) for factor in FACTORS]
        self._back = Evidence(log(FACTORS[0]), BACK)

    def copy(self) -> "SpeedWatch":
        """Return one that goes on from here by itself."""
        return self._copied(SpeedWatch(*self._key))

    def add(self, seen: Compared, *, history_s: float) -> Change | None:
        """Add a window; return what has happened by it."""
        if not self._counts(seen.start_s):
            return None
        (value, variance), other = seen.views
        if self.open is not None:
            # Either is enough: it is as usual, or its peers are as slow.
            self._back.add(self._back.shift - min(value, other[0]), variance, seen.n, seen.start_s)
            return self._is_back(seen.start_s)
        for one in self._evidence:
            one.add(value, variance, seen.n, seen.start_s, other)
        enough = [one for one in self._evidence if one.is_enough and one.other >= _OTHER]
        if history_s < SETTLED_S:
            enough = [one for one in enough if one is self._evidence[-1] and one.mean >= _ALMOST_TWICE]
        if not enough:
            return None
        found = max(enough, key=lambda one: one.sum)
        return self._begin(found, seen.start_s + WINDOW_S, found.mean, found.error)
