"""Kaplan-Meier: the distribution of time to first token, including losers that were cut before theirs.

A loser cut at 0.4 s shows that its first token would have come later. Without such losers all deployments look 20 to
40 % faster than they are; here they stay in the risk set up to their ages (Kaplan and Meier 1958).
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from math import inf, log2, sqrt
from operator import mul

import msgspec

from gateway.steering.constants import BUCKETS, BUCKETS_PER_OCTAVE, FIRST_EDGE_S, MEAN_CAP_S, Z_95
from gateway.steering.counts import bucket, edge_s, mid_s

_ROUNDING = 1e-9  # so that 0.9 as a sum of tenths counts as reached


class Curve(msgspec.Struct, frozen=True):
    """A distribution over the buckets: the cumulative share of first tokens at the end of each.

    The share need not reach 1: the rest came later than anything that was observed.
    """

    reached: tuple[float, ...]

    def quantile_s(self, q: float) -> float:
        """Return the time by which a share ``q`` has its first token, in seconds; infinity if it is never reached.

        Within a bucket the time is interpolated geometrically.
        """
        index = bisect_left(self.reached, q - _ROUNDING)
        if index == len(self.reached):
            return inf
        below = self.reached[index - 1] if index else 0.0
        mass = self.reached[index] - below
        return edge_s(index + (min(1.0, max(0.0, (q - below) / mass)) if mass > 0 else 0.0))

    def reached_at(self, q: float) -> float:
        """Return the share of first tokens that have come by the end of the bucket with the quantile ``q``."""
        index = bisect_left(self.reached, q - _ROUNDING)
        return self.reached[index] if index < len(self.reached) else 1.0

    def later_than(self, seconds: float) -> float:
        """Return the share of first tokens later than ``seconds``; interpolated as in ``quantile_s``."""
        if seconds <= 0:
            return 1.0
        place = BUCKETS_PER_OCTAVE * log2(seconds / FIRST_EDGE_S)
        index = min(BUCKETS - 1, max(0, int(place)))
        below = self.reached[index - 1] if index else 0.0
        return 1.0 - (below + (self.reached[index] - below) * min(1.0, max(0.0, place - index)))

    def mean(self) -> "Mean":
        """Return the parts of the mean, from which it is computed for any scale."""
        below, total = 0.0, 0.0
        for reached, middle in zip(self.reached, _MIDDLES_S, strict=True):
            total += (reached - below) * middle
            below = reached
        return Mean(total, 1.0 - below)

    def beside(self, other: "Curve") -> "RaceOfTwo":
        """Return the expected result of a race with ``other``, if they are independent.

        Within a bucket either is equally likely to be first. F and G are the shares that have come by the bucket's end,
        F' and G' by its begin. The mean of the earlier first token is
        E[min(T, T of other, 30 s)] = sum (1 - F) (1 - G) width, and this curve's token is first in
        sum (F - F') (2 - G - G') / 2 = F_n - (F_n G_n + sum F G' - sum F' G) / 2.
        """
        mine, its = self.reached, other.reached
        earlier_s = _MIDDLES_S[0] + sum([(1.0 - f) * (1.0 - g) * s for f, g, s in zip(mine, its, _WIDTHS_S)])  # noqa: B905 - up to 30 s
        ahead = sum(map(mul, mine[1:], its)) - sum(map(mul, mine, its[1:]))
        return RaceOfTwo(earlier_s, mine[-1] - (mine[-1] * its[-1] + ahead) / 2)

    def weighed(self) -> tuple[float, ...]:
        """Return, by bucket up to 30 s, the share that has come by its end, times its width in seconds."""
        return tuple(map(mul, self.reached, _WIDTHS_S))

    def times(self, factor: float) -> "Curve":
        """Return the distribution of the times multiplied by ``factor``, rounded to whole buckets."""
        shift = min(BUCKETS, max(-BUCKETS, shift_of(factor)))
        if not shift:
            return self
        if shift > 0:
            return Curve((0.0,) * shift + self.reached[:-shift])
        return Curve(self.reached[-shift:] + self.reached[-1:] * -shift)

    def plus(self, seconds: float) -> "Curve":
        """Return the distribution of the times with ``seconds`` added."""
        return Curve(tuple([1.0 - self.later_than(edge_s(index + 1) - seconds) for index in range(BUCKETS)]))

    def left_at(self, q: float) -> "Curve":
        """Return the distribution of the time that is left once a share ``q`` of first tokens has come."""
        index = min(bisect_left(self.reached, q - _ROUNDING), BUCKETS - 1)
        come = self.reached[index]
        if come >= 1.0 - _ROUNDING:
            return _AT_ONCE
        left = 1.0 - come
        return Curve(tuple([(self.reached[later] - come) / left for later in _later(index)]))

    def late_s(self, goal_s: float) -> float:
        """Return the mean lateness of a first token, in seconds: E[max(0, min(T, 30 s) - goal)]."""
        mass_late = zip(self.masses(), _MIDDLES_S, strict=True)
        late = sum(mass * (middle - goal_s) for mass, middle in mass_late if middle > goal_s)
        return late + (1.0 - self.reached[-1]) * max(0.0, MEAN_CAP_S - goal_s)

    def expected_beyond_s(self) -> tuple[float, ...]:
        """Return, by bucket, the expected time of a first token that has not come by the bucket's end, in seconds.

        That is E[min(T, 30 s) | T > end]. The part beyond all observations is placed at the last first token (Efron
        1967): at 30 s it would outweigh all samples. For buckets beyond that: 0.
        """
        masses = self.masses()
        last = max((index for index, mass in enumerate(masses) if mass > 0), default=0)
        masses[last] += 1.0 - self.reached[-1]
        expected, left, sum_s = [], 0.0, 0.0
        for mass, middle_s in zip(reversed(masses), reversed(_MIDDLES_S), strict=True):
            expected.append(sum_s / left if left > _ROUNDING else 0.0)
            left += mass
            sum_s += mass * middle_s
        expected.reverse()
        return tuple(expected)

    def masses(self) -> list[float]:
        """Return the probability of each bucket."""
        below = 0.0
        masses = []
        for reached in self.reached:
            masses.append(reached - below)
            below = reached
        return masses


class RaceOfTwo(msgspec.Struct, frozen=True, gc=False):
    """The expected result of a race of two."""

    earlier_s: float  # the mean of the earlier first token, of at most 30 s
    first: float  # the share of races in which the first token is this curve's, not that of ``other``


class Mean(msgspec.Struct, frozen=True, gc=False):
    """A mean restricted to 30 s, in two parts: times above that, or never, count as 30 s."""

    comes_s: float  # of those in time: seconds times share
    never: float  # the share of later or missing ones

    def at(self, scale: float) -> float:
        """Return the mean if all times are multiplied by ``scale``, in seconds."""
        return min(MEAN_CAP_S, scale * self.comes_s + self.never * MEAN_CAP_S)  # rounding may exceed it


def kaplan_meier(events: Sequence[float], censored: Sequence[float]) -> Curve:
    """Estimate the curve from dense counts by bucket. Within a bucket events precede censored ones.

    S_i = prod over j <= i of (1 - events_j / risk_j), risk_i = sum over j >= i of events_j + censored_j.
    """
    survival = 1.0
    reached = []
    for n_events, risk in zip(events, _at_risk(events, censored), strict=True):
        if n_events > 0:
            survival *= 1.0 - n_events / risk  # at least the number seen
        reached.append(1.0 - survival)
    return Curve(tuple(reached))


def shift_of(factor: float) -> int:
    """Return by how many buckets times move if they are multiplied by ``factor``."""
    return round(BUCKETS_PER_OCTAVE * log2(factor)) if factor != 1.0 else 0  # without load, all factors are 1


def dense(sparse: Mapping[int, float]) -> list[float]:
    """Return counts by bucket as a full list."""
    counts = [0.0] * BUCKETS
    for index, amount in sparse.items():
        counts[min(index, BUCKETS - 1)] += amount
    return counts


def _at_risk(events: Sequence[float], censored: Sequence[float]) -> list[float]:
    # summed from the end, so that rounding never leaves fewer at risk than events
    risks = list(accumulate(n_events + cut for n_events, cut in zip(reversed(events), reversed(censored), strict=True)))
    risks.reverse()
    return risks


@lru_cache(maxsize=BUCKETS)
def _later(index: int) -> tuple[int, ...]:
    """Return, by bucket, the bucket of its end counted from the end of bucket ``index``."""
    return tuple(min(BUCKETS - 1, bucket(edge_s(index + 1) + edge_s(after + 1)) - 1) for after in range(BUCKETS))


_AT_ONCE = Curve((1.0,) * BUCKETS)
_MIDDLES_S = tuple(min(mid_s(index), MEAN_CAP_S) for index in range(BUCKETS))
# From the middle of a bucket to that of the next, up to 30 s.
_WIDTHS_S = tuple(after - middle for middle, after in pairwise(_MIDDLES_S) if middle < MEAN_CAP_S)


# Quantiles of time to first token, and rates, with 95 % intervals, as they are published.

_LEFT = 0.5  # minimum number left at risk after an event, so that the last one has a variance too


class Quantile(msgspec.Struct, frozen=True):
    """A quantile and the ends of its 95 % interval, seconds; infinite if the samples do not reach it."""

    value_s: float
    low_s: float
    high_s: float


def quantiles(events: Sequence[float], censored: Sequence[float], shares: Sequence[float]) -> tuple[Quantile, ...]:
    """Return the Kaplan-Meier quantiles ``shares`` of dense counts by bucket.

    The interval has the buckets whose survival S is not significantly different from 1 - q (Brookmeyer and Crowley
    1982), tested with the variance at 1 - q itself, q (1 - q) / n: the sample's own variance is far too small in the
    tails. With censored attempts n is the effective number: so many uncensored attempts as give S the same variance by
    Greenwood, (1 - S) / (S sum e/(r(r-e))).
    """
    curve = kaplan_meier(events, censored)
    at_risk = list(accumulate(map(sum, zip(reversed(events), reversed(censored), strict=True))))[::-1]
    low, high = [inf] * len(shares), [inf] * len(shares)
    survival, greenwood = 1.0, 0.0
    for index, (n_events, risk) in enumerate(zip(events, at_risk, strict=True)):
        if n_events <= 0:
            continue
        left = max(risk - n_events, _LEFT)
        survival *= left / risk
        greenwood += (risk - left) / (risk * left)
        spread = survival * greenwood
        effective = (1.0 - survival) / spread if spread > 0 else 0.0  # within rounding, nothing is known yet
        for at, share in enumerate(shares):
            above = 1.0 - curve.reached[index] - (1.0 - share)
            outside = above * above * effective >= Z_95 * Z_95 * share * (1.0 - share)
            if low[at] == inf and (above <= 0 or not outside):
                low[at] = edge_s(index)
            if high[at] == inf and above <= 0 and outside:
                high[at] = edge_s(index + 1)
    return tuple(Quantile(curve.quantile_s(share), low[at], high[at]) for at, share in enumerate(shares))


def wilson(hits: float, n: float) -> tuple[float, float]:
    """Return the ends of the 95 % interval of ``hits`` / ``n`` (Wilson 1927); 0 and 1 if ``n`` is 0.

    Unlike the normal approximation it is correct near 0 too, where rates of flaws should be.
    """
    if n <= 0:
        return 0.0, 1.0
    share, z2_n = min(1.0, hits / n), Z_95 * Z_95 / n
    middle, half = share + z2_n / 2, sqrt(z2_n * (share * (1.0 - share) + z2_n / 4))
    return max(0.0, (middle - half) / (1.0 + z2_n)), min(1.0, (middle + half) / (1.0 + z2_n))


# Quantiles of attempts that may be cut by a faster one: Kaplan-Meier, with audited losers representing all losers.
# Whether an attempt is overtaken depends on its own time: an easy prompt is fast everywhere. So the age at which it
# was cut is not used. A random sample of overtaken attempts, the audited, is watched to the first token and
# represents all of them; attempts not overtaken represent themselves. Only attempts launched with their call count:
# later ones, hedges and failovers, run only when others are slow.


class AuditedCounts(msgspec.Struct, frozen=True):
    """Counts of attempts launched with their call, one per bucket of age."""

    events: Sequence[float]  # first tokens of attempts not overtaken
    censored: Sequence[float]  # of these, cut without a first token: their clients left
    overtaken: float
    audited: float  # number of audited ones among the overtaken, including those that failed
    audited_events: Sequence[float]
    audited_censored: Sequence[float]


def audited_quantiles(fair: AuditedCounts, shares: Sequence[float]) -> tuple[Quantile, ...]:
    """Return the quantiles ``shares``, each with its 95 % interval; ``fair.audited`` must not be 0.

    An audited loser has the weight overtaken / audited. The interval has the buckets whose share F of first tokens is
    not significantly different from q, tested with the variance q (1 - q) / n for all n attempts plus p^2 G (1 - G) (1
    / audited - 1 / overtaken) for the overtaken, which are a part p of all and of which only the share G of the audited
    is known (with one success and one failure more, so that the ends have a variance too).
    """
    weight = fair.overtaken / fair.audited
    events = [own + weight * n_events for own, n_events in zip(fair.events, fair.audited_events, strict=True)]
    censored = [own + weight * cut for own, cut in zip(fair.censored, fair.audited_censored, strict=True)]
    curve = kaplan_meier(events, censored)
    sample = sum(fair.audited_events) + sum(fair.audited_censored)
    total = sum(events) + sum(censored)
    part = weight * sample / total
    unknown = part * part * max(0.0, 1 / fair.audited - 1 / fair.overtaken)
    low, high = [inf] * len(shares), [inf] * len(shares)
    for index, n_events in enumerate(accumulate(fair.audited_events)):
        if events[index] <= 0:
            continue
        of_sample = (n_events + 1) / (sample + 2)
        for at, share in enumerate(shares):
            above = curve.reached[index] - share
            outside = above * above >= Z_95 * Z_95 * (
                share * (1 - share) / total + unknown * of_sample * (1 - of_sample)
            )
            if low[at] == inf and (above >= 0 or not outside):
                low[at] = edge_s(index)
            if high[at] == inf and above >= 0 and outside:
                high[at] = edge_s(index + 1)
    return tuple(Quantile(curve.quantile_s(share), low[at], high[at]) for at, share in enumerate(shares))
