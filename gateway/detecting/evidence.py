"""Evidence that adds up window by window until it is enough: Page's CUSUM (1954) of log-likelihood ratios."""

from math import log
from typing import ClassVar

FACTORS = (1.3, 1.6, 2.0)
# A false alarm needs evidence of e^h : 1, so it comes after e^h windows at the earliest, on average: with four metrics,
# three factors and 8,640 windows a month this is less than one a month in all.
ENOUGH = log(8640 * 4 * 3)
SHARE = 3  # no window gives more than a third of it: whatever happens within two windows is no alarm


class Evidence:
    """The evidence that values are about ``shift`` too large; all in natural logarithms."""

    __slots__ = ("limit", "n", "other", "shift", "since_s", "sum", "weight", "weighted")
    most: ClassVar[float] = 4 * ENOUGH  # so that it does not take as long to notice the end

    def __init__(self, shift: float, limit: float = ENOUGH) -> None:
        self.shift = shift
        self.limit = limit
        self.forget()

    def forget(self) -> None:
        """Begin again."""
        self.sum = 0.0
        self.since_s: int | None = None  # when the first of the windows that made up the sum began
        self.weight = self.weighted = self.other = self.n = 0.0

    def copy(self) -> "Evidence":
        """Return one that goes on from here by itself."""
        new = Evidence(self.shift, self.limit)
        new.sum, new.since_s = self.sum, self.since_s
        new.weight, new.weighted, new.other, new.n = self.weight, self.weighted, self.other, self.n
        return new

    def add(
        self, value: float, variance: float, n: float, start_s: int, other: tuple[float, float] | None = None
    ) -> None:
        """Add one window's value, of this variance if nothing has changed; ``other``: seen in another way."""
        self.add_ratio(self._ratio(value, variance), value, 1.0 / variance, n, start_s)
        if self.weight:
            self.other += self._bounded(self._ratio(*(other or (value, variance))))

    def add_ratio(self, ratio: float, value: float, weight: float, n: float, start_s: int) -> None:
        """Add the logarithm of a likelihood ratio."""
        if self.since_s is None:
            self.since_s = start_s
        self.sum = min(self.most, self.sum + self._bounded(ratio))
        if self.sum <= 0.0:
            self.forget()
            return
        self.weight += weight
        self.weighted += weight * value
        self.n += n

    @property
    def is_enough(self) -> bool:
        """Whether it is as much as an alarm needs."""
        return self.sum >= self.limit

    @property
    def mean(self) -> float:
        """The mean of the values that made up the sum."""
        return self.weighted / self.weight if self.weight else 0.0

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return float(self.weight**-0.5) if self.weight else 0.0

    def _ratio(self, value: float, variance: float) -> float:
        return self.shift * (value - self.shift / 2) / variance

    def _bounded(self, ratio: float) -> float:
        bound = self.limit / SHARE
        return min(bound, max(-bound, ratio))
