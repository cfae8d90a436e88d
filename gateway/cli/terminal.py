"""How a verb speaks: results on standard output, tables for a person's eyes, errors in one line on standard error."""

import os
import re
import sys
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, NoReturn

import typer

from gateway.terminal_text import visible, visible_json

OK = 0
FAILED = 1
MISUSED = 2  # a wrong option or, for `serve`, an unusable configuration; click's own code for the former

_NARROWEST = 24  # characters a column of names keeps
_PIPE_WIDTH = 250
_ENDLESS = 100_000
_FIGURE = re.compile(r"-?[\d,]+(\.\d+)?(e-?\d+)?%?[?*]?")  # the last is a mark that a legend explains

UNKNOWN = "–"  # noqa: RUF001 - what is printed where a figure is not known


def fail(message: str, code: int = FAILED) -> NoReturn:
    """Say ``message`` on standard error and end with ``code``."""
    say(f"holeshot: {message}", err=True)
    raise typer.Exit(code)


def say(text: str, *, err: bool = False) -> None:
    """Write ``text`` and the end of its line. What in it comes from clients or providers cannot steer a terminal."""
    typer.echo(visible(text, lines=True), err=err)


def on_a_terminal() -> bool:
    """Tell whether standard output is read by a person."""
    return sys.stdout.isatty()


def write_json(value: Any) -> None:
    """Write ``value`` as indented JSON; what JSON has no word for (a date, a UUID) as text."""
    typer.echo(as_json(value))


def as_json(value: Any) -> str:
    """Return ``value`` as ``write_json`` writes it."""
    import msgspec  # noqa: PLC0415 - heavy imports belong to the verb that runs

    return visible_json(msgspec.json.format(_encoded(value), indent=2).decode())


def json_text(value: Any) -> str:
    """Return ``value`` as JSON in one line."""
    return visible_json(_encoded(value).decode())


def write_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> None:
    """Write a table, figures to the right; in colours on a terminal unless ``NO_COLOR`` is set.

    Where the screen is narrow, heads are broken between words and names anywhere. What is too wide all the same is laid
    on its side, as many rows beside each other as there is room for.
    """
    screen = console()
    for heads in (columns, [column.replace(" ", "\n") for column in columns]):
        widths = fitting_widths(heads, rows, screen.width)
        if widths is not None or not rows:
            screen.print(table(heads, rows, title=title, widths=widths))
            return
    beside = len(rows)
    while beside > 1 and not _fits(screen, _on_its_side(columns, rows[:beside])):
        beside -= 1
    for start in range(0, len(rows), beside):
        screen.print(_on_its_side(columns, rows[start : start + beside], title=title if not start else None))


def console() -> Any:
    """Return the console on standard output, as wide as the terminal or COLUMNS; a pipe has room for every column."""
    from rich.console import Console  # noqa: PLC0415 - as above

    known = on_a_terminal() or "COLUMNS" in os.environ  # as set by hand, or by `watch` for what it runs
    return Console(width=None if known else _PIPE_WIDTH, markup=False, emoji=False)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    widths: Sequence[int] | None = None,
) -> Any:
    """Return a ``rich`` table of ``rows``; where ``widths`` are given, its columns are that wide."""
    from rich import box  # noqa: PLC0415 - as above
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    shown = [[cell(value, column) for column, value in zip(columns, row, strict=True)] for row in rows]
    result = Table(
        title=None if title is None else Text(visible(title), style="bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for index, column in enumerate(columns):
        texts = [row[index] for row in shown if row[index] != UNKNOWN]
        figures = _are_figures(texts)
        result.add_column(
            Text(visible(column, lines=True)),
            justify="right" if figures else "left",
            overflow="fold",
            no_wrap=figures,  # where it is narrow, names are folded and figures stay whole
            min_width=len(column) if figures else min(max(map(len, texts), default=0), _NARROWEST),
            width=None if widths is None else widths[index],
        )
    for row in shown:
        result.add_row(*map(Text, row))
    return result


def fitting_widths(
    heads: Sequence[str], rows: Sequence[Sequence[object]], screen: int, *, narrowest: int = _NARROWEST
) -> list[int] | None:
    """Return how wide each column is to be, None where ``screen`` characters are too few for them.

    Figures are kept whole, and of words and names ``narrowest`` characters; the widest columns give way first.
    """
    widths, least = [], []
    for index, head in enumerate(heads):
        texts = [cell(row[index], head) for row in rows]
        lines = [*texts, *head.split("\n")]
        widths.append(max(map(len, lines)))
        words = [word for line in lines for word in line.split()]
        least.append(widths[-1] if _are_figures(texts) else min(narrowest, max(map(len, words), default=0)))
    excess = sum(widths) + 2 * len(widths) - screen  # a space at the edges, two between columns
    for _ in range(excess):
        yielding = [index for index, width in enumerate(widths) if width > least[index]]
        if not yielding:
            return None
        widths[max(yielding, key=widths.__getitem__)] -= 1
    return widths


def cell(value: object, column: str = "") -> str:
    """Return ``value`` as a person wants to read it; the unit at the end of ``column`` decides the digits.

    Control characters are shown: the values are those of clients and providers.
    """
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if _is_figure(value):
        digits = 0 if column.endswith("_ms") else 1 if "_tps" in column else 6 if column.endswith("_usd") else 3
        return str(value) if isinstance(value, int) else f"{value:,.{digits}f}"
    if isinstance(value, dict | list | tuple):
        return json_text(value)
    return visible(str(value), lines=True)


def _encoded(value: Any) -> bytes:
    import msgspec  # noqa: PLC0415 - as above

    order: Any = "deterministic" if isinstance(value, set) else None
    return msgspec.json.Encoder(enc_hook=str, decimal_format="number", order=order).encode(_without_nan(value))


def _without_nan(value: Any) -> Any:
    """Make null of decimals that are no number, as msgspec does of floats."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, Decimal) and not value.is_finite() else value


def _is_figure(value: object) -> bool:
    return isinstance(value, int | float | Decimal)


def _are_figures(texts: Iterable[str]) -> bool:
    known = [text for text in texts if text != UNKNOWN]
    return bool(known) and all(map(_FIGURE.fullmatch, known))


def _on_its_side(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> Any:
    """Return a table with a line for each column; the first column's values are its head."""
    head, *rest = columns
    turned = [[column, *(cell(row[index], column) for row in rows)] for index, column in enumerate(rest, start=1)]
    return table([head, *(cell(row[0], head) for row in rows)], turned, title=title)


def _fits(screen: Any, shown: Any) -> bool:
    unbounded = screen.options.update(max_width=_ENDLESS)  # measured against the screen, everything would seem to fit
    return bool(screen.measure(shown, options=unbounded).minimum <= screen.width)
