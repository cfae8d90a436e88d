"""The axes of plots: where a value is, in percent of the width, and the ticks that are named."""

from collections.abc import Iterable
from math import ceil, floor, log10

import msgspec

_WIDE = 20.0  # from this ratio of the largest to the smallest value on, an axis is logarithmic
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_MOST_TICKS = 5
_FEW_DECADES = 2.2  # up to this many, 2 and 5 are named too


class Scale(msgspec.Struct, frozen=True):
    """An axis from ``low`` to ``high``."""

    low: float
    high: float
    ticks: tuple[float, ...]
    is_log: bool = False

    def at(self, value: float) -> float:
        """Return the place of ``value`` in percent of the axis."""
        if self.is_log:
            value = max(value, self.low)
            place = (log10(value) - log10(self.low)) / (log10(self.high) - log10(self.low))
        else:
            place = (value - self.low) / (self.high - self.low)
        return round(100.0 * min(1.0, max(0.0, place)), 3)


def scale_of(values: Iterable[float], *, most: float | None = None) -> Scale:
    """Return an axis on which all ``values`` are; from 0 unless they are too different. ``most``: it ends there."""
    known = sorted(values)
    high = known[-1] if known else 1.0
    positive = [value for value in known if value > 0]
    if most is None and positive and len(positive) == len(known) and high / positive[0] > _WIDE:
        return _logarithmic(positive[0], high)
    high = most if most is not None else high or 1.0
    step = _step(high)
    ticks = [step * number for number in range(ceil(high / step - 1e-9) + 1)]
    return Scale(0.0, max(ticks[-1], high), tuple(tick for tick in ticks if tick <= high * 1.0001 or most is None))


def _logarithmic(low: float, high: float) -> Scale:
    bottom, top = 10.0 ** floor(log10(low)), 10.0 ** ceil(log10(high))
    digits = (1, 2, 5) if log10(high / low) <= _FEW_DECADES else (1,)
    marks = [10.0**power * digit for power in range(round(log10(bottom)), round(log10(top)) + 1) for digit in digits]
    start = max((mark for mark in marks if mark <= low), default=bottom)
    end = min((mark for mark in marks if mark >= high), default=top)
    return Scale(start, end, tuple(mark for mark in marks if start <= mark <= end), is_log=True)


def _step(high: float) -> float:
    size = 10.0 ** floor(log10(high / _MOST_TICKS)) if high > 0 else 1.0
    return next((size * step for step in _STEPS if high / (size * step) <= _MOST_TICKS), size * 10)
