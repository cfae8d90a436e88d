"""The ways to watch a race: drawn on a terminal, the answer alone for a pipe, or as JSON."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from gateway.calls import CallRecord
from gateway.cli.lanes import Lane, Lanes, Spectator
from gateway.cli.podium import podium
from gateway.cli.terminal import say
from gateway.cli.track import Track, clock_ms, state, summary
from gateway.terminal_text import visible, visible_json

if TYPE_CHECKING:
    from rich.live import Live

FRAMES_PER_S = 20


class View(Spectator, Protocol):
    """A spectator that shows the whole: each race from ``begins`` to ``ends``, and after several who won how often."""

    def begins(self, lanes: Lanes) -> None:
        """Watch these lanes."""

    def ends(self, lanes: Lanes) -> None:
        """Show how it ended, with an answer or without."""

    def sums_up(self, calls: Sequence[CallRecord]) -> None:
        """Show who won how often."""


class DrawnView:
    """Lanes that move, and below them the answer as it arrives; at the end both stay on the screen.

    Of several races (``brief``) only the lanes stay.
    """

    def __init__(self, *, brief: bool) -> None:
        from rich.console import Console  # noqa: PLC0415 - only for a person

        self._console = Console(highlight=False, markup=False, emoji=False)
        self._brief = brief
        self._live: Live | None = None

    def begins(self, lanes: Lanes) -> None:
        """Start to draw."""
        from rich.live import Live  # noqa: PLC0415 - as above

        track = Track(lanes, "tail")
        self._live = Live(
            get_renderable=lambda: track, console=self._console, refresh_per_second=FRAMES_PER_S, transient=True
        )
        self._live.start()

    def changed(self, lane: Lane, at_ms: float) -> None:
        """Wait for the next frame."""

    def said(self, text: str) -> None:
        """Wait for the next frame."""

    def ends(self, lanes: Lanes) -> None:
        """Leave the last picture, and below it the figures."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        self._console.print(Track(lanes, "none" if self._brief else "whole"))
        if lanes.record is not None:
            self._console.print(summary(lanes.record), style="bold")
        if self._brief:
            self._console.print()
        _complain(lanes)

    def sums_up(self, calls: Sequence[CallRecord]) -> None:
        """Draw the table."""
        self._console.print(podium(calls))


class PlainView:
    """The answer, and nothing else, on standard output; how it ended, if badly, on standard error.

    With ``progress``, what happens in the lanes is told on standard error too, line by line. Both may end on one
    terminal, as in ``holeshot race ... | cat``, so no line is written while the answer is.
    """

    def __init__(self, *, progress: bool = False) -> None:
        self._progress = progress
        self._held: list[str] = []
        self._answering = False

    def begins(self, lanes: Lanes) -> None:
        """Remember whose lanes they are."""
        self._lanes = lanes
        self._answering = False

    def changed(self, lane: Lane, at_ms: float) -> None:
        """Tell it, or keep it until the answer has ended."""
        if not self._progress:
            return
        words = "won" if lane.won and lane.record is None else state(lane, self._lanes)
        if lane.record is not None and lane.record.ttft_ms is None:
            words += f" after {clock_ms(lane, self._lanes):.0f} ms"
        self._held.append(f"{at_ms:8.0f} ms  {lane.deployment} ({lane.start.role}): {words}")
        if not self._answering:
            self._tell()

    def said(self, text: str) -> None:
        """Pass it on: as it is, unless it goes to a terminal."""
        self._answering = True
        sys.stdout.write(visible(text, lines=True) if sys.stdout.isatty() else text)
        sys.stdout.flush()

    def ends(self, lanes: Lanes) -> None:
        """End the line, and tell the figures."""
        if lanes.answer and not lanes.answer.endswith("\n"):
            self.said("\n")
        self._tell()
        if self._progress and lanes.record is not None:
            say(summary(lanes.record), err=True)
        _complain(lanes)

    def _tell(self) -> None:
        for line in self._held:
            say(line, err=True)
        self._held.clear()

    def sums_up(self, calls: Sequence[CallRecord]) -> None:
        """Tell the table."""
        from rich.console import Console  # noqa: PLC0415 - as above

        Console(stderr=True, highlight=False, markup=False, emoji=False).print(podium(calls))


class JsonView:
    """One JSON object a race, on a line of its own: the row of the call, its attempts, the answer."""

    def begins(self, lanes: Lanes) -> None:
        """Nothing to show yet."""

    def changed(self, lane: Lane, at_ms: float) -> None:
        """Nothing to show yet."""

    def said(self, text: str) -> None:
        """Nothing to show yet."""

    def ends(self, lanes: Lanes) -> None:
        """Write the line."""
        call: dict[str, Any] = {} if lanes.record is None else msgspec.to_builtins(lanes.record)
        winner = lanes.winner
        told = {
            "answer": lanes.answer,
            "reasoning": lanes.thoughts or None,
            "error": lanes.error,
            "winner": None if winner is None else winner.deployment,
            **call,
        }
        sys.stdout.buffer.write(visible_json(msgspec.json.encode(told).decode()).encode() + b"\n")
        sys.stdout.flush()

    def sums_up(self, calls: Sequence[CallRecord]) -> None:
        """Leave the counting to who reads the lines."""


def _complain(lanes: Lanes) -> None:
    if lanes.error is not None:
        say(f"holeshot: {lanes.error}", err=True)
