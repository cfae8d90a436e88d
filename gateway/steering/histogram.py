"""Log-spaced latency buckets: eight per octave from 10 ms to 164 s."""

from functools import cache
from itertools import pairwise
from math import log, log2
from statistics import NormalDist

from gateway.steering.constants import BUCKETS, BUCKETS_PER_OCTAVE, FIRST_EDGE_S

ROUNDING = 1e-9  # of a bucket: keeps an exact edge in its own bucket


def bucket(seconds: float) -> int:
    """Return the bucket of ``seconds``; values beyond either end belong to the last bucket there."""
    if seconds <= FIRST_EDGE_S:
        return 0
    return min(BUCKETS - 1, int(BUCKETS_PER_OCTAVE * log2(seconds / FIRST_EDGE_S) + ROUNDING))


def edge_s(index: float) -> float:
    """Return the lower edge of bucket ``index``; a fraction is interpolated geometrically."""
    return float(FIRST_EDGE_S * 2 ** (index / BUCKETS_PER_OCTAVE))


def mid_s(index: int) -> float:
    """Return the geometric middle of bucket ``index``, in seconds."""
    return edge_s(index + 0.5)


@cache
def lognormal_masses(median_s: float, sigma: float) -> tuple[float, ...]:
    """Return the share of a lognormal distribution in each bucket; the tails are left out."""
    normal = NormalDist(log(median_s), sigma)
    below = [normal.cdf(log(edge_s(index))) for index in range(BUCKETS + 1)]
    within = below[-1] - below[0]
    return tuple((after - before) / within for before, after in pairwise(below))
