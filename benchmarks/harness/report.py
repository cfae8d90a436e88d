"""The figures as they are told: a table for a terminal, Markdown to be pasted, or JSON."""

from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.harness.figures import Row

PIPED_WIDTH = 160  # columns, where no terminal says


def table(rows: Sequence[Row], conditions: str) -> Table:
    """Return the rows as a table for a terminal."""
    made = Table(title="Holeshot, measured", caption=conditions, title_justify="left", caption_justify="left")
    for name, justify in (("", "left"), ("median", "right"), ("min to max", "right"), ("at most", "right")):
        made.add_column(name, justify=justify, no_wrap=bool(name))  # type: ignore[arg-type] # the literals above
    made.add_column("made of", overflow="fold")
    for row in rows:
        colour = "red" if row.broken else {None: "default", True: "green", False: "red"}[row.reached]
        value, spread, promised = _cells(row)
        made.add_row(row.title, f"[{colour}]{value}[/]", spread, promised, row.detail)
    return made


def show(rows: Sequence[Row], conditions: str) -> None:
    """Print the table."""
    console().print(table(rows, conditions))


def console() -> Console:
    """Return the console to print to; wide when it is a file or a pipe."""
    made = Console()
    return made if made.is_terminal else Console(width=PIPED_WIDTH)


def as_markdown(rows: Sequence[Row], conditions: str) -> str:
    """Return the rows as a table for a document; what was promised and not reached is bold."""
    lines = ["| | median | min to max | at most | made of |", "|---|--:|--:|--:|---|"]
    for row in rows:
        value, spread, promised = _cells(row)
        value = f"**{value}**" if row.reached is False else value
        lines.append(f"| {row.title} | {value} | {spread} | {promised} | {row.detail} |")
    return "\n".join([*lines, "", conditions])


def as_json(rows: Sequence[Row], conditions: str) -> str:
    """Return the rows as JSON."""
    facts = [{**msgspec.to_builtins(row), "reached": row.reached} for row in rows]
    return msgspec.json.format(msgspec.json.encode({"conditions": conditions, "rows": facts})).decode()


def _cells(row: Row) -> tuple[str, str, str]:
    value = "-" if row.value is None else f"{_number(row.value)} {row.unit}".rstrip()
    one = row.low is None or row.high is None or row.low == row.high
    spread = "" if one else f"{_number(row.low or 0.0)} to {_number(row.high or 0.0)}"
    return value, spread, "" if row.at_most is None else f"{row.at_most:g} {row.unit}".rstrip()


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 20 else f"{value:.2f}"
