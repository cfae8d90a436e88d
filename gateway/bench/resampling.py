"""Intervals of 95 % by the bootstrap over rounds, and how many comparisons at a time are corrected for.

A round asks every deployment the same, one shortly after the other. What slows a provider for a minute slows several
of its answers, so rounds are drawn, not answers, and the same rounds for all deployments.

The percentile interval is too short with few rounds. Its levels are those of Hesterberg's expanded interval (What
Teachers Should Know about the Bootstrap, 2015, section 5.3): the normal quantile is replaced by that of Student's t
times sqrt(n / (n - 1)).
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import accumulate
from math import ceil, exp, lgamma, log, sqrt
from random import Random
from statistics import NormalDist

import msgspec

from gateway.bench import beta

CONFIDENCE = 0.95
DRAWS = 2000
FLIPS = 20_000
FEWEST_ROUNDS = 8  # with fewer no interval is given: the bootstrap's would be too short
_POWER = 0.8  # the chance with which a difference that is there is to be shown
_RATHER = 0.5  # a quantile is given if its largest value is rather beyond it than not: p95 from 14 values on

Weights = Sequence[int]  # of a draw: how often each round was drawn


class Estimate(msgspec.Struct, frozen=True):
    """A figure with its interval of 95 %; ``low`` and ``high`` are None where there are too few answers for one."""

    n: int
    value: float | None
    low: float | None = None
    high: float | None = None


class Draws:
    """The same draws of rounds for all figures, so that figures can be compared."""

    def __init__(self, rounds: Sequence[int], seed: int, number: int = DRAWS) -> None:
        """``rounds`` are their numbers; ``seed`` makes the draws the same each time."""
        self.seed = seed
        random = Random(f"draws/{seed}")  # noqa: S311 - statistics
        self.rounds = tuple(rounds)
        self._place = {round_: place for place, round_ in enumerate(self.rounds)}
        self._weights: list[Weights] = []
        n = len(self.rounds)
        if n >= FEWEST_ROUNDS:
            for _ in range(number):
                weights = [0] * n
                for place in random.choices(range(n), k=n):
                    weights[place] += 1
                self._weights.append(weights)
            t = beta.quantile(1.0 - (1.0 - CONFIDENCE) / 2, n - 1)
            self._tail = NormalDist().cdf(-t * sqrt(n / (n - 1)))

    def interval(self, figure: Callable[[Weights], float | None]) -> tuple[float | None, float | None]:
        """Return the interval of ``figure``, which is None for a draw that has no data."""
        values = sorted(value for weights in self._weights if (value := figure(weights)) is not None)
        if not self._weights or len(values) < len(self._weights) / 2:
            return None, None
        last = len(values) - 1
        return _between(values, self._tail * last), _between(values, (1.0 - self._tail) * last)

    def quantile(self, values: Sequence[tuple[int, float]], share: float) -> Estimate:
        """Return a quantile of ``values``, each with its round.

        The bootstrap alone is too short near the ends, so the interval also has that of the order statistics, which
        holds for any distribution. It needs so many values that the largest is very probably beyond the quantile.
        """
        ordered = sorted((value, self._place[round_]) for round_, value in values)
        amounts = [value for value, _ in ordered]
        beyond = max(share, 1.0 - share)
        point = _quantile(amounts, share) if beyond ** len(ordered) <= _RATHER else None
        if beyond ** len(ordered) > (1.0 - CONFIDENCE) / 2:
            return Estimate(len(ordered), point)
        places = [place for _, place in ordered]

        def drawn(weights: Weights) -> float | None:
            below = list(accumulate(map(weights.__getitem__, places)))
            total = below[-1]
            if not total:
                return None
            at = share * (total - 1)
            lower = amounts[bisect_left(below, int(at) + 1)]
            upper = amounts[bisect_left(below, ceil(at) + 1)]
            return lower + (upper - lower) * (at - int(at))

        low, high = self.interval(drawn)
        if low is None or high is None:
            return Estimate(len(ordered), point)
        below, above = order_limits(len(ordered), share)
        return Estimate(len(ordered), point, min(low, amounts[below]), max(high, amounts[above]))

    def ratio(self, parts: Sequence[tuple[int, float, float]]) -> Estimate:
        """Return the sum of the second over the sum of the third of ``parts``, each with its round: a mean, a rate."""
        above, below = [0.0] * len(self.rounds), [0.0] * len(self.rounds)
        for round_, numerator, denominator in parts:
            above[self._place[round_]] += numerator
            below[self._place[round_]] += denominator

        def drawn(weights: Weights) -> float | None:
            total = sum(map(float.__mul__, map(float, weights), below))
            return sum(map(float.__mul__, map(float, weights), above)) / total if total else None

        value = drawn([1] * len(self.rounds))
        if value is None or len(parts) < 2:  # noqa: PLR2004 - one has no spread
            return Estimate(len(parts), value)
        return Estimate(len(parts), value, *self.interval(drawn))

    def mean(self, values: Sequence[tuple[int, float]]) -> Estimate:
        """Return the mean of ``values``, each with its round."""
        return self.ratio([(round_, value, 1.0) for round_, value in values])

    def share(self, values: Sequence[tuple[int, bool]]) -> Estimate:
        """Return the share of true ``values``, each with its round.

        The interval is Clopper and Pearson's, which holds for shares near 0 and 1 too, where the bootstrap has nothing
        to draw from. Where rounds differ more than chance explains, the number of values is reduced accordingly.
        """
        n = len(values)
        if not n:
            return Estimate(0, None)
        share = sum(value for _, value in values) / n
        by_round: dict[int, list[bool]] = {}
        for round_, value in values:
            by_round.setdefault(round_, []).append(value)
        effective = n / _design_effect(share, list(by_round.values()))
        return Estimate(n, share, *beta.share_limits(share * effective, effective, (1.0 - CONFIDENCE) / 2))


@cache
def order_limits(number: int, share: float) -> tuple[int, int]:
    """Return the places of two of ``number`` ordered values, between which a quantile lies with 95 %.

    Each is passed with at most 2.5 %: as few values are below the quantile as a binomial distribution says.
    """
    most, tail = (1.0 - CONFIDENCE) / 2, 0.0
    low = high = None
    for below in range(number + 1):  # values below the quantile
        ways = lgamma(number + 1) - lgamma(below + 1) - lgamma(number - below + 1)
        tail += exp(ways + below * log(share) + (number - below) * log(1.0 - share))
        if tail <= most:
            low = below
        if high is None and tail >= 1.0 - most:
            high = below
    return low or 0, min(number - 1, number - 1 if high is None else high)


def share_difference(a: Estimate, b: Estimate) -> Estimate:
    """Return the first of two shares minus the second, with Newcombe's interval (1998, method 10)."""
    if a.value is None or b.value is None or a.low is None or a.high is None or b.low is None or b.high is None:
        return Estimate(min(a.n, b.n), None)
    value = a.value - b.value
    down = sqrt((a.value - a.low) ** 2 + (b.high - b.value) ** 2)
    up = sqrt((a.high - a.value) ** 2 + (b.value - b.low) ** 2)
    return Estimate(min(a.n, b.n), value, value - down, value + up)


