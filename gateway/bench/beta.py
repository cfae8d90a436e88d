"""Student's t distribution and exact intervals of shares, by the incomplete beta function."""

from collections.abc import Callable
from math import exp, lgamma, log

_MOST_STEPS = 300
_HALVINGS = 50
_PRECISION = 1e-12
_TINY = 1e-300
_WIDEST = 1e6  # beyond this no quantile is looked for


def two_sided_p(t: float, freedom: int) -> float:
    """Return the probability of a value at least as far from 0 as ``t``, with ``freedom`` degrees (1 or more)."""
    return _incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def quantile(share: float, freedom: int) -> float:
    """Return the value below which ``share`` (over 0.5) of the distribution lies."""
    low, high = 0.0, _WIDEST
    while high - low > _PRECISION * max(1.0, high):
        middle = (low + high) / 2
        if two_sided_p(middle, freedom) / 2 > 1.0 - share:
            low = middle
        else:
            high = middle
    return high


def share_limits(hits: float, number: float, tail: float) -> tuple[float, float]:
    """Return Clopper and Pearson's limits of a share, each of which is passed with at most the probability ``tail``.

    ``hits`` of ``number`` need not be whole.
    """
    low = 0.0 if hits <= 0 else _where(lambda share: _incomplete_beta(share, hits, number - hits + 1) > tail)
    high = 1.0 if hits >= number else _where(lambda share: _incomplete_beta(share, hits + 1, number - hits) > 1 - tail)
    return low, high


def _where(is_above: Callable[[float], bool]) -> float:
    """Return the place between 0 and 1 from which on ``is_above`` holds."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_above(middle) else (middle, high)
    return high


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function (DLMF 8.17)."""
    if x <= 0.0 or x >= 1.0:
        return min(1.0, max(0.0, x))
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(1.0 - x))
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _fraction(x, a, b) / a
    return 1.0 - front * _fraction(1.0 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """Return the continued fraction of the incomplete beta function, by Lentz's method (DLMF 8.17.22)."""
    c, d = 1.0, 1.0 / _not_zero(1.0 - (a + b) * x / (a + 1.0))
    result = d
    for m in range(1, _MOST_STEPS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / _not_zero(1.0 + term * d)
            c = _not_zero(1.0 + term / c)
            result *= c * d
        if abs(c * d - 1.0) < _PRECISION:
            break
    return result


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
