"""The level of a window: by which factor its values are larger than usual, with censored ones heeded.

A value's *place* is the share of usual values below it. In a window as usual the places of all values are on average
in the middle. The level is the factor by which the window's values have to be divided to make it so. A value that was
cut at an age is somewhere above it: its place is on average half way between that age's place and the end.

This is the Wilcoxon estimate of a shift (Hodges and Lehmann 1963) with Gehan's scores for censored values (1965). One
wild value moves it by no more than any other large one.
"""

from bisect import bisect_left
from collections.abc import Callable
from itertools import pairwise
from math import log

import msgspec

from gateway.detecting.windows import Counts, Histogram

STEP = log(2) / 8  # a bucket's width, in natural logarithms
LOWEST, HIGHEST = -56, 111  # numbers of the ledger's buckets
FAR = 40.0  # buckets: no level is further than a factor of 32 from usual
ENOUGH = 50  # values, before it is known what is usual
_ROUNDS = 30
_EXACT = 0.01  # buckets: 0.1 %
_NONE = 1e-9
_PRIOR = 0.25  # values at each of two usual places, if some are cut: where all are cut, the level stays finite
_BINS = HIGHEST - LOWEST + 1


class Level(msgspec.Struct, frozen=True):
    """The logarithm of the factor, its variance by chance alone, and of how many values it is."""

    log_ratio: float
    variance: float
    n: float


class Yardstick(msgspec.Struct, frozen=True):
    """The usual values of a deployment: the share below each edge of the buckets, from ``LOWEST`` on."""

    below: tuple[float, ...]
    steepness: float  # how fast a value's place rises as it grows by one bucket, on average over usual values
    quartiles: tuple[float, float]  # in buckets

    @classmethod
    def of(cls, seen: Counts, cut: Counts) -> "Yardstick | None":
        """Return the yardstick of many values: the Kaplan-Meier estimate. None if they are too few."""
        if sum(seen.values()) < ENOUGH:
            return None
        at_risk = sum(seen.values()) + sum(cut.values())
        remaining = 1.0
        above = [1.0]
        for bucket in range(LOWEST, HIGHEST + 1):
            ended, left = seen.get(bucket, 0.0), cut.get(bucket, 0.0)
            if ended:
                remaining *= 1.0 - min(1.0, ended / max(ended, at_risk - left / 2))
            above.append(remaining)
            at_risk -= ended + left
        below = tuple(1.0 - share for share in above)
        known = below[-1]
        shares = [after - before for before, after in pairwise(below)]
        # Values of one bucket lie anywhere in it: two of them differ by a third of its width on average.
        steepness = max(2.0 * sum(share * share for share in shares), 1e-6)
        quartiles = [LOWEST + max(0, bisect_left(below, known * q) - 1) + 0.5 for q in (0.25, 0.75)]
        return cls(below, steepness, (quartiles[0], quartiles[1]))

    def place(self, at: float) -> float:
        """Return the share of usual values below ``at``, which is in buckets, with fractions."""
        position = at - LOWEST
        if position <= 0.0:
            return 0.0
        if position >= _BINS:
            return self.below[-1]
        whole = int(position)
        low = self.below[whole]
        return low + (position - whole) * (self.below[whole + 1] - low)

    def level(self, histogram: Histogram) -> Level | None:
        """Return how the values of a window compare; None without values."""
        seen = [(bucket + 0.5, n) for bucket, n in histogram.seen.items()]
        cut = [(bucket + 0.5, n) for bucket, n in histogram.cut.items()]
        number = sum(n for _, n in seen)
        if number <= 0.0 and not cut:
            return None
        if cut:
            seen += [(middle, _PRIOR) for middle in self.quartiles]
        shift = self._shift(seen, cut)
        answers = number if histogram.answers is None else min(number, histogram.answers)
        thinned = answers / number if number else 1.0
        # The places of what is seen are spread evenly (variance 1/3 of 2 F - 1). What is cut tells less.
        spread = slope = 0.0
        for at, n in cut:
            place = self.place(at - shift)
            spread += n * place * place
            slope += n * (place - self.place(at - shift - 1.0))
        spread += (number + 2 * _PRIOR if cut else number) / 3.0
        slope += number * self.steepness
        if slope <= 0.0 or thinned <= 0.0:
            return None
        return Level(shift * STEP, spread / (slope * slope) / thinned * STEP * STEP, answers + sum(n for _, n in cut))

    def _excess(self, seen: list[tuple[float, float]], cut: list[tuple[float, float]], shift: float) -> float:
        """Return the sum of scores: above zero while the values, divided by the shift, are still larger than usual."""
        known = self.below[-1]
        below, place = self.below, self.place
        total = 0.0
        for at, n in seen:
            position = at - shift - LOWEST
            if 0.0 < position < _BINS:
                whole = int(position)
                low = below[whole]
                total += n * (2.0 * (low + (position - whole) * (below[whole + 1] - low)) - 1.0)
            else:
                total += n * (2.0 * known - 1.0 if position > 0.0 else -1.0)
        for at, n in cut:
            total += n * place(at - shift)
        return total

    def _shift(self, seen: list[tuple[float, float]], cut: list[tuple[float, float]]) -> float:
        """Return the shift at which the excess is zero, in buckets."""

        def excess(shift: float) -> float:
            return self._excess(seen, cut, shift)

        near, at_near = 0.0, excess(0.0)
        sign = 1.0 if at_near > 0.0 else -1.0
        far = 2.0 * sign  # most windows are near zero: look outwards from there
        while (at_far := excess(far)) * sign > 0.0:
            if abs(far) >= FAR:
                return far
            near, at_near = far, at_far
            far = sign * min(FAR, 2.0 * abs(far))
        return _root(excess, near, at_near, far, at_far)


def _root(excess: Callable[[float], float], one: float, at_one: float, other: float, at_other: float) -> float:
    """Return where a function is zero, between two places at which its signs differ (Illinois algorithm)."""
    for _ in range(_ROUNDS):
        if abs(other - one) < _EXACT or abs(at_other - at_one) < _NONE:
            break
        guess = (one * at_other - other * at_one) / (at_other - at_one)
        at_guess = excess(guess)
        if abs(guess - other) < _EXACT or abs(at_guess) < _NONE:
            return guess
        if at_guess * at_other <= 0.0:
            one, at_one = other, at_other
        else:
            at_one /= 2.0
        other, at_other = guess, at_guess
    return (one + other) / 2.0


def added(one: dict[int, float], other: Counts) -> None:
    """Add the counts of ``other`` to ``one``."""
    for bucket, n in other.items():
        one[bucket] = one.get(bucket, 0.0) + n
