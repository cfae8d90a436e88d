"""The level of a window: the factor by which its values are larger than usual, taking censored values into account.

A value's *place* is the share of usual values below it. In a usual window the mean place of all values is one half. The
level is the factor by which the window's values must be divided so that their mean place is one half again. For
example, a window with values twice as large as usual has a level of 2. A value that was cut at an age is somewhere
above that age. Its expected place is half way between the age's place and 1.

This is the Wilcoxon estimate of a shift (Hodges and Lehmann 1963) with Gehan's scores for censored values (1965). An
outlier moves the level by no more than any other large value.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import log, sqrt
from statistics import median

import msgspec

from gateway.alerts.slowdowns import DAY_S, HOUR_S, WINDOW_S, Counts, Histogram

STEP = log(2) / 8  # a bucket's width, in natural logarithms
LOWEST, HIGHEST = -56, 111  # numbers of the ledger's buckets
FAR = 40.0  # buckets: no level is further than a factor of 32 from usual
ENOUGH = 50  # values that an estimate of the usual values needs
_ROUNDS = 30
_EXACT = 0.01  # buckets: 0.1 %
_NONE = 1e-9
_PRIOR = 0.25  # values added at each quartile, if some are cut: if all are cut, the level stays finite
_BINS = HIGHEST - LOWEST + 1


class FactorLevel(msgspec.Struct, frozen=True):
    """The logarithm of the factor, its variance by chance alone, and the number of its values."""

    log_ratio: float
    variance: float
    n: float


class Yardstick(msgspec.Struct, frozen=True):
    """The distribution of a deployment's usual values: the share below each edge of the buckets, from ``LOWEST`` on."""

    below: tuple[float, ...]
    steepness: float  # by how much a value's place rises per bucket, on average over usual values
    quartiles: tuple[float, float]  # in buckets

    @classmethod
    def of(cls, seen: Counts, cut: Counts) -> "Yardstick | None":
        """Return the Kaplan-Meier estimate from many values; None if there are too few."""
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
        # Values are spread evenly within a bucket: two values differ by a third of the bucket's width on average.
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

    def level(self, histogram: Histogram) -> FactorLevel | None:
        """Return the level of a window's values; None without values."""
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
        # The places of observed values are uniform (2 F - 1 has variance 1/3). Censored values carry less information.
        spread = slope = 0.0
        for at, n in cut:
            place = self.place(at - shift)
            spread += n * place * place
            slope += n * (place - self.place(at - shift - 1.0))
        spread += (number + 2 * _PRIOR if cut else number) / 3.0
        slope += number * self.steepness
        if slope <= 0.0 or thinned <= 0.0:
            return None
        return FactorLevel(
            shift * STEP, spread / (slope * slope) / thinned * STEP * STEP, answers + sum(n for _, n in cut)
        )

    def _excess(self, seen: list[tuple[float, float]], cut: list[tuple[float, float]], shift: float) -> float:
        """Return the sum of scores: above zero if the values, divided by the shift, are still larger than usual."""
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
    """Return the zero of a function between two points at which its signs differ (Illinois algorithm)."""
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


# The expected level of a deployment at an hour of the week, from its own past, and the variance around this level. All
# values here are natural logarithms of levels. The expectation of an hour is a sum: the level of the last week (the
# median of the residuals), and the effects of the hour of the day, the day of the week and the hour of the week. The
# effects are shrunk by their noise.

DAYS = 28  # of the past
FEW_HOURS = 6  # with fewer hours, there is no expectation
WEEK_S = 7 * DAY_S
LEAST_SPREAD = 0.03  # the least standard deviation of five minutes
_WILD = 3.0  # standard deviations at which outliers are clipped
_LAGS = 6  # hours over which residuals may be correlated
_CLOSE = 0.01  # the variance of an hour besides chance, when hours are weighted


class Hour(msgspec.Struct, frozen=True):
    """The level of one hour, by its start in unix seconds."""

    start_s: int
    level: FactorLevel


