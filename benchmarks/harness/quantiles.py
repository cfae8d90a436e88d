"""Quantiles of samples that may count differently."""

from collections.abc import Iterable
from itertools import accumulate


def weighted_quantile(samples: Iterable[tuple[float, float]], q: float) -> float | None:
    """Return the smallest value at or below which a share ``q`` of the weight lies; None without samples.

    ``samples`` are pairs of value and weight.
    """
    ordered = sorted(samples)
    if not ordered:
        return None
    sums = list(accumulate(weight for _, weight in ordered))
    for (value, _), reached in zip(ordered, sums, strict=True):
        if reached >= q * sums[-1]:
            return value
    return ordered[-1][0]


def quantile(values: Iterable[float], q: float) -> float | None:
    """Return the smallest value at or below which a share ``q`` of the values lies; None without values."""
    return weighted_quantile(((value, 1.0) for value in values), q)


def milliseconds(seconds: float | None) -> float | None:
    """Return seconds as milliseconds, to a tenth."""
    return None if seconds is None else round(seconds * 1000, 1)
