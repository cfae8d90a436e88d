"""A figure as a row: the median over rounds with its extremes, beside what was promised."""

from collections.abc import Sequence
from statistics import median

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One figure. ``low`` and ``high`` are the extremes over rounds; ``detail`` says what it is made of.

    ``value`` is None when it could not be measured; then the detail says why. ``broken``: because something went wrong.
    """

    title: str
    value: float | None
    low: float | None = None
    high: float | None = None
    unit: str = ""
    at_most: float | None = None
    detail: str = ""
    broken: bool = False

    @property
    def reached(self) -> bool | None:
        """Whether it is as good as promised; None when nothing was, or nothing was measured."""
        return None if self.at_most is None or self.value is None else self.value <= self.at_most


def row(title: str, values: Sequence[float], unit: str, *, at_most: float | None = None, detail: str = "") -> Row:
    """Return the row of one figure that was measured several times."""
    return Row(
        title=title,
        value=median(values),
        low=min(values),
        high=max(values),
        unit=unit,
        at_most=at_most,
        detail=detail,
    )


def skipped(title: str, what: object) -> Row:
    """Return the row of a figure that needs something this machine does not have."""
    return Row(title=title, value=None, detail=f"skipped: needs {what}")


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that ``share`` of ``values`` do not exceed."""
    ordered = sorted(values)
    return ordered[round((len(ordered) - 1) * share)]
