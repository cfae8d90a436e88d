"""A run as a table, beside its goal, and as a picture."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import log10
from typing import NamedTuple

import msgspec

from benchmarks.harness.report import Grid
from benchmarks.harness.svg import Drawing
from benchmarks.overload.sweep import CALM, LATE, Step, Unloaded, Workload

AT_TIMES = 2.0  # times the capacity, at which the goal counts
OF_PEAK = 0.9  # that the good answers must reach there
SURELY_TOO_MUCH, BUSY = 1.5, 0.85  # times the capacity; of its core that a gateway uses then
_COLUMNS = (
    "x capacity", "offered/s", "good/s", "answered/s", "refused/s", "TTFT p50", "TTFT p99", "503 p50", "503 p99",
    "loop delay", "in flight", "core",
)  # fmt: skip
WIDTH, PANEL, LEFT, GAP, HEAD = 400.0, 220.0, 56.0, 40.0, 56.0
WITH, WITHOUT, GOAL, GRID, INK = "#2563eb", "#c2410c", "#15803d", "#e5e7eb", "#111827"
MOST_TTFT_MS, LEAST_TTFT_MS = 30_000.0, 100.0


class Swept(msgspec.Struct, frozen=True):
    """One workload: with overload control, and the same load without it. Rates are per second, times in ms."""

    workload: Workload
    unloaded: Unloaded
    capacity_per_s: float
    controlled: Sequence[Step]
    uncontrolled: Sequence[Step]

    @property
    def peak_per_s(self) -> float:
        """The most good answers of any step of either sweep."""
        return max(each.good_per_s for each in (*self.controlled, *self.uncontrolled))

    @property
    def judged(self) -> Step | None:
        """The step at which the goal counts."""
        return next((each for each in self.controlled if each.times == AT_TIMES), None)


def missed(swept: Swept) -> Iterator[str]:
    """Yield each part of the goal that was missed, in words."""
    step = swept.judged
    if step is None:
        return
    share = step.good_per_s / swept.peak_per_s
    if share < OF_PEAK:
        yield f"{swept.workload.name}: at {AT_TIMES:g} x capacity {share:.0%} of the peak are good, not {OF_PEAK:.0%}"
    late_ms = LATE * swept.unloaded.ttft_p50_ms
    if step.ttft_p99_ms is None or step.ttft_p99_ms > late_ms:
        found = "no answer" if step.ttft_p99_ms is None else f"{step.ttft_p99_ms:.0f} ms"
        yield f"{swept.workload.name}: at {AT_TIMES:g} x capacity the TTFT's p99 is {found}, not {late_ms:.0f} ms"


def doubts(swept: Swept) -> Iterator[str]:
    """Yield the steps whose figures say little: others were at work, or the gateway did not have all of its core."""
    for step in (*swept.controlled, *swept.uncontrolled):
        if step.others > CALM:
            yield f"{swept.workload.name}, {step.times:g} x: others used {step.others:.2f} cores"
        elif step.times >= SURELY_TOO_MUCH and step.seen.core < BUSY:
            yield f"{swept.workload.name}, {step.times:g} x: the gateway had {step.seen.core:.0%} of its core"


def heading(swept: Swept) -> str:
    """Return what was asked for, and what the gateway can serve."""
    calm = swept.unloaded
    return (
        f"{swept.workload.name}; capacity {swept.capacity_per_s:.0f}/s, TTFT without load {calm.ttft_p50_ms:.0f} ms"
        f" (p99 {calm.ttft_p99_ms:.0f})"
    )


def tables(swept: Swept) -> Iterator[Grid]:
    """Yield a table for each sweep."""
    for name, steps in (("with overload control", swept.controlled), ("without", swept.uncontrolled)):
        yield Grid(f"{heading(swept)}: {name}", _COLUMNS, list(map(_cells, steps)), words=0)


def _cells(step: Step) -> list[str]:
    return [
        f"{step.times:g}",
        *(f"{each:.0f}" for each in (step.offered_per_s, step.good_per_s, step.answered_per_s, step.refused_per_s)),
        *(
            "" if each is None else f"{each:.0f} ms"
            for each in (step.ttft_p50_ms, step.ttft_p99_ms, step.refusal_p50_ms, step.refusal_p99_ms)
        ),
        "?" if step.seen.loop_delay_s is None else f"{1000 * step.seen.loop_delay_s:.0f} ms",
        "?" if step.seen.in_flight is None else f"{step.seen.in_flight:.0f}",
        f"{step.seen.core:.0%}",
    ]


def svg(runs: Sequence[Swept]) -> str:
    """Return the picture: a row for each workload, good answers to the left, TTFT (p99, logarithmic) to the right."""
    drawing = Drawing(2 * (LEFT + WIDTH) + GAP, HEAD + len(runs) * (PANEL + 2 * GAP))
    drawing.text(LEFT, 22, "A gateway that is offered more calls than it can serve", size=15, colour=INK, bold=True)
    legend = (("with overload control", WITH), ("without", WITHOUT), ("the goal, at twice the capacity", GOAL))
    for number, (words, colour) in enumerate(legend):
        at = LEFT + 190 * number
        drawing.path([(at, 38), (at + 22, 38)], colour, 2.5)
        drawing.text(at + 28, 42, words)
    for number, swept in enumerate(runs):
        top = HEAD + number * (PANEL + 2 * GAP) + GAP
        drawing.text(LEFT, top - 22, heading(swept), size=12, colour=INK, bold=True)
        _good(drawing, swept, (LEFT, top))
        _ttft(drawing, swept, (LEFT + WIDTH + GAP + LEFT / 2, top))
    return drawing.render()


def _good(drawing: Drawing, swept: Swept, corner: tuple[float, float]) -> None:
    peak = swept.peak_per_s
    ticks = {share * peak: f"{share * peak:.0f}" for share in (0.0, 0.25, 0.5, 0.75, 1.0)}
    words = f"answers per second with a TTFT of at most {LATE:g} x that without load"
    curve = Curve(words, lambda step: step.good_per_s, lambda per_s: per_s / (1.1 * peak), ticks, OF_PEAK * peak)
    _panel(drawing, swept, corner, curve)


def _ttft(drawing: Drawing, swept: Swept, corner: tuple[float, float]) -> None:
    def height(ms: float) -> float:
        return log10(min(MOST_TTFT_MS, max(LEAST_TTFT_MS, ms)) / LEAST_TTFT_MS) / log10(MOST_TTFT_MS / LEAST_TTFT_MS)

    ticks = {float(ms): f"{ms / 1000:g} s" for ms in (100, 300, 1000, 3000, 10_000, 30_000)}
    words, goal = "TTFT of answered calls, 99 % quantile", LATE * swept.unloaded.ttft_p50_ms
    _panel(drawing, swept, corner, Curve(words, lambda step: step.ttft_p99_ms or MOST_TTFT_MS, height, ticks, goal))


class Curve(NamedTuple):
    """What is drawn of a step, how high that is (0 to 1), at which values there are lines, and the goal."""

    words: str
    value: Callable[[Step], float]
    height: Callable[[float], float]
    ticks: Mapping[float, str]
    goal: float


def _panel(drawing: Drawing, swept: Swept, corner: tuple[float, float], curve: Curve) -> None:
    left, top = corner
    every = sorted({each.times for each in (*swept.controlled, *swept.uncontrolled)})

    def at(times: float, value: float) -> tuple[float, float]:
        return left + WIDTH * times / every[-1], top + PANEL * (1 - curve.height(value))

    drawing.text(left, top - 7, curve.words)
    for value, label in curve.ticks.items():
        drawing.path([at(0.0, value), at(every[-1], value)], GRID, 1)
        drawing.text(left - 6, at(0.0, value)[1] + 4, label, size=10, anchor="end")
    for times in every:
        drawing.text(at(times, 0.0)[0], top + PANEL + 14, f"{times:g} x", size=10, anchor="middle")
    for steps, colour in ((swept.uncontrolled, WITHOUT), (swept.controlled, WITH)):
        points = [at(each.times, curve.value(each)) for each in steps]
        drawing.path(points, colour, 2)
        for point in points:
            drawing.dot(*point, colour)
    x, y = at(AT_TIMES, curve.goal)
    drawing.path([(x - 22, y), (x + 22, y)], GOAL, 2.5)
