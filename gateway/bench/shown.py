"""Figures as text, the same on the terminal and in the report."""

from math import floor, log10

from gateway.bench.figures import METRICS, Unit
from gateway.bench.resampling import Estimate

UNKNOWN = "–"  # noqa: RUF001 - a dash
_LARGE = 100.0
_UNITS: dict[str, Unit] = {metric.name: metric.unit for metric in METRICS}


def unit_of(name: str) -> Unit | None:
    """Return the unit of a metric."""
    return _UNITS.get(name)


def shown(name: str, estimate: Estimate | None) -> str:
    """Return a figure with its interval: ``123 (110 to 140)``."""
    if estimate is None or estimate.value is None:
        return UNKNOWN
    if estimate.low is None or estimate.high is None:
        return number(name, estimate.value)
    return f"{number(name, estimate.value)} ({number(name, estimate.low)} to {number(name, estimate.high)})"


def number(name: str, value: float) -> str:
    """Return the value of a metric, with three digits or so."""
    if unit_of(name) == "share":
        return f"{value * 100:.1f}%" if 0 < value < 1 else f"{value * 100:.0f}%"
    size = abs(value)
    if size >= _LARGE or not size:
        return f"{value:.0f}"
    return f"{value:.{2 - floor(log10(size))}f}"
