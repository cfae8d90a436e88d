"""Draws the lanes on a terminal: a bar for each attempt up to the claim, its time, and its result."""

from typing import Literal, NamedTuple

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from gateway.attempt_records import Outcome
from gateway.calls import CallRecord
from gateway.cli.lanes import Lane, Lanes
from gateway.cli.terminal import UNKNOWN
from gateway.terminal_text import counted, visible

_NAME_SHARE = 0.4  # of the width, at most
_NARROWEST_BAR = 12
_WIDEST_BAR = 60
_STEPS_MS = (250, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 60_000, 120_000)  # possible time scales of a bar
_CLAIM_SHARE = 0.75  # of the bar, at most: the winner continues after it


class Glyphs(NamedTuple):
    """The characters of bars."""

    line: str
    token: str
    cut: str


_DRAWN = Glyphs("━", "●", "✕")
_TYPED = Glyphs("-", "o", "x")  # for terminals without Unicode


class Track:
    """A picture of the current state of ``lanes``."""

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


def state(lane: Lane, lanes: Lanes) -> str:
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
    Outcome.CLIENT_GONE: "stopped",
}


def clock_ms(lane: Lane, lanes: Lanes) -> float:
    """Return the time shown for an attempt, in ms: until its first token, or its end without one."""
    if lane.first_token_ms is not None:
        return lane.first_token_ms
    if lane.ended_ms is not None:
        return lane.ended_ms
    return max(0.0, lanes.elapsed_ms - lane.start.launch_offset_ms)


def summary(record: CallRecord) -> str:
    """Return a finished call's figures on one line."""
    winner = next((item for item in record.attempts if item.id == record.winner_attempt_id), None)
    tokens = record.completion_tokens
    parts = [
        f"TTFT {_ms(record.ttft_ms)}",
        f"total {_ms(record.total_ms)}",
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
    told_width = max((len(state(lane, lanes)) for lane in lanes.lanes), default=0)
    role_width = max((len(lane.start.role) for lane in lanes.lanes), default=0)
    spare = width - name_width - _CLOCK_WIDTH - max(told_width, _TOLD_WIDTH) - 3 * 2
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
        row += [Text(_ms(clock_ms(lane, lanes)), style=style), Text(state(lane, lanes), style=style)]
        grid.add_row(*row)
    return grid


_CLOCK_WIDTH = 8
_TOLD_WIDTH = 16  # "won, 1234 tok/s": so that bars do not move when it appears


def _bar(lane: Lane, lanes: Lanes, width: int, glyphs: Glyphs) -> Text:
    """Draw an attempt on the lanes' common time scale: the wait, a mark, and the winner's stream."""
    scale_ms = _scale_ms(lanes)
    now_ms = min(lanes.elapsed_ms, scale_ms)

    def column(at_ms: float) -> int:
        return min(width - 1, int(at_ms / scale_ms * width))

    start = column(lane.start.launch_offset_ms)
    mark_ms = lane.start.launch_offset_ms + clock_ms(lane, lanes)
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
    """Return the time of a bar's whole length, in ms. It grows until the claim and is then fixed."""
    decided_ms = lanes.elapsed_ms if lanes.claimed_ms is None else lanes.claimed_ms
    return next((float(step) for step in _STEPS_MS if decided_ms <= step * _CLAIM_SHARE), decided_ms / _CLAIM_SHARE)


def _style(lane: Lane) -> str:
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


def _live_speed(lane: Lane, lanes: Lanes) -> str:
    """Estimate the winner's speed while it runs, with chunks for tokens. Its row will have the reported figure."""
    assert lane.first_token_ms is not None
    seconds = (lanes.elapsed_ms - lane.start.launch_offset_ms - lane.first_token_ms) / 1000
    return f"~{(lanes.tokens - 1) / seconds:.0f} tok/s" if seconds > _SHORTEST_S and lanes.tokens > 1 else "..."


_SHORTEST_S = 0.1


def _ms(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:.0f} ms" if value < 10_000 else f"{value / 1000:.1f} s"  # noqa: PLR2004 - five digits are hard to read
