"""What to expect of a deployment at an hour of the week, from its own past, and how far off that is by itself.

Everything here is in natural logarithms of the level. The expectation of an hour is a sum: the level of the last
week (the median of what the others leave), what is usual at this hour of the day, on this day of the week, and at this
hour of the week. Of these only as much is believed as stands out of their noise.
"""

from collections.abc import Sequence
from math import sqrt
from statistics import median

import msgspec

from gateway.detecting.levels import Level
from gateway.detecting.windows import DAY_S, HOUR_S, WINDOW_S

DAYS = 28  # of the past
FEW_HOURS = 6  # below which nothing is expected
WEEK_S = 7 * DAY_S
LEAST_SPREAD = 0.03  # of five minutes: nothing real is steadier
_WILD = 3.0  # standard deviations, beyond which a value counts as just that far off
_LAGS = 6  # hours over which what is left may hang together
_CLOSE = 0.01  # the variance of an hour beside that by chance, when hours are weighted


class Hour(msgspec.Struct, frozen=True):
    """The level of one hour (unix time, of its begin)."""

    start_s: int
    level: Level


class Profile(msgspec.Struct, frozen=True):
    """Expectations, and the variance with which five minutes are off, besides chance.

    ``variance`` is that which matters in a sum over many windows: what is left hangs together over hours, so it is
    larger than that of one window. ``history_s``: how far back it reaches.
    """

    by_hour: tuple[float, ...]  # 168, from Thursday midnight on, as unix time has it
    variance: float
    history_s: int
    left: dict[int, Level]  # of each hour: what the expectation does not explain

    def expected(self, at_s: float) -> float:
        """Return the expectation at an instant, between those of the two nearest hours."""
        position = (at_s / HOUR_S - 0.5) % 168
        whole = int(position)
        here, there = self.by_hour[whole], self.by_hour[(whole + 1) % 168]
        return here + (position - whole) * (there - here)

    @classmethod
    def of(cls, hours: Sequence[Hour], now_s: float) -> "Profile | None":
        """Return the profile of past hours, the oldest first; None if they are too few."""
        hours = [hour for hour in hours if now_s - DAYS * DAY_S <= hour.start_s <= now_s - HOUR_S]
        if len(hours) < FEW_HOURS:
            return None
        middle = median(hour.level.log_ratio for hour in hours)
        values = _tamed([hour.level.log_ratio - middle for hour in hours])
        weights = [1.0 / (hour.level.variance + _CLOSE) for hour in hours]
        of_day = [hour.start_s // HOUR_S % 24 for hour in hours]
        of_week = [hour.start_s // HOUR_S % 168 for hour in hours]
        # How much each hour pulls its own expectation: it may not count as its own proof.
        pulls = [0.0] * len(hours)
        left, days = _explained(values, weights, of_day, 24, pulls)
        left, weekdays = _explained(left, weights, [slot // 24 for slot in of_week], 7, pulls)
        left, weeks = _explained(left, weights, of_week, 168, pulls)
        recent = [value for value, hour in zip(left, hours, strict=True) if now_s - hour.start_s <= WEEK_S]
        level = median(recent) if len(recent) >= FEW_HOURS else median(left)
        by_hour = tuple(middle + level + days[hour % 24] + weekdays[hour // 24] + weeks[hour] for hour in range(168))
        alone = _without_drift(left, hours)
        alone = [value / (1.0 - min(pull, 0.8)) for value, pull in zip(alone, pulls, strict=True)]
        variance = _variance(alone, hours)
        kept = {
            hour.start_s: Level(value, hour.level.variance, hour.level.n)
            for value, hour in zip(alone, hours, strict=True)
        }
        return cls(by_hour, variance, int(now_s - hours[0].start_s), kept)


def variance_of(hours: Sequence[Hour]) -> float:
    """Return the variance of five minutes for a sum over many, of hours that should be about zero."""
    return _variance([hour.level.log_ratio for hour in hours], hours)


def _explained(
    values: list[float], weights: list[float], slots: list[int], number: int, pulls: list[float]
) -> tuple[list[float], list[float]]:
    """Return what is left without the effects of the slots, and the effects; add to each value's ``pulls``."""
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
    # Without a second week all is noise, as far as can be known.
    noise = within / sum(several) if any(several) else sum(value * value for value in values) / len(values)
    filled = [slot for slot in range(number) if count[slot]]
    between = sum(means[slot] ** 2 - noise / count[slot] for slot in filled) / len(filled)
    believed = [max(between, 0.0) / (max(between, 0.0) + noise / n + 1e-12) if n else 0.0 for n in count]
    effects = [mean * share for mean, share in zip(means, believed, strict=True)]
    for index, (slot, weight) in enumerate(zip(slots, weights, strict=True)):
        pulls[index] += believed[slot] * weight / whole[slot]
    return [value - effects[slot] for value, slot in zip(values, slots, strict=True)], effects


def _without_drift(values: list[float], hours: Sequence[Hour]) -> list[float]:
    """Return values without the median of their own week: a slow drift is no noise."""
    of_week: dict[int, list[float]] = {}
    last = hours[-1].start_s
    for value, hour in zip(values, hours, strict=True):
        of_week.setdefault((last - hour.start_s) // WEEK_S, []).append(value)
    middles = {week: median(some) for week, some in of_week.items()}
    return [value - middles[(last - hour.start_s) // WEEK_S] for value, hour in zip(values, hours, strict=True)]


def _variance(values: list[float], hours: Sequence[Hour]) -> float:
    """Return twelve times the variance of an hour's mean, with what hangs together over hours, without chance."""
    tamed = _tamed(values)
    number = len(tamed)
    chance = sum(hour.level.variance for hour in hours) / number
    known = sum(value * value for value in tamed) / number
    together = 0.0
    place = {hour.start_s: value for hour, value in zip(hours, tamed, strict=True)}
    for lag in range(1, _LAGS + 1):
        products = sum(value * place.get(start_s + lag * HOUR_S, 0.0) for start_s, value in place.items())
        together += 2.0 * (1.0 - lag / (_LAGS + 1)) * products / number
    # Few hours may be steady by luck: two standard errors are added.
    caution = 1.0 + 2.0 * sqrt(2.0 / number)
    own = max(known - chance, 0.0) + max(together, 0.0)
    return max(HOUR_S / WINDOW_S * own * caution, LEAST_SPREAD * LEAST_SPREAD)


def _tamed(values: list[float]) -> list[float]:
    """Return values, the wild ones only as far from the middle as a usual one may be."""
    middle = median(values)
    spread = 1.4826 * median(abs(value - middle) for value in values)
    far = _WILD * max(spread, 0.02)
    return [min(middle + far, max(middle - far, value)) for value in values]
