"""What a deployment's peers tell of it: how much of what happens to it happens to all of them."""

from collections.abc import Iterable, Mapping
from statistics import median

import msgspec

from gateway.detecting.levels import Level
from gateway.detecting.profile import Hour, variance_of

_MEDIAN = 1.5  # times the variance of a mean
_CLOSE = 0.01  # the variance of a level beside that by chance, when levels are weighted
_PAIR = 2
_APART = 3.0  # standard deviations, from which two do not do the same
_FEW_HOURS = 6
_USUAL_LUCK = 2.0  # standard deviations, by which peers may be faster than usual before it is their own doing


class Peers(msgspec.Struct, frozen=True):
    """How a deployment and its peers moved together in the past.

    ``common``: the covariance of an hour; ``moves``: the variance of the peers' hour, without chance. ``beside``: the
    variance of five minutes of the difference, ``itself``: of what is left if that part of the peers' movement is taken
    away which it usually shares.
    """

    common: float
    moves: float
    beside: float
    itself: float

    @classmethod
    def of(cls, own: Mapping[int, Level], peers: Mapping[int, Level]) -> "Peers | None":
        """Return it, of what is left of hours; None if they have too few in common."""
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
            Hour(start_s, Level(level.log_ratio - other.log_ratio, level.variance + other.variance, level.n))
            for start_s, level, other in both
        ]
        itself = [Hour(start_s, known.without(level, other)) for start_s, level, other in both]
        return cls(known.common, known.moves, variance_of(beside), variance_of(itself))

    def without(self, own: Level, peers: Level) -> Level:
        """Return a level without what its peers' movement explains. Peers that got much faster explain nothing."""
        share = min(1.0, self.common / (self.moves + peers.variance)) if self.common else 0.0
        moved = max(peers.log_ratio, -_USUAL_LUCK * self.moves**0.5)
        return Level(own.log_ratio - share * moved, own.variance + share * share * peers.variance, own.n)


def together(levels: Iterable[Level]) -> Level | None:
    """Return one level of several peers: the median. Of two that are too far apart the more usual one counts.

    So one of two peers that changes by itself explains little.
    """
    found = list(levels)
    if len(found) <= 1:
        return found[0] if found else None
    weights = [1.0 / (level.variance + _CLOSE) for level in found]
    chance = sum(weight * weight * level.variance for weight, level in zip(weights, found, strict=True))
    variance, n = chance / sum(weights) ** 2, sum(level.n for level in found)
    if len(found) > _PAIR:
        return Level(median(level.log_ratio for level in found), variance * _MEDIAN, n)
    one, other = sorted(found, key=lambda level: abs(level.log_ratio))
    doubt = (one.variance + other.variance + 2.0 * _CLOSE) ** 0.5
    if abs(one.log_ratio - other.log_ratio) > _APART * doubt:
        return one
    mean = sum(weight * level.log_ratio for weight, level in zip(weights, found, strict=True)) / sum(weights)
    return Level(mean, variance, n)
