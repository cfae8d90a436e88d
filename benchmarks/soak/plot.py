"""A soak as a picture: what was sampled each second, quarter by quarter, with the reloads."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import ceil, log10

import msgspec

from benchmarks.harness.svg import Drawing
from benchmarks.soak.growth import growth
from benchmarks.soak.samples import Sample

WIDTH, LEFT, RIGHT, HEAD, PANEL, GAP = 960.0, 64.0, 24.0, 56.0, 96.0, 44.0
LINE, MEDIAN, RELOAD, BAND, GRID, INK = "#2563eb", "#c2410c", "#d4b483", "#f3f4f6", "#e5e7eb", "#111827"
_TICKS = 8  # of time, at most


class Panel(msgspec.Struct, frozen=True):
    """One curve."""

    title: str
    read: Callable[[Sample], float]
    from_zero: bool = True


PANELS = (
    Panel("resident memory, MB", lambda sample: sample.rss_mb, from_zero=False),
    Panel("open descriptors", lambda sample: sample.descriptors),
    Panel("tasks of the event loop", lambda sample: sample.tasks),
    Panel("calls not in SQL yet", lambda sample: sample.pending),
    Panel("spool on disk, KB", lambda sample: sample.spool_kb),
)


def svg(samples: Sequence[Sample], reloads_s: Sequence[float], title: str) -> str:
    """Return the picture: the second and the last quarter shaded, with their medians; a reload is a vertical line."""
    panels = [(each.title, [each.read(sample) for sample in samples], each) for each in PANELS]
    drawing = Drawing(WIDTH, HEAD + (len(panels) + 1) * (PANEL + GAP) + GAP / 2)
    drawing.text(LEFT, 24, title, size=15, colour=INK, bold=True)
    drawing.text(LEFT, 42, "shaded: the second and the last quarter, with their medians; vertical lines: reloads")
    if len(samples) < 2:
        return drawing.render()
    time = _Axis(samples[0].at_s, max(samples[-1].at_s, samples[0].at_s + 1), LEFT, WIDTH - RIGHT)
    rates = _rates(samples)
    drawn = [*panels, ("calls ended per second", rates, None)]
    for number, (name, values, panel) in enumerate(drawn):
        top = HEAD + number * (PANEL + GAP) + 24
        least = min(values) if panel is not None and not panel.from_zero else 0.0
        height = _Axis(*_bounds(least, max(values)), top + PANEL, top)
        for begin, end in ((0.25, 0.5), (0.75, 1.0)):
            drawing.band(time.at(begin), top, time.at(end) - time.at(begin), PANEL, BAND)
        drawing.text(LEFT, top - 7, name, size=12, colour=INK, bold=True)
        for value in (height.low, (height.low + height.high) / 2, height.high):
            drawing.line((LEFT, height(value)), (WIDTH - RIGHT, height(value)), GRID)
            drawing.text(LEFT - 8, height(value) + 4, _number(value), size=10, anchor="end")
        for reload_s in reloads_s:
            drawing.line((time(reload_s), top), (time(reload_s), top + PANEL), RELOAD)
        drawing.path([(time(sample.at_s), height(value)) for sample, value in zip(samples, values, strict=True)], LINE)
        grown = None if panel is None else growth(samples, panel.read)
        if grown is not None:
            for value, begin in ((grown.second, 0.25), (grown.last, 0.75)):
                drawing.line((time.at(begin), height(value)), (time.at(begin + 0.25), height(value)), MEDIAN, 2)
        for second in _ticks(time.low, time.high):
            drawing.text(time(second), top + PANEL + 14, f"{second:g} s", size=10, anchor="middle")
    return drawing.render()


class _Axis:
    """Pixels of values from ``low`` to ``high``."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.low, self.high = low, high
        self._start, self._end = start, end

    def __call__(self, value: float) -> float:
        return self.at((value - self.low) / (self.high - self.low))

    def at(self, share: float) -> float:
        return self._start + share * (self._end - self._start)


def _rates(samples: Sequence[Sample]) -> list[float]:
    """Return the calls per second that ended before each sample, since the one before it."""
    rates = [0.0]
    for before, sample in pairwise(samples):
        rates.append((sample.calls - before.calls) / max(1e-9, sample.at_s - before.at_s))
    return rates


def _bounds(low: float, high: float) -> tuple[float, float]:
    """Return round bounds around values, which are never the same."""
    step = 10 ** ceil(log10(max(high - low, high * 0.05, 1.0))) / 10
    return step * (low // step), step * max(ceil(high / step), low // step + 1)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or float(value).is_integer() else f"{value:.1f}"


def _ticks(low: float, high: float) -> list[float]:
    step = 1.0
    for factor in (2, 2.5, 2) * 10:
        if (high - low) / step <= _TICKS:
            break
        step *= factor
    return [step * number for number in range(ceil(low / step), int(high / step) + 1)]
