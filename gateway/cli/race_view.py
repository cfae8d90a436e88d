"""The outputs of a race: drawn on a terminal, only the answer for a pipe, or JSON."""

import sys
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from gateway.cli.race_lanes import LaneListener, Lanes, PrintedLane, in_ms, verdict
from gateway.cli.terminal import UNKNOWN, say, table
from gateway.core.attempts import AttemptRecord, Outcome
from gateway.core.calls import CallRecord
from gateway.core.terminal_text import counted, visible, visible_json

if TYPE_CHECKING:
    from rich.live import Live

# The results of several races of one prompt, by deployment.

_COLUMNS = ("deployment", "launched", "won", "cancelled", "failed", "ttft_p50_ms", "decode_p50_tps")


def wins_table(calls: Sequence[CallRecord]) -> Any:
    """Return a ``rich`` table of ``calls``."""
    return table(_COLUMNS, rows(calls), title=f"{counted(len(calls), 'race')}, TTFT and speed of the wins")


def rows(calls: Sequence[CallRecord]) -> list[tuple[object, ...]]:
    """Return a row for each deployment, most wins first, and one for all calls together.

    A deployment's TTFT is the TTFT of its wins only, so the deployment looks faster than it is. The leaderboard
    corrects this.
    """
    by_name: dict[str, list[AttemptRecord]] = {}
    for call in calls:
        for attempt in call.attempts:
            by_name.setdefault(attempt.deployment, []).append(attempt)
    ranked = sorted(by_name.items(), key=lambda item: -len(_won(item[1])))
    all_attempts = [attempt for attempts in by_name.values() for attempt in attempts]
    ttft_ms = _p50([call.ttft_ms for call in calls if call.winner_attempt_id is not None])
    return [
        *(_row(name, attempts, _p50([each.ttft_ms for each in _won(attempts)])) for name, attempts in ranked),
        _row("all", all_attempts, ttft_ms),
    ]


def _row(name: str, attempts: Sequence[AttemptRecord], ttft_ms: float | None) -> tuple[object, ...]:
    won = _won(attempts)
    cancelled = sum(attempt.outcome.was_cancelled_by_race for attempt in attempts)
    failed = sum(attempt.error_kind is not None for attempt in attempts)
    return (name, len(attempts), len(won), cancelled, failed, ttft_ms, _p50([attempt.decode_tps for attempt in won]))


def _won(attempts: Sequence[AttemptRecord]) -> list[AttemptRecord]:
    return [attempt for attempt in attempts if attempt.outcome is Outcome.WON]


