"""The outputs of a race: drawn on a terminal, only the answer for a pipe, or JSON."""

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
    """A spectator that shows everything: each race from ``begins`` to ``ends``, and a table after several."""

    def begins(self, lanes: Lanes) -> None:
        """Show these lanes."""

    def ends(self, lanes: Lanes) -> None:
        """Show the end of the race, with or without an answer."""

    def sums_up(self, calls: Sequence[CallRecord]) -> None:
        """Show the wins of each deployment."""


class DrawnView:
    """Draws the lanes and the arriving answer; at the end both stay on the screen.

    With several races (``brief``) only the lanes stay.
    """

    def __init__(self, *, brief: bool) -> None:
        from rich.console import Console  # noqa: PLC0415 - only on a terminal

        self._console = Console(highlight=False, markup=False, emoji=False)
        self._brief = brief
        self._live: Live | None = None

    def begins(self, lanes: Lanes) -> None:
        """Start drawing."""
        from rich.live import Live  # noqa: PLC0415 - as above

        track = Track(lanes, "tail")
        self._live = Live(
            get_renderable=lambda: track, console=self._console, refresh_per_second=FRAMES_PER_S, transient=True
        )
        self._live.start()

    def changed(self, lane: Lane, at_ms: float) -> None:
        """Do nothing: the next frame shows it."""

    def text_added(self, text: str) -> None:
        """Do nothing: the next frame shows it."""

    def ends(self, lanes: Lanes) -> None:
        """Leave the last picture, with the figures below it."""
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
    """Prints only the answer on standard output, and errors on standard error.

    With ``progress``, events of the lanes are printed on standard error, line by line. Both may be the same terminal,
    as in ``holeshot race ... | cat``, so no line is printed while the answer is written.
    """

    def __init__(self, *, progress: bool = False) -> None:
        self._progress = progress
        self._held: list[str] = []
        self._answering = False

    def begins(self, lanes: Lanes) -> None:
        """Keep the lanes."""
        self._lanes = lanes
        self._answering = False

    def changed(self, lane: Lane, at_ms: float) -> None:
        """Print the event, or keep it until the answer has ended."""
        if not self._progress:
            return
        words = "won" if lane.won and lane.record is None else state(lane, self._lanes)
        if lane.record is not None and lane.record.ttft_ms is None:
            words += f" after {clock_ms(lane, self._lanes):.0f} ms"
        self._held.append(f"{at_ms:8.0f} ms  {lane.deployment} ({lane.start.role}): {words}")
        if not self._answering:
            self._tell()

    def text_added(self, text: str) -> None:
        """Print a piece of the answer; on a terminal, control characters are escaped."""
        self._answering = True
        sys.stdout.write(visible(text, lines=True) if sys.stdout.isatty() else text)
        sys.stdout.flush()

    def ends(self, lanes: Lanes) -> None:
        """End the line, and print the figures."""
        if lanes.answer and not lanes.answer.endswith("\n"):
            self.text_added("\n")
        self._tell()
        if self._progress and lanes.record is not None:
            say(summary(lanes.record), err=True)
        _complain(lanes)

    def _tell(self) -> None:
        for line in self._held:
            say(line, err=True)
        self._held.clear()

    def sums_up(self, calls: Sequence[CallRecord]) -> None:
        """Print the table."""
        from rich.console import Console  # noqa: PLC0415 - as above

        Console(stderr=True, highlight=False, markup=False, emoji=False).print(podium(calls))


class JsonView:
    """Prints one JSON object per race, on one line: the row of the call, its attempts, the answer."""

    def begins(self, lanes: Lanes) -> None:
        """Nothing to show yet."""

    def changed(self, lane: Lane, at_ms: float) -> None:
        """Nothing to show yet."""

    def text_added(self, text: str) -> None:
        """Nothing to show yet."""

    def ends(self, lanes: Lanes) -> None:
        """Print the line."""
        call: dict[str, Any] = {} if lanes.record is None else msgspec.to_builtins(lanes.record)
        winner = lanes.winner
        line = {
            "answer": lanes.answer,
            "reasoning": lanes.thoughts or None,
            "error": lanes.error,
            "winner": None if winner is None else winner.deployment,
            **call,
        }
        sys.stdout.buffer.write(visible_json(msgspec.json.encode(line).decode()).encode() + b"\n")
        sys.stdout.flush()

    def sums_up(self, calls: Sequence[CallRecord]) -> None:
        """Do nothing: the reader can count the lines."""


def _complain(lanes: Lanes) -> None:
    if lanes.error is not None:
        say(f"holeshot: {lanes.error}", err=True)
