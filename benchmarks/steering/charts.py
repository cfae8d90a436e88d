"""The plots: how every policy spreads in every world, what it pays, and what happens when the weather turns."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil, log10

from benchmarks.harness.svg import Drawing
from benchmarks.steering.contest import (
    COMPLETION,
    COMPLETION_ORACLE,
    COMPLETION_PEAK,
    ECONOMY,
    ORACLE,
    PEAK,
    RACES,
    Standing,
)
from benchmarks.steering.figures import FAILED_S, Figures, Spread
from benchmarks.steering.race import Result

OURS, BETWEEN, BEST, OTHERS = "#0b6e4f", "#2563eb", "#c2410c", "#8a8f98"
GRID, INK = "#e5e7eb", "#111827"
COLUMNS = 4
PANEL_WIDTH, ROW_HEIGHT, LABELS, HEAD, GAP = 360.0, 15.0, 148.0, 44.0, 22.0
BIN_S = 10.0
MIN_BINS = 4
TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)


def draw(standings: Sequence[Standing]) -> dict[str, str]:
    """Return SVG texts by name."""
    charts = {
        "ttft": _spreads(standings, "Time to first token: p50, p95, p99 (s)", lambda figures: figures.ttft),
        "total": _spreads(standings, "Time to the whole answer: p50, p95, p99 (s)", lambda figures: figures.total),
    }
    for standing in standings:
        first = (PEAK.label, ECONOMY.label, RACES.label, ORACLE.label)
        whole = (COMPLETION_PEAK.label, COMPLETION.label, COMPLETION_ORACLE.label)
        charts[f"{standing.world}-over-time"] = _over_time(standing, first, whole)
    return charts


def _spreads(standings: Sequence[Standing], title: str, of: Callable[[Figures], Spread]) -> str:
    """Draw a panel per world: a row per policy, its quantiles as dots on a common logarithmic scale."""
    spreads = [of(figures) for standing in standings for figures in standing.figures.values()]
    low, high = min(each.p50 for each in spreads) * 0.9, min(FAILED_S, max(each.p99 for each in spreads)) * 1.1
    tallest = max(len(standing.figures) for standing in standings)
    columns = min(COLUMNS, len(standings))
    height = HEAD + tallest * ROW_HEIGHT + GAP
    drawing = Drawing(columns * PANEL_WIDTH + GAP, 30 + ceil(len(standings) / columns) * height)
    drawing.text(GAP, 22, title, size=15, colour=INK, bold=True)
    for number, standing in enumerate(standings):
        left, top = GAP + number % columns * PANEL_WIDTH, 30 + number // columns * height
        scale = _Log(low, high, left + LABELS, left + PANEL_WIDTH - GAP)
        drawing.text(left, top + 18, standing.world, size=13, colour=INK, bold=True)
        bottom = top + HEAD + len(standing.figures) * ROW_HEIGHT
        for tick in scale.ticks():
            drawing.line((scale(tick), top + HEAD - 8), (scale(tick), bottom), GRID)
            drawing.text(scale(tick), top + HEAD - 12, f"{tick:g}", size=9, anchor="middle")
        for row, (label, figures) in enumerate(standing.figures.items()):
            _spread_row(drawing, scale, label, of(figures), (left, top + HEAD + (row + 0.5) * ROW_HEIGHT))
    return drawing.render()


def _spread_row(drawing: Drawing, scale: "_Log", label: str, spread: Spread, at: tuple[float, float]) -> None:
    (left, y), colour = at, _colour(label)
    drawing.text(left, y + 4, label, size=10, colour=colour, bold=colour == OURS)
    drawing.line((scale(spread.p50), y), (scale(spread.p99), y), colour, 1.5)
    drawing.dot(scale(spread.p50), y, colour, 3)
    drawing.dot(scale(spread.p95), y, colour, 3, fill="white")
    drawing.line((scale(spread.p99), y - 3.5), (scale(spread.p99), y + 3.5), colour, 1.5)


def _over_time(standing: Standing, first: Sequence[str], whole: Sequence[str]) -> str:
    """Draw the mean of each ten seconds: first tokens above, whole answers below."""
    width, height = 900.0, 230.0
    drawing = Drawing(width, 2 * height + 30)
    drawing.text(GAP, 22, f"{standing.world}: mean of each {BIN_S:g} s, first seed", size=15, colour=INK, bold=True)
    for number, (what, labels, figure) in enumerate(
        (("TTFT, s", first, _ttft_s), ("whole answer, s", whole, _total_s))
    ):
        lines = {label: _binned(standing.results[label], figure) for label in labels}
        _lines(drawing, what, lines, top=30 + number * height, width=width, height=height)
    return drawing.render()


def _lines(
    drawing: Drawing,
    what: str,
    lines: Mapping[str, list[tuple[float, float]]],
    *,
    top: float,
    width: float,
    height: float,
) -> None:
    points = [point for line in lines.values() for point in line]
    begin, end = min(x for x, _ in points), max(x for x, _ in points)
    scale = _Log(
        max(0.05, min(y for _, y in points) * 0.9), max(y for _, y in points) * 1.1, top + height - 30, top + 30
    )
    left, right = 60.0, width - 20.0
    drawing.text(GAP, top + 16, what, size=12, colour=INK, bold=True)
    for tick in scale.ticks():
        drawing.line((left, scale(tick)), (right, scale(tick)), GRID)
        drawing.text(left - 6, scale(tick) + 4, f"{tick:g}", size=10, anchor="end")
    for number, (label, line) in enumerate(lines.items()):
        colour = BETWEEN if label == ECONOMY.label else _colour(label)
        across = [(left + (x - begin) / max(1.0, end - begin) * (right - left), scale(y)) for x, y in line]
        drawing.path(across, colour)
        drawing.text(180 + number * 170, top + 16, label, size=11, colour=colour, bold=True)
    for share in range(6):
        x = left + share / 5 * (right - left)
        drawing.text(x, top + height - 12, f"{begin + share / 5 * (end - begin):.0f} s", size=10, anchor="middle")


def _binned(results: Sequence[Result], figure: Callable[[Result], float]) -> list[tuple[float, float]]:
    """Return (second, mean) by bins of ten seconds, wider where calls are rare."""
    span_s = results[-1].at_s - results[0].at_s
    bin_s = max(BIN_S, span_s / max(MIN_BINS, len(results) / 20))
    bins: dict[int, list[float]] = {}
    for result in results:
        bins.setdefault(int(result.at_s // bin_s), []).append(figure(result))
    return [(number * bin_s, sum(values) / len(values)) for number, values in sorted(bins.items())]


def _ttft_s(result: Result) -> float:
    return FAILED_S if result.ttft_s is None else result.ttft_s


def _total_s(result: Result) -> float:
    return FAILED_S if result.total_s is None else result.total_s


class _Log:
    """A logarithmic scale from seconds to pixels."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self._low, self._high = low, high
        self._start, self._end = start, end

    def __call__(self, value: float) -> float:
        share = log10(min(self._high, max(self._low, value)) / self._low) / log10(self._high / self._low)
        return self._start + share * (self._end - self._start)

    def ticks(self) -> list[float]:
        return [tick for tick in TICKS if self._low <= tick <= self._high]


def _colour(label: str) -> str:
    if label.startswith(RACES.name):
        return OURS
    return BEST if label.startswith(ORACLE.name) else OTHERS