class LevelProfile(msgspec.Struct, frozen=True):
    """The expected levels, and the variance of five minutes around them, besides chance.

    ``variance`` is for sums over many windows. As residuals are correlated over hours, this variance is larger than
    that of one window. ``history_s``: how far back the history reaches.
    """

    by_hour: tuple[float, ...]  # 168, from Thursday midnight on, where unix time begins
    variance: float
    history_s: int
    left: dict[int, FactorLevel]  # by hour: the residual, which the expectation does not explain

    def expected(self, at_s: float) -> float:
        """Return the expected level at an instant, interpolated between the two nearest hours."""
        position = (at_s / HOUR_S - 0.5) % 168
        whole = int(position)
        here, there = self.by_hour[whole], self.by_hour[(whole + 1) % 168]
        return here + (position - whole) * (there - here)

    @classmethod
    def of(cls, hours: Sequence[Hour], now_s: float) -> "LevelProfile | None":
        """Return the profile of past hours, the oldest first; None if there are too few."""
        hours = [hour for hour in hours if now_s - DAYS * DAY_S <= hour.start_s <= now_s - HOUR_S]
        if len(hours) < FEW_HOURS:
            return None
        middle = median(hour.level.log_ratio for hour in hours)
        values = _tamed([hour.level.log_ratio - middle for hour in hours])
        weights = [1.0 / (hour.level.variance + _CLOSE) for hour in hours]
        of_day = [hour.start_s // HOUR_S % 24 for hour in hours]
        of_week = [hour.start_s // HOUR_S % 168 for hour in hours]
        # Each hour's leverage on its own expectation. The leverage corrects the hour's residual.
        leverages = [0.0] * len(hours)
        left, days = _explained(values, weights, of_day, 24, leverages)
        left, weekdays = _explained(left, weights, [slot // 24 for slot in of_week], 7, leverages)
        left, weeks = _explained(left, weights, of_week, 168, leverages)
        recent = [value for value, hour in zip(left, hours, strict=True) if now_s - hour.start_s <= WEEK_S]
        level = median(recent) if len(recent) >= FEW_HOURS else median(left)
        by_hour = tuple(middle + level + days[hour % 24] + weekdays[hour // 24] + weeks[hour] for hour in range(168))
        alone = _without_drift(left, hours)
        alone = [value / (1.0 - min(leverage, 0.8)) for value, leverage in zip(alone, leverages, strict=True)]
        variance = _variance(alone, hours)
        kept = {
            hour.start_s: FactorLevel(value, hour.level.variance, hour.level.n)
            for value, hour in zip(alone, hours, strict=True)
        }
        return cls(by_hour, variance, int(now_s - hours[0].start_s), kept)


def variance_of(hours: Sequence[Hour]) -> float:
    """Return the variance of five minutes in a sum over many, from hours whose expectation is zero."""
    return _variance([hour.level.log_ratio for hour in hours], hours)


def _explained(
    values: list[float], weights: list[float], slots: list[int], number: int, leverages: list[float]
) -> tuple[list[float], list[float]]:
    """Return the residuals without the effects of the slots, and the effects; add to each value's ``leverages``."""
    sums, whole, count = [0.0] * number, [0.0] * number, [0] * number
    for value, weight, slot in zip(values, weights, slots, strict=True):
        sums[slot] += weight * value
        whole[slot] += weight
        count[slot] += 1
    means = [one / weight if weight else 0.0 for one, weight in zip(sums, whole, strict=True)]
    several = [count[slot] > 1 for slot in slots]
    within = sum(
        (value - means[slot]) ** 2 / (1.0 - 1.0 / count[slot])
        for value, slot, is_one in zip(values, slots, several, strict=True)
        if is_one
    )
    # Without a second week, all variance counts as noise.
    noise = within / sum(several) if any(several) else sum(value * value for value in values) / len(values)
    filled = [slot for slot in range(number) if count[slot]]
    between = sum(means[slot] ** 2 - noise / count[slot] for slot in filled) / len(filled)
    shrinkage = [max(between, 0.0) / (max(between, 0.0) + noise / n + 1e-12) if n else 0.0 for n in count]
    effects = [mean * share for mean, share in zip(means, shrinkage, strict=True)]
    for index, (slot, weight) in enumerate(zip(slots, weights, strict=True)):
        leverages[index] += shrinkage[slot] * weight / whole[slot]
    return [value - effects[slot] for value, slot in zip(values, slots, strict=True)], effects


def _without_drift(values: list[float], hours: Sequence[Hour]) -> list[float]:
    """Return values minus the median of their own week: a slow drift is no noise."""
    of_week: dict[int, list[float]] = {}
    last = hours[-1].start_s
    for value, hour in zip(values, hours, strict=True):
        of_week.setdefault((last - hour.start_s) // WEEK_S, []).append(value)
    middles = {week: median(some) for week, some in of_week.items()}
    return [value - middles[(last - hour.start_s) // WEEK_S] for value, hour in zip(values, hours, strict=True)]


def _variance(values: list[float], hours: Sequence[Hour]) -> float:
    """Return twelve times the variance of an hour's mean, with autocovariance over hours, without chance."""
    tamed = _tamed(values)
    number = len(tamed)
    chance = sum(hour.level.variance for hour in hours) / number
    known = sum(value * value for value in tamed) / number
    together = 0.0
    place = {hour.start_s: value for hour, value in zip(hours, tamed, strict=True)}
    for lag in range(1, _LAGS + 1):
        products = sum(value * place.get(start_s + lag * HOUR_S, 0.0) for start_s, value in place.items())
        together += 2.0 * (1.0 - lag / (_LAGS + 1)) * products / number
    # A few hours may be steady by chance: two standard errors are added.
    caution = 1.0 + 2.0 * sqrt(2.0 / number)
    own = max(known - chance, 0.0) + max(together, 0.0)
    return max(HOUR_S / WINDOW_S * own * caution, LEAST_SPREAD * LEAST_SPREAD)


def _tamed(values: list[float]) -> list[float]:
    """Return values with outliers clipped."""
    middle = median(values)
    spread = 1.4826 * median(abs(value - middle) for value in values)
    far = _WILD * max(spread, 0.02)
    return [min(middle + far, max(middle - far, value)) for value in values]


# Comparison with a deployment's peers: the part of its changes that all peers share.

_MEDIAN = 1.5  # the variance of a median, over that of a mean
_PAIR = 2
_APART = 3.0  # standard deviations, beyond which two peers behave differently
_FEW_HOURS = 6
_USUAL_LUCK = 2.0  # standard deviations; if peers are faster than usual by more, the excess is not shared


class PeerChanges(msgspec.Struct, frozen=True):
    """How a deployment and its peers changed together in the past.

    ``common``: the covariance of an hour; ``moves``: the variance of the peers' hour, without chance. ``beside``: the
    variance of five minutes of the difference to the peers. ``itself``: the variance of the level minus the part of the
    peers' change that the deployment usually shares.
    """

    common: float
    moves: float
    beside: float
    itself: float

    @classmethod
    def of(cls, own: Mapping[int, FactorLevel], peers: Mapping[int, FactorLevel]) -> "PeerChanges | None":
        """Return the changes from the residuals of hours, ``own`` and the peers'; None if they share too few hours."""
        both = [(start_s, level, peers[start_s]) for start_s, level in own.items() if start_s in peers]
        number = len(both)
        if number < _FEW_HOURS:
            return None
        products = [level.log_ratio * other.log_ratio for _, level, other in both]
        covariance = sum(products) / number
        doubt = (sum((one - covariance) ** 2 for one in products) / number / number) ** 0.5
        common = max(0.0, covariance - doubt)
        moved = sum(other.log_ratio**2 - other.variance for *_, other in both) / number
        known = cls(common, max(moved, common), 0.0, 0.0)
        beside = [
            Hour(start_s, FactorLevel(level.log_ratio - other.log_ratio, level.variance + other.variance, level.n))
            for start_s, level, other in both
        ]
        itself = [Hour(start_s, known.without(level, other)) for start_s, level, other in both]
        return cls(known.common, known.moves, variance_of(beside), variance_of(itself))

    def without(self, own: FactorLevel, peers: FactorLevel) -> FactorLevel:
        """Return a level without the part that its peers explain. Peers that got much faster explain less."""
        share = min(1.0, self.common / (self.moves + peers.variance)) if self.common else 0.0
        moved = max(peers.log_ratio, -_USUAL_LUCK * self.moves**0.5)
        return FactorLevel(own.log_ratio - share * moved, own.variance + share * share * peers.variance, own.n)


def together(levels: Iterable[FactorLevel]) -> FactorLevel | None:
    """Return one level for several peers: the median. Of two that are too far apart, the more usual level counts.

    So if one of two peers changes alone, its change explains little.
    """
    found = list(levels)
    if len(found) <= 1:
        return found[0] if found else None
    weights = [1.0 / (level.variance + _CLOSE) for level in found]
    chance = sum(weight * weight * level.variance for weight, level in zip(weights, found, strict=True))
    variance, n = chance / sum(weights) ** 2, sum(level.n for level in found)
    if len(found) > _PAIR:
        return FactorLevel(median(level.log_ratio for level in found), variance * _MEDIAN, n)
    one, other = sorted(found, key=lambda level: abs(level.log_ratio))
    doubt = (one.variance + other.variance + 2.0 * _CLOSE) ** 0.5
    if abs(one.log_ratio - other.log_ratio) > _APART * doubt:
        return one
    mean = sum(weight * level.log_ratio for weight, level in zip(weights, found, strict=True)) / sum(weights)
    return FactorLevel(mean, variance, n)
