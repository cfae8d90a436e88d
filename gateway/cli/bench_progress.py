"""Shows how far a bench is, on standard error, if that is a terminal; errors are told in any case, once each."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gateway.bench.figures import measured
from gateway.bench.measuring import Measured
from gateway.bench.plan import WARM_UP, Plan, Turn
from gateway.bench.sample import Sample
from gateway.cli.terminal import say
from gateway.terminal_text import visible


@contextmanager
def watching(plan: Plan, done: Sequence[Sample]) -> Iterator["Watch"]:
    """Show the progress until the block ends. ``done``: what was measured before."""
    progress = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[spent]}", markup=False),
        console=Console(stderr=True, markup=False, emoji=False),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
    with progress:
        task = progress.add_task("warming up", total=plan.requests, completed=len(measured(done)), spent="")
        yield Watch(plan, progress, task)


class Watch:
    """Is told of what happens, and shows it."""

    def __init__(self, plan: Plan, progress: Progress, task: object) -> None:
        self._plan = plan
        self._progress = progress
        self._task = task
        self._told: set[tuple[str, str]] = set()

    def turn(self, turn: Turn) -> None:
        """Show whose turn it is."""
        round_ = turn.keys[0].round
        at = "warming up" if round_ == WARM_UP else f"round {round_ + 1} of {self._plan.rounds}"
        level = f" x {turn.concurrency}" if turn.concurrency > 1 else ""
        self._update(description=visible(f"{at}: {turn.contender.name}{level}"))

    def measured(self, measured: Measured, spent_usd: float) -> None:
        """Count a finished request; tell of the first error of each kind."""
        sample = measured.sample
        self._update(advance=0 if sample.key.round == WARM_UP else 1, spent=f"at most ${spent_usd:.4f}")
        place = sample.key.deployment, sample.error_kind or ""
        if sample.error_kind is not None and place not in self._told:
            self._told.add(place)
            self._tell(f"note: {sample.key.deployment}: {sample.error_kind}: {measured.message}")

    def waits(self, deployment: str, seconds: float) -> None:
        """Tell of a wait for a rate limit."""
        self._update(description=visible(f"{deployment} is at its rate limit: waiting {seconds:.0f} s"))

    def _update(self, **changes: object) -> None:
        self._progress.update(self._task, **changes)  # type: ignore[arg-type] # rich's own ids and fields

    def _tell(self, text: str) -> None:
        if self._progress.disable:
            say(text, err=True)
        else:
            self._progress.console.print(visible(text))
