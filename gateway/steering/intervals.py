"""Quantiles of time to first token, and rates, with 95 % intervals, as they are published."""

from collections.abc import Sequence
from itertools import accumulate
from math import inf, sqrt

import msgspec

from gateway.steering.constants import Z_95
from gateway.steering.histogram import edge_s
from gateway.steering.survival import kaplan_meier

_LEFT = 0.5  # at least so much of those at risk is taken to remain, so that the last event has a variance too


class Quantile(msgspec.Struct, frozen=True):
    """A quantile and the ends of its 95 % interval, seconds; infinite if the samples do not reach it."""

    value_s: float
    low_s: float
    high_s: float


def quantiles(events: Sequence[float], censored: Sequence[float], shares: Sequence[float]) -> tuple[Quantile, ...]:
    """Return the Kaplan-Meier quantiles ``shares`` of dense counts by bucket.

    The interval has the buckets whose survival S is not significantly different from 1 - q (Brookmeyer and Crowley
    1982), tested with the variance at 1 - q itself, q (1 - q) / n: the sample's own is far too small in the tails. With
    censored attempts n is the effective number: that of uncensored ones for which S has the same variance by Greenwood,
    (1 - S) / (S sum e/(r(r-e))).
    """
    curve = kaplan_meier(events, censored)
    at_risk = list(accumulate(map(sum, zip(reversed(events), reversed(censored), strict=True))))[::-1]
    low, high = [inf] * len(shares), [inf] * len(shares)
    survival, greenwood = 1.0, 0.0
    for index, (seen, risk) in enumerate(zip(events, at_risk, strict=True)):
        if seen <= 0:
            continue
        left = max(risk - seen, _LEFT)
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
