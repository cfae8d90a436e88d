"""A run as a table, as Markdown, and beside its goal."""

from collections.abc import Iterator, Sequence

import msgspec
from rich.table import Table

from benchmarks.overload.company import CALM
from benchmarks.overload.sweep import LATE, Step, Unloaded, Workload

AT_TIMES = 2.0  # times the capacity, at which the goal counts
OF_PEAK = 0.9  # that the good answers must reach there
SURELY_TOO_MUCH, BUSY = 1.5, 0.85  # times the capacity; of its core that a gateway uses then
_COLUMNS = (
    "x capacity", "offered/s", "good/s", "answered/s", "refused/s", "TTFT p50", "TTFT p99", "503 p50", "503 p99",
    "loop delay", "in flight", "core",
)  # fmt: skip


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


def tables(swept: Swept) -> Iterator[Table]:
    """Yield a table for each sweep."""
    for name, steps in (("with overload control", swept.controlled), ("without", swept.uncontrolled)):
        made = Table(title=f"{heading(swept)}: {name}", title_justify="left")
        for column in _COLUMNS:
            made.add_column(column, justify="right")
        for step in steps:
            made.add_row(*_cells(step))
        yield made


def as_markdown(swept: Swept) -> str:
    """Return both sweeps for a document."""
    lines = [f"**{heading(swept)}**", "", f"| | {' | '.join(_COLUMNS)} |", f"|---|{'--:|' * len(_COLUMNS)}"]
    for name, steps in (("with", swept.controlled), ("without", swept.uncontrolled)):
        lines += [f"| {name} | {' | '.join(_cells(step))} |" for step in steps]
    return "\n".join(lines)


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
