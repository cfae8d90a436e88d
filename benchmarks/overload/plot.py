"""A run as a picture: good answers and the time to first token over the load, with overload control and without."""

from collections.abc import Callable, Sequence
from math import log10

from benchmarks.harness.svg import Drawing
from benchmarks.overload.report import AT_TIMES, OF_PEAK, Swept, heading
from benchmarks.overload.sweep import LATE, Step

WIDTH, PANEL, LEFT, GAP, HEAD = 400.0, 220.0, 56.0, 40.0, 56.0
WITH, WITHOUT, GOAL, GRID, INK = "#2563eb", "#c2410c", "#15803d", "#e5e7eb", "#111827"
MOST_TTFT_MS, LEAST_TTFT_MS = 30_000.0, 100.0


def svg(runs: Sequence[Swept]) -> str:
    """Return the picture: a row for each workload, good answers to the left, TTFT (p99, logarithmic) to the right."""
    drawing = Drawing(2 * (LEFT + WIDTH) + GAP, HEAD + len(runs) * (PANEL + 2 * GAP))
    drawing.text(LEFT, 22, "A gateway that is offered more calls than it can serve", size=15, colour=INK, bold=True)
    for number, (words, colour) in enumerate(
        (("with overload control", WITH), ("without", WITHOUT), ("the goal, at twice the capacity", GOAL))
    ):
        at = LEFT + 190 * number
        drawing.line((at, 38), (at + 22, 38), colour, 2.5)
        drawing.text(at + 28, 42, words)
    for number, swept in enumerate(runs):
        top = HEAD + number * (PANEL + 2 * GAP) + GAP
        _good(drawing, swept, LEFT, top)
        _ttft(drawing, swept, LEFT + WIDTH + GAP + LEFT / 2, top)
    return drawing.render()


def _good(drawing: Drawing, swept: Swept, left: float, top: float) -> None:
    drawing.text(left, top - 22, heading(swept), size=12, colour=INK, bold=True)
    drawing.text(left, top - 7, f"answers per second with a TTFT of at most {LATE:g} x that without load")
    highest = 1.1 * swept.peak_per_s

    def y(value: float) -> float:
        return top + PANEL * (1 - value / highest)

    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        drawing.line((left, y(share * swept.peak_per_s)), (left + WIDTH, y(share * swept.peak_per_s)), GRID)
        drawing.text(
            left - 6, y(share * swept.peak_per_s) + 4, f"{share * swept.peak_per_s:.0f}", size=10, anchor="end"
        )
    _curves(drawing, swept, left, top, lambda step: y(step.good_per_s))
    _goal(drawing, swept, left, y(OF_PEAK * swept.peak_per_s))


def _ttft(drawing: Drawing, swept: Swept, left: float, top: float) -> None:
    drawing.text(left, top - 7, "TTFT of answered calls, 99 % quantile")

    def y(ms: float) -> float:
        share = log10(min(MOST_TTFT_MS, max(LEAST_TTFT_MS, ms)) / LEAST_TTFT_MS) / log10(MOST_TTFT_MS / LEAST_TTFT_MS)
        return top + PANEL * (1 - share)

    for ms in (100, 300, 1000, 3000, 10_000, 30_000):
        drawing.line((left, y(ms)), (left + WIDTH, y(ms)), GRID)
        drawing.text(left - 6, y(ms) + 4, f"{ms / 1000:g} s", size=10, anchor="end")
    _curves(drawing, swept, left, top, lambda step: y(step.ttft_p99_ms or MOST_TTFT_MS))
    _goal(drawing, swept, left, y(LATE * swept.unloaded.ttft_p50_ms))


def _curves(drawing: Drawing, swept: Swept, left: float, top: float, y: Callable[[Step], float]) -> None:
    for times in sorted({each.times for each in (*swept.controlled, *swept.uncontrolled)}):
        drawing.text(_x(swept, left, times), top + PANEL + 14, f"{times:g} x", size=10, anchor="middle")
    for steps, colour in ((swept.uncontrolled, WITHOUT), (swept.controlled, WITH)):
        points = [(_x(swept, left, each.times), y(each)) for each in steps]
        drawing.path(points, colour, 2)
        for point in points:
            drawing.dot(*point, colour)


def _goal(drawing: Drawing, swept: Swept, left: float, y: float) -> None:
    x = _x(swept, left, AT_TIMES)
    drawing.line((x - 22, y), (x + 22, y), GOAL, 2.5)


def _x(swept: Swept, left: float, times: float) -> float:
    return left + WIDTH * times / max(each.times for each in (*swept.controlled, *swept.uncontrolled))
