"""How a verb speaks: results on standard output, tables for a person's eyes, errors in one line on standard error."""

import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import typer

OK = 0
FAILED = 1
MISUSED = 2  # a wrong option or, for `serve`, an unusable configuration; click's own code for the former

UNKNOWN = "–"  # noqa: RUF001 - the dash STEERING prints where a figure is not known


def fail(message: str, code: int = FAILED) -> NoReturn:
    """Say ``message`` on standard error and end with ``code``."""
    typer.echo(f"holeshot: {message}", err=True)
    raise typer.Exit(code)


def on_a_terminal() -> bool:
    """Tell whether standard output is read by a person."""
    return sys.stdout.isatty()


def write_json(value: Any) -> None:
    """Write ``value`` as indented JSON; what JSON has no word for (a date, a UUID) as text."""
    import msgspec  # noqa: PLC0415 - heavy imports belong to the verb that runs

    encoded = msgspec.json.encode(value, enc_hook=str, order="deterministic" if isinstance(value, set) else None)
    typer.echo(msgspec.json.format(encoded, indent=2).decode())


def write_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Write a table, figures to the right; in colours on a terminal unless ``NO_COLOR`` is set."""
    from rich.console import Console  # noqa: PLC0415 - as above

    Console().print(table(columns, rows, title=title))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> Any:
    """Return a ``rich`` table of ``rows``."""
    from rich import box  # noqa: PLC0415 - as above
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    shown = [list(row) for row in rows]
    result = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        figures = any(_is_figure(row[index]) for row in shown)
        result.add_column(Text(column), justify="right" if figures else "left", overflow="fold")
    for row in shown:
        result.add_row(*(Text(cell(value, column)) for column, value in zip(columns, row, strict=True)))
    return result


def cell(value: object, column: str = "") -> str:
    """Return ``value`` as a person wants to read it; the unit at the end of ``column`` decides the digits."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if _is_figure(value):
        digits = 0 if column.endswith("_ms") else 1 if column.endswith("_tps") else 6 if column.endswith("_usd") else 3
        return str(value) if isinstance(value, int) else f"{value:,.{digits}f}"
    return str(value)


def _is_figure(value: object) -> bool:
    return isinstance(value, int | float) or type(value).__name__ == "Decimal"
