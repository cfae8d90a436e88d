"""Plots as inline SVG, as wide as their place: positions are percentages, so that text keeps its size on a phone.

Colours are classes of the page's style (``series-0`` to ``series-7``), so they follow light and dark.
"""

from collections.abc import Callable, Mapping, Sequence
from html import escape

import msgspec

from gateway.bench.scales import Scale, scale_of

SERIES = 8  # colours
_ROW_PX = 22
_END_PX = 10
_CURVE_PX = 240
_AXIS_PX = 22
_LAST = 96.0  # percent: a tick's name beyond ends there instead of being centred
_FIRST = 4.0
_ROOM = 13.0  # percent: of a tick's name, on a phone


class Mark(msgspec.Struct, frozen=True):
    """A figure in a row: a dot, its interval, and a further tick. ``title`` is shown on pointing at it."""

    value: float
    title: str
    low: float | None = None
    high: float | None = None
    tick: float | None = None


class Row(msgspec.Struct, frozen=True):
    """A row of a plot of intervals; ``series`` is its colour."""

    label: str
    series: int
    mark: Mark | None


class Curve(msgspec.Struct, frozen=True):
    """A line of a plot; ``points`` in the units of the axes."""

    label: str
    series: int
    points: Sequence[tuple[float, float]]
    is_stepped: bool = False


Named = Callable[[float], str]


def intervals(groups: Mapping[str, Sequence[Row]], named: Named, *, most: float | None = None) -> str:
    """Return rows of dots with intervals, in groups, on one axis whose ticks are ``named``."""
    marks = [row.mark for rows in groups.values() for row in rows if row.mark is not None]
    ends = [value for mark in marks for value in (mark.value, mark.low, mark.high, mark.tick) if value is not None]
    scale = scale_of(ends, most=most)
    parts = ['<div class="plot">']
    for title, rows in groups.items():
        if title:
            parts.append(f'<p class="group">{escape(title)}</p>')
        parts += [_row(row, scale, named) for row in rows]
    parts.append(f'<div class="row axis"><span></span>{_axis(scale, named)}</div></div>')
    return "".join(parts)


def curves(lines: Sequence[Curve], names: tuple[Named, Named], *, most: float | None = None, said: str) -> str:
    """Return lines over an axis; ``names`` name the ticks of x and y, ``said`` is what a screen reader says."""
    x = scale_of([point[0] for line in lines for point in line.points])
    y = scale_of([point[1] for line in lines for point in line.points], most=most)
    grid = labels = ""
    for tick in y.ticks:
        down = round(100.0 - y.at(tick), 3)
        grid += f'<line class="grid" x1="0" x2="100%" y1="{down}%" y2="{down}%"/>'
        beside = 12 if y.at(tick) > _LAST else -3  # below its line at the top, else above it
        if y.at(tick) > 0:
            labels += f'<text class="tick" x="2" y="{down}%" dy="{beside}">{escape(names[1](tick))}</text>'
    drawn = "".join(_curve(line, x, y) for line in lines)
    return (
        f'<div class="plot"><svg class="curves" role="img" aria-label="{escape(said)}" height="{_CURVE_PX}">{grid}'
        f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" width="100%" height="100%">{drawn}</svg>{labels}</svg>'
        f"{_axis(x, names[0])}{legend([(line.label, line.series) for line in lines])}</div>"
    )


def legend(entries: Sequence[tuple[str, int]]) -> str:
    """Return the names of colours."""
    items = (f'<li class="series-{series % SERIES}"><i></i>{escape(label)}</li>' for label, series in entries)
    return f'<ul class="legend">{"".join(items)}</ul>'


def _row(row: Row, scale: Scale, named: Named) -> str:
    colour = f"series-{row.series % SERIES}"
    label = f'<span class="label">{escape(row.label)}</span>'
    if row.mark is None:
        return f'<div class="row {colour}">{label}<svg height="{_ROW_PX}"></svg><b class="value">no figure</b></div>'
    mark = row.mark
    drawn = "".join(_upright("grid", scale.at(tick), _ROW_PX) for tick in scale.ticks)
    at = scale.at(mark.value)
    if mark.low is not None and mark.high is not None:
        left, width = scale.at(mark.low), max(0.2, scale.at(mark.high) - scale.at(mark.low))
        drawn += f'<rect class="range" x="{left}%" width="{width:.3f}%" y="{_ROW_PX / 2 - 5}" height="10" rx="3"/>'
    if mark.tick is not None:
        far = scale.at(mark.tick)
        drawn += f'<line class="far" x1="{at}%" x2="{far}%" y1="{_ROW_PX / 2}" y2="{_ROW_PX / 2}"/>'
        drawn += _upright("end", far, _END_PX)
    drawn += f'<circle cx="{at}%" cy="{_ROW_PX / 2}" r="4"/>'
    said = escape(f"{row.label}: {mark.title}")
    return (
        f'<div class="row {colour}">{label}<svg role="img" aria-label="{said}" height="{_ROW_PX}"><title>{said}</title>'
        f'{drawn}</svg><b class="value">{escape(named(mark.value))}</b></div>'
    )


def _upright(kind: str, at: float, height: float) -> str:
    """Return an upright line in the middle of a row."""
    top, bottom = (_ROW_PX - height) / 2, (_ROW_PX + height) / 2
    return f'<line class="{kind}" x1="{at}%" x2="{at}%" y1="{top}" y2="{bottom}"/>'


def _axis(scale: Scale, named: Named) -> str:
    """Return the names of the ticks; those without room on a phone are left out."""
    ticks = ""
    before = -_ROOM
    for tick in scale.ticks:
        at = scale.at(tick)
        is_crowded = at - before < _ROOM or (100.0 - at < _ROOM and tick != scale.ticks[-1])
        if is_crowded:
            continue
        before = at
        anchor = "start" if at < _FIRST else "end" if at > _LAST else "middle"
        ticks += f'<text class="tick" x="{at}%" y="14" text-anchor="{anchor}">{escape(named(tick))}</text>'
    return f'<svg aria-hidden="true" height="{_AXIS_PX}">{ticks}</svg>'


def _curve(line: Curve, x: Scale, y: Scale) -> str:
    places: list[tuple[float, float]] = []
    for at, value in line.points:
        if line.is_stepped and places:
            places.append((x.at(at), places[-1][1]))
        places.append((x.at(at), round(100.0 - y.at(value), 3)))
    points = " ".join(f"{left:g},{top:g}" for left, top in places)
    return f'<polyline class="curve series-{line.series % SERIES}" points="{points}"/>'