def flipped_p(differences: Sequence[float], seed: int) -> float:
    """Return the p-value of "the differences of rounds are as often positive as negative", by flipping their signs.

    For shares, whose differences take few values, so that Student's test does not fit. All flips are tried if there are
    few rounds, else ``FLIPS`` random ones.
    """
    known = [each for each in differences if each]
    if len(differences) < FEWEST_ROUNDS or not known:
        return 1.0
    least = abs(sum(known)) - 1e-9
    if 2 ** len(known) <= FLIPS:
        sums = [0.0]
        for each in known:
            sums = [total + sign for total in sums for sign in (each, -each)]
        return sum(abs(total) >= least for total in sums) / len(sums)
    random = Random(f"flips/{seed}")  # noqa: S311 - statistics
    far = 0
    for _ in range(FLIPS):
        bits = random.getrandbits(len(known))
        far += abs(sum(each if bits >> place & 1 else -each for place, each in enumerate(known))) >= least
    return (far + 1) / (FLIPS + 1)


def paired_p(differences: Sequence[float]) -> float:
    """Return the p-value of "the mean difference is 0" by Student's test; ``differences`` are of rounds."""
    n = len(differences)
    if n < FEWEST_ROUNDS:
        return 1.0
    mean = sum(differences) / n
    variance = sum((each - mean) ** 2 for each in differences) / (n - 1)
    if not variance:
        return 0.0 if mean else 1.0
    return beta.two_sided_p(mean / sqrt(variance / n), n - 1)


def rounds_needed(differences: Sequence[float], amount: float, comparisons: int) -> int | None:
    """Return how many rounds would show a mean difference of ``amount`` in four of five benches; None: too few to tell.

    ``differences`` are of the rounds there are, whose variance is taken for that of all. The paired test's level is
    that of the most severe of so many ``comparisons`` (``holm``).
    """
    n = len(differences)
    if n < FEWEST_ROUNDS:
        return None
    mean = sum(differences) / n
    variance = sum((each - mean) ** 2 for each in differences) / (n - 1)
    level = NormalDist().inv_cdf(1.0 - (1.0 - CONFIDENCE) / 2 / comparisons)
    needed = (
        (level + NormalDist().inv_cdf(_POWER)) / amount
    ) ** 2 * variance + level**2 / 2  # Student's test needs more
    return max(FEWEST_ROUNDS, ceil(needed))


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return the p-values of one family, corrected so that among all of them a false finding has at most its level."""
    corrected: dict[str, float] = {}
    worst = 0.0
    for place, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        worst = max(worst, min(1.0, p * (len(p_values) - place)))
        corrected[name] = worst
    return corrected


def _design_effect(share: float, rounds: Sequence[Sequence[bool]]) -> float:
    """Return by how much the rounds' shares vary more than independent values would; at least 1."""
    n, number = sum(map(len, rounds)), len(rounds)
    expected = share * (1.0 - share) / n
    if number < FEWEST_ROUNDS or not expected:
        return 1.0
    off = sum((sum(each) - share * len(each)) ** 2 for each in rounds)
    return max(1.0, number / (number - 1) * off / n**2 / expected)


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    return _between(ordered, share * (len(ordered) - 1)) if ordered else None


def _between(ordered: Sequence[float], at: float) -> float:
    """Return the value at place ``at``, between two of them on the straight line."""
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)