def _p50(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


# Draws the lanes on a terminal: a bar for each attempt up to the claim, its time, and its result.

_NAME_SHARE = 0.4  # of the width, at most
_NARROWEST_BAR = 12
_WIDEST_BAR = 60
_STEPS_MS = (250, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 60_000, 120_000)  # possible time scales of a bar
_CLAIM_SHARE = 0.75  # of the bar, at most: the winner continues after the claim


class Glyphs(NamedTuple):
    """The characters of bars."""

    line: str
    token: str
    cut: str


_DRAWN = Glyphs("━", "●", "✕")
_TYPED = Glyphs("-", "o", "x")  # for terminals without Unicode


class RacePicture:
    """The picture of ``lanes`` in their current state."""

    def __init__(self, lanes: Lanes, answer: Literal["tail", "whole", "none"]) -> None:
        """``tail`` shows the end of the answer that fits the screen, ``whole`` all of it, for the last picture."""
        self._lanes = lanes
        self._shown = answer

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the lanes, and the answer below them."""
        width = options.max_width
        glyphs = _TYPED if options.ascii_only else _DRAWN
        yield _grid(self._lanes, width, glyphs)
        if self._shown == "none":
            return
        yield Text()
        answer = _answer(self._lanes)
        if self._shown == "whole":
            yield answer
            yield Text()
            return
        lines = answer.wrap(console, width)
        room = max(1, options.size.height - len(self._lanes.lanes) - 3)
        yield Group(*lines[-room:])


def state(lane: PrintedLane, lanes: Lanes) -> str:
    """Return an attempt's state or result in a few words."""
    record = lane.record
    if record is None:
        if lane.won:
            return f"won, {_live_speed(lane, lanes)}"
        return "first token" if lane.first_token_ms is not None else "launched"
    if record.outcome is Outcome.WON:
        return "won" if record.decode_tps is None else f"won, {record.decode_tps:.0f} tok/s"
    if record.error_kind is None:
        return _ENDS.get(record.outcome, record.outcome)
    refused = record.status_code is not None and record.status_code >= 400  # noqa: PLR2004 - HTTP's first error
    return f"{record.error_kind} {record.status_code}" if refused else record.error_kind


_ENDS = {
    Outcome.LOST: "cancelled",
    Outcome.SUPERSEDED: "cancelled",
    Outcome.CLIENT_GONE: "left",
}


def clock_ms(lane: PrintedLane, lanes: Lanes) -> float | None:
    """Return the time shown for an attempt, in ms: until its first token, or its end without one.

    None: the attempt ended without a token, and its row does not say when, as the row of a failed attempt.
    """
    if lane.first_token_ms is not None:
        return lane.first_token_ms
    if lane.ended_ms is not None:
        return lane.ended_ms
    if lane.record is not None:
        return None
    return max(0.0, lanes.elapsed_ms - lane.start.launch_offset_ms)


def summary(record: CallRecord) -> str:
    """Return a finished call's figures on one line."""
    winner = next((item for item in record.attempts if item.id == record.winner_attempt_id), None)
    tokens = record.completion_tokens
    parts = [
        f"TTFT {in_ms(record.ttft_ms)}",
        f"total {in_ms(record.total_ms)}",
        f"{UNKNOWN if winner is None or winner.decode_tps is None else format(winner.decode_tps, '.1f')} tok/s",
        f"{UNKNOWN} tokens" if tokens is None else counted(tokens, "token"),
        f"{record.launched} launched",
    ]
    if record.cost_usd is not None:
        bound = ">= " if any(item.cost_is_lower_bound for item in record.attempts) else ""
        losers = f", losers ${record.duplicate_cost_usd:.6f}" if record.duplicate_cost_usd else ""
        parts.append(f"{bound}${record.cost_usd:.6f}{losers}")
    return " · ".join(parts)


def _grid(lanes: Lanes, width: int, glyphs: Glyphs) -> RenderableType:
    names = max((len(lane.deployment) for lane in lanes.lanes), default=0)
    name_width = min(names, int(width * _NAME_SHARE))
    state_width = max((len(state(lane, lanes)) for lane in lanes.lanes), default=0)
    role_width = max((len(lane.start.role) for lane in lanes.lanes), default=0)
    spare = width - name_width - _CLOCK_WIDTH - max(state_width, _STATE_WIDTH) - 3 * 2
    with_role = spare - role_width - 2 >= _NARROWEST_BAR
    bar_width = min(_WIDEST_BAR, spare - (role_width + 2 if with_role else 0))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(width=name_width, no_wrap=True, overflow="ellipsis")
    if with_role:
        grid.add_column(no_wrap=True)
    if bar_width >= _NARROWEST_BAR:
        grid.add_column(width=bar_width, no_wrap=True)
    grid.add_column(width=_CLOCK_WIDTH, justify="right", no_wrap=True)
    grid.add_column(overflow="ellipsis", no_wrap=True)
    for lane in lanes.lanes:
        style = _style(lane)
        row = [Text(visible(lane.deployment), style="bold" if lane.won else "")]
        if with_role:
            row.append(Text(lane.start.role, style="dim"))
        if bar_width >= _NARROWEST_BAR:
            row.append(_bar(lane, lanes, bar_width, glyphs))
        row += [Text(in_ms(clock_ms(lane, lanes)), style=style), Text(state(lane, lanes), style=style)]
        grid.add_row(*row)
    return grid


_CLOCK_WIDTH = 8
_STATE_WIDTH = 16  # of "won, 1234 tok/s", so that bars do not move when the speed appears


def _bar(lane: PrintedLane, lanes: Lanes, width: int, glyphs: Glyphs) -> Text:
    """Draw an attempt on the lanes' common time scale: the wait, a mark, and the winner's stream."""
    scale_ms = _scale_ms(lanes)
    now_ms = min(lanes.elapsed_ms, scale_ms)

    def column(at_ms: float) -> int:
        return min(width - 1, int(at_ms / scale_ms * width))

    start = column(lane.start.launch_offset_ms)
    mark_ms = lane.start.launch_offset_ms + (clock_ms(lane, lanes) or 0.0)
    mark = max(start, column(mark_ms))
    bar = Text(" " * start)
    waited = glyphs.line * (mark - start)
    if lane.record is None and lane.first_token_ms is None:
        return bar.append(waited, "cyan").append(glyphs.line, "bold cyan")
    if lane.first_token_ms is None:
        return bar.append(waited, "dim").append(glyphs.cut, _style(lane))
    bar.append(waited, "cyan" if lane.won else "dim").append(glyphs.token, "bold green" if lane.won else "dim")
    if lane.won:
        end_ms = now_ms if lane.ended_ms is None else lane.start.launch_offset_ms + lane.ended_ms
        bar.append(glyphs.line * (column(min(end_ms, scale_ms)) - mark), "green")
    return bar


def _scale_ms(lanes: Lanes) -> float:
    """Return the time for which a whole bar stands, in ms. The time grows until the claim and is then fixed."""
    decided_ms = lanes.elapsed_ms if lanes.claimed_ms is None else lanes.claimed_ms
    return next((float(step) for step in _STEPS_MS if decided_ms <= step * _CLAIM_SHARE), decided_ms / _CLAIM_SHARE)


def _style(lane: PrintedLane) -> str:
    if lane.won:
        return "bold green"
    if lane.record is None:
        return "cyan"
    return "yellow" if lane.record.error_kind is None else "red"


def _answer(lanes: Lanes) -> Text:
    answer = Text(visible(lanes.thoughts, lines=True), style="dim italic")
    if answer and lanes.answer:
        answer.append("\n\n")
    return answer.append(visible(lanes.answer, lines=True), "not dim not italic")


def _live_speed(lane: PrintedLane, lanes: Lanes) -> str:
    """Return the running winner's speed, a chunk counted as a token; the row will have the provider's figure."""
    assert lane.first_token_ms is not None
    seconds = (lanes.elapsed_ms - lane.start.launch_offset_ms - lane.first_token_ms) / 1000
    return f"~{(lanes.tokens - 1) / seconds:.0f} tok/s" if seconds > _SHORTEST_S and lanes.tokens > 1 else "..."


_SHORTEST_S = 0.1


FRAMES_PER_S = 20


class View(LaneListener, Protocol):
    """A listener that shows each race from ``begins`` to ``ends``, and a table after several."""

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
        self._follows = False  # below another race
        self._live: Live | None = None

    def begins(self, lanes: Lanes) -> None:
        """Start drawing."""
        from rich.live import Live  # noqa: PLC0415 - as above

        if self._follows:
            self._console.print()
        self._follows = True
        picture = RacePicture(lanes, "tail")
        self._live = Live(
            get_renderable=lambda: picture, console=self._console, refresh_per_second=FRAMES_PER_S, transient=True
        )
        self._live.start()

    def changed(self, lane: PrintedLane, at_ms: float) -> None:
        """Do nothing: the next frame shows the change."""

    def text_added(self, text: str) -> None:
        """Do nothing: the next frame shows the text."""

    def ends(self, lanes: Lanes) -> None:
        """Leave the last picture, with the figures below it."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if lanes.lanes or lanes.answer or lanes.thoughts:  # a refused call has no picture
            self._console.print(RacePicture(lanes, "none" if self._brief else "whole"))
        if lanes.record is not None:
            self._console.print(summary(lanes.record), style="bold")
            if (said := verdict(lanes)) is not None:
                self._console.print(said, style="bold green")
        _print_error(lanes)

    def sums_up(self, calls: Sequence[CallRecord]) -> None:
        """Draw the table."""
        self._console.print()
        self._console.print(wins_table(calls))


class PlainView:
    """Prints only the answer on standard output, and errors on standard error.

    With ``progress``, events of the lanes are printed on standard error, line by line. Both may be the same terminal,
    as in ``holeshot race ... | cat``, so no line is printed while the answer is written.
    """

    def __init__(self, *, progress: bool = False) -> None:
        self._progress = progress
        self._follows = False  # below another race
        self._lines: list[str] = []
        self._answering = False

    def begins(self, lanes: Lanes) -> None:
        """Keep the lanes."""
        self._leave_a_line()
        self._follows = True
        self._lanes = lanes
        self._answering = False

    def changed(self, lane: PrintedLane, at_ms: float) -> None:
        """Print the event, or keep it until the answer has ended."""
        if not self._progress:
            return
        words = "won" if lane.won and lane.record is None else state(lane, self._lanes)
        after_ms = clock_ms(lane, self._lanes)
        if lane.record is not None and lane.record.ttft_ms is None and after_ms is not None:
            words += f" after {after_ms:.0f} ms"
        self._lines.append(f"{at_ms:8.0f} ms  {lane.deployment} ({lane.start.role}): {words}")
        if not self._answering:
            self._flush()

    def text_added(self, text: str) -> None:
        """Print a piece of the answer; on a terminal, control characters are escaped."""
        self._answering = True
        sys.stdout.write(visible(text, lines=True) if sys.stdout.isatty() else text)
        sys.stdout.flush()

    def ends(self, lanes: Lanes) -> None:
        """End the line, and print the figures."""
        if lanes.answer and not lanes.answer.endswith("\n"):
            self.text_added("\n")
        self._flush()
        if self._progress and lanes.record is not None:
            say(summary(lanes.record), err=True)
            if (said := verdict(lanes)) is not None:
                say(said, err=True)
        _print_error(lanes)

    def _leave_a_line(self) -> None:
        if self._follows and self._progress:
            say("", err=True)

    def _flush(self) -> None:
        for line in self._lines:
            say(line, err=True)
        self._lines.clear()

    def sums_up(self, calls: Sequence[CallRecord]) -> None:
        """Print the table."""
        from rich.console import Console  # noqa: PLC0415 - as above

        self._leave_a_line()
        Console(stderr=True, highlight=False, markup=False, emoji=False).print(wins_table(calls))


class JsonView:
    """Prints one JSON object per race, on one line: the row of the call, its attempts, the answer."""

    def begins(self, lanes: Lanes) -> None:
        """Nothing to show yet."""

    def changed(self, lane: PrintedLane, at_ms: float) -> None:
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


def _print_error(lanes: Lanes) -> None:
    if lanes.error is not None:
        say(f"holeshot: {lanes.error}", err=True)
