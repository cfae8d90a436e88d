"""The table of peers: what was measured of each, or why it was not."""

from collections.abc import Sequence

import msgspec
from rich.table import Table

from benchmarks.harness import report

COLUMNS = ("", "non-streaming ms", "burst ms", "token µs", "cores", "MB", "TTFT p99 ms", "note")
_CAPTION = (
    "CPU of the whole process tree: per non-streaming call, per streamed call of 100 tokens in one burst, and per "
    "token when one comes every 5 ms. Cores, memory and TTFT: 1,000 streams that begin at once, 20 tok/s each, the "
    "upstream's first token after 300 ms; cores are CPU seconds per second the streams should take, so that more than "
    "one worker's worth shows as that."
)


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A peer's row. The last three figures are of 1,000 streams; None: not measured, and ``note`` says why."""

    title: str
    json_ms: float | None = None
    burst_ms: float | None = None
    token_us: float | None = None
    cores: float | None = None
    peak_mb: float | None = None
    ttft_p99_ms: float | None = None
    note: str = ""


def _caption() -> str:
    return f"{_CAPTION} {report.described()}, for what is written in Python."


def as_table(standings: Sequence[Standing]) -> Table:
    """Return it for a terminal."""
    made = Table(title="Beside its peers", title_justify="left", caption=_caption(), caption_justify="left")
    for number, column in enumerate(COLUMNS):
        made.add_column(column, justify="right" if 0 < number < len(COLUMNS) - 1 else "left", overflow="fold")
    for standing in standings:
        made.add_row(*_cells(standing))
    return made


def as_markdown(standings: Sequence[Standing]) -> str:
    """Return it for a document."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|---|--:|--:|--:|--:|--:|--:|---|"]
    lines += [f"| {' | '.join(_cells(standing))} |" for standing in standings]
    return "\n".join([*lines, "", _caption()])


def _cells(standing: Standing) -> list[str]:
    figures = (
        standing.json_ms,
        standing.burst_ms,
        standing.token_us,
        standing.cores,
        standing.peak_mb,
        standing.ttft_p99_ms,
    )
    return [standing.title, *map(_number, figures), standing.note]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"
