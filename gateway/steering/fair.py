"""Quantiles of attempts that may be cut by a faster one: Kaplan-Meier, with audited losers representing all losers.

Whether an attempt is overtaken depends on its own time: an easy prompt is fast everywhere. So the age at which it was
cut is not used. A random sample of overtaken attempts, the audited, is watched to the first token and represents all of
them; attempts not overtaken represent themselves. Only attempts launched with their call count: later ones, hedges and
failovers, run only when others are slow.
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
    """Counts of attempts launched with their call, one per bucket of age."""

    events: Sequence[float]  # first tokens of attempts not overtaken
    censored: Sequence[float]  # of these, cut without a first token: their clients left
    overtaken: float
    audited: float  # number of audited ones among the overtaken, including those that failed
    audited_events: Sequence[float]
    audited_censored: Sequence[float]


def fair_quantiles(fair: Fair, shares: Sequence[float]) -> tuple[Quantile, ...]:
    """Return the quantiles ``shares``, each with its 95 % interval; ``fair.audited`` must not be 0.

    An audited loser has the weight overtaken / audited. The interval has the buckets whose share F of first tokens is
    not significantly different from q, tested with the variance q (1 - q) / n for all n attempts plus p^2 G (1 - G) (1
    / audited - 1 / overtaken) for the overtaken, which are a part p of all and of which only the share G of the audited
    is known (with one success and one failure more, so that the ends have a variance too).
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
