"""Quantiles of attempts that are cut by who answers first: Kaplan-Meier with the audited losers in the place of all.

That an attempt was overtaken tells of its own time: a quick prompt is quick for everybody. So nothing is concluded from
the age at which it was cut. Of the overtaken a random sample, the audited, is watched to its first token and stands for
all of them; who was not overtaken stands for itself. Counted are attempts launched with their call: later ones, hedges
and failovers, run only where others are slow.
"""

from collections.abc import Sequence
from itertools import accumulate
from math import inf

import msgspec

from gateway.steering.constants import Z_95
from gateway.steering.histogram import edge_s
from gateway.steering.intervals import Quantile
from gateway.steering.survival import kaplan_meier


class Fair(msgspec.Struct, frozen=True):
    """Attempts launched with their call, dense counts by bucket of age."""

    events: Sequence[float]  # first tokens of those not overtaken
    censored: Sequence[float]  # of these, cut without one: their clients left
    overtaken: float
    audited: float  # of the overtaken, also those that then failed
    audited_events: Sequence[float]
    audited_censored: Sequence[float]


def fair_quantiles(fair: Fair, shares: Sequence[float]) -> tuple[Quantile, ...]:
    """Return the quantiles ``shares``, each with its 95 % interval; ``fair.audited`` is more than nothing.

    An audited loser weighs overtaken / audited. The interval holds the buckets whose share F of first tokens is not
    significantly different from q, tested with the variance q (1 - q) / n of all n attempts, plus p^2 G (1 - G)
    (1 / audited - 1 / overtaken) for the overtaken, a part p of all, of whom only the audited ones' share G is known
    (with a success and a failure more, so that the ends have a variance too).
    """
    weight = fair.overtaken / fair.audited
    events = [own + weight * seen for own, seen in zip(fair.events, fair.audited_events, strict=True)]
    censored = [own + weight * cut for own, cut in zip(fair.censored, fair.audited_censored, strict=True)]
    curve = kaplan_meier(events, censored)
    sample = sum(fair.audited_events) + sum(fair.audited_censored)
    total = sum(events) + sum(censored)
    part = weight * sample / total
    unknown = part * part * max(0.0, 1 / fair.audited - 1 / fair.overtaken)
    low, high = [inf] * len(shares), [inf] * len(shares)
    for index, seen in enumerate(accumulate(fair.audited_events)):
        if events[index] <= 0:
            continue
        of_sample = (seen + 1) / (sample + 2)
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
