"""Output of commands: results and tables on standard output, errors as one line on standard error."""

import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from math import floor, log10
from pathlib import Path
from typing import Any, NoReturn

import typer

from gateway.core.terminal_text import is_text, visible, visible_json

OK = 0
FAILED = 1
MISUSED = 2  # a wrong option (as click does) or, for `serve`, an unusable configuration

_WHOLE = 1000  # no name is folded, and no words are broken into more than two lines
_NARROWEST = 24  # minimum width of a column of names
_NARROWER = 16  # if the table does not fit otherwise
_MOST_PARTS = 4  # of a table that is wider than the screen, one below the other
_PIPE_WIDTH = 250
_ENDLESS = 100_000
_NUMBER = r"-?[\d,]+(\.\d+)?(e-?\d+)?%?"
_RANGE = rf"{_NUMBER}–({_NUMBER}|\?)"  # noqa: RUF001 - as printed
_FIGURE = re.compile(rf"{_NUMBER}[?*]?( \[{_RANGE}\])?|{_RANGE}")  # a mark after a figure is one that a legend explains

CONFIG: ContextVar[Path | None] = ContextVar("CONFIG", default=None)  # the --config of this command
_COMMAND = re.compile(r"\bholeshot (?:check|migrate|serve)\b(?! -c)")

UNKNOWN = "–"  # noqa: RUF001 - printed for unknown figures


def fail(message: str, code: int = FAILED) -> NoReturn:
    """Print ``message`` on standard error and exit with ``code``.

    The commands that it names are meant for the configuration of this one.
    """
    prose(f"holeshot: {with_config(message)}", err=True)
    raise typer.Exit(code)


def with_config(message: str) -> str:
    """Return ``message`` with --config, if this command has it, at each command that reads the configuration."""
    config = CONFIG.get()
    if config is None:
        return message
    return _COMMAND.sub(lambda found: f"{found[0]} -c {shlex.quote(str(config))}", message)


def say(text: str, *, err: bool = False) -> None:
    """Print ``text`` with a newline. Control characters from clients and providers are escaped."""
    typer.echo(visible(text, lines=True), err=err)


def warn(text: str) -> None:
    """Print ``text`` as a warning; on a terminal in yellow, unless ``NO_COLOR`` is set."""
    prose(f"warning: {text}", style="yellow")


def prose(text: str, *, err: bool = False, style: str = "") -> None:
    """Print ``text`` with a newline, broken between words where the width is known; else, as in a pipe, on one line."""
    if not (sys.stderr if err else sys.stdout).isatty() and "COLUMNS" not in os.environ:
        say(text, err=err)
        return
    from rich.console import Console  # noqa: PLC0415 - slow imports only where they are used
    from rich.text import Text  # noqa: PLC0415 - likewise

    Console(stderr=err, markup=False, emoji=False, highlight=False).print(Text(visible(text, lines=True), style))


@contextmanager
def waiting(words: str) -> Iterator[None]:
    """Show ``words`` on standard error during a slow step, if it is a terminal; the line is erased afterwards."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console  # noqa: PLC0415 - slow imports only where they are used

    with Console(stderr=True, highlight=False, markup=False).status(words):
        yield


def heading(text: str) -> str:
    """Return ``text`` in bold if standard output is a terminal, unless ``NO_COLOR`` is set."""
    is_plain = not on_a_terminal() or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return text if is_plain else typer.style(text, bold=True)


def on_a_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def read_standard_input() -> str:
    """Return the text of standard input; exit if it is not UTF-8."""
    data = sys.stdin.buffer.read()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        fail(f"standard input is not UTF-8 text (line {line}, byte {error.start}): save it as UTF-8", MISUSED)


def open_standard_streams() -> None:
    """Replace standard streams that are closed (``<&-``), which Python has as None, by the null device."""
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 - for as long as the process runs
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - likewise
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - likewise


def discard_standard_output() -> None:
    """Redirect standard output, so that nothing is flushed into a closed pipe or on a full disk at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def check_arguments(arguments: Iterable[str]) -> None:
    """Exit if an argument of the command is not UTF-8: no database, provider or gateway could be sent it."""
    for number, argument in enumerate(arguments, start=1):
        if not is_text(argument):
            fail(f"argument {number} is not UTF-8 text", MISUSED)  # unshown: it may be a key


def write_json(value: Any) -> None:
    """Print ``value`` as indented JSON; types that JSON does not have (a date, a UUID) become text."""
    typer.echo(as_json(value))


def as_json(value: Any) -> str:
    """Return ``value`` as ``write_json`` writes it."""
    import msgspec  # noqa: PLC0415 - slow imports only where they are used

    return visible_json(msgspec.json.format(_encoded(value), indent=2).decode())


def json_text(value: Any) -> str:
    """Return ``value`` as JSON on one line."""
    return visible_json(_encoded(value).decode())


def write_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> None:
    """Print a table with figures aligned right; on a terminal in colours, unless ``NO_COLOR`` is set.

    On a narrow screen, headings break between words, also after underscores; then names break anywhere. A table that
    is still too wide is printed in parts, one below the other, each with the first column. Where that would take too
    many parts, as with all columns of a call, it is transposed, with as many rows side by side as fit.
    """
    screen = console()
    by_words = [column.replace(" ", "\n") for column in columns]
    by_all_words = [column.replace("_", "_\n") for column in by_words]
    forms = (
        (columns, _WHOLE),
        (by_words, _WHOLE),
        (by_all_words, _WHOLE),
        (columns, _NARROWEST),
        (by_words, _NARROWEST),
        (by_all_words, _NARROWEST),
        (by_all_words, _NARROWER),
    )
    for heads, narrowest in forms:
        widths = fitting_widths(heads, rows, screen.width, narrowest=narrowest)
        if widths is not None or not rows:
            screen.print(table(heads, rows, title=title, widths=widths))
            return
    for heads, narrowest in forms:
        parts = _parts(heads, rows, screen.width, narrowest)
        if parts:
            for number, (indices, widths) in enumerate(parts):
                cells = [[row[index] for index in indices] for row in rows]
                name = None if number else title
                screen.print(table([heads[index] for index in indices], cells, title=name, widths=widths))
            return
    beside = len(rows)
    while beside > 1 and not _fits(screen, _on_its_side(columns, rows[:beside])):
        beside -= 1
    for start in range(0, len(rows), beside):
        screen.print(_on_its_side(columns, rows[start : start + beside], title=title if not start else None))


def without_unknown(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, always: int = 1
) -> tuple[list[str], list[list[object]]]:
    """Return the columns in which something is known, and the rows with these; the first are ``always`` there."""
    known = [
        place
        for place in range(len(columns))
        if place < always or any(row[place] not in {None, "", UNKNOWN} for row in rows)
    ]
    return [columns[place] for place in known], [[row[place] for place in known] for row in rows]


def console() -> Any:
    """Return the console on standard output, as wide as the terminal or COLUMNS; a pipe has no limit."""
    from rich.console import Console  # noqa: PLC0415 - as above

    known = on_a_terminal() or "COLUMNS" in os.environ  # set by the user, or by `watch` for its command
    return Console(width=None if known else _PIPE_WIDTH, markup=False, emoji=False)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    widths: Sequence[int] | None = None,
) -> Any:
    """Return a ``rich`` table of ``rows``; with ``widths``, its columns have these widths."""
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
            no_wrap=figures,  # names are folded on a narrow screen, figures never
            min_width=len(column) if figures else min(max(map(len, texts), default=0), _NARROWEST),
            width=None if widths is None else widths[index],
        )
    for row in shown:
        result.add_row(*map(Text, row))
    return result


def fitting_widths(
    heads: Sequence[str], rows: Sequence[Sequence[object]], screen: int, *, narrowest: int = _NARROWEST
) -> list[int] | None:
    """Return the width of each column; None if ``screen`` characters are too few.

    Figures are kept whole, words and names keep ``narrowest`` characters; the widest columns shrink first.
    """
    widths, least = [], []
    for index, head in enumerate(heads):
        texts = [cell(row[index], head) for row in rows]
        lines = [*texts, *head.split("\n")]
        widths.append(max(map(len, lines)))
        words = [word for line in lines for word in line.split()]
        in_words = max(map(len, words), default=0)
        if narrowest == _WHOLE:  # and words in two lines at most
            in_words = max(in_words, -(-widths[-1] // 2) + 2 if len(words) > len(lines) else 0)
        least.append(widths[-1] if _are_figures(texts) else min(narrowest, widths[-1], in_words))
    excess = sum(widths) + 2 * len(widths) - screen  # a space at the edges, two between columns
    for _ in range(excess):
        yielding = [index for index, width in enumerate(widths) if width > least[index]]
        if not yielding:
            return None
        widths[max(yielding, key=widths.__getitem__)] -= 1
    return widths


def cell(value: object, column: str = "") -> str:
    """Return ``value`` as readable text; the unit at the end of ``column`` determines the digits.

    Control characters are escaped: values may come from clients and providers.
    """
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if _is_figure(value):
        column = column.replace("\n", "")  # a heading may be broken
        digits = 0 if column.endswith("_ms") else 1 if "_tps" in column else 6 if column.endswith("_usd") else 3
        return str(value) if isinstance(value, int) else f"{value:,.{digits}f}"
    if isinstance(value, dict | list | tuple):
        return json_text(value)
    return visible(str(value), lines=True)


def dollars(usd: float) -> str:
    """Return US dollars with two digits that count, in cents at least: ``0.00015``, ``12.50``."""
    digits = 2 if not usd or abs(usd) >= 1 else 1 - floor(log10(abs(usd)))
    return f"{usd:.{max(2, digits)}f}"


def _encoded(value: Any) -> bytes:
    import msgspec  # noqa: PLC0415 - as above

    from providers import encoded  # noqa: PLC0415 - as above

    order: Any = "deterministic" if isinstance(value, set) else None
    encoder = msgspec.json.Encoder(enc_hook=str, decimal_format="number", order=order)
    return encoded(_without_nan(value), encoder)


def _without_nan(value: Any) -> Any:
    """Replace NaN decimals by null, as msgspec does with floats."""
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


def _parts(
    heads: Sequence[str], rows: Sequence[Sequence[object]], screen: int, narrowest: int
) -> list[tuple[list[int], list[int]]]:
    """Return each part's columns, always with the first one, and their widths; empty if there are too many parts."""
    parts: list[tuple[list[int], list[int]]] = []
    indices = [0]
    widths: list[int] | None = None
    for index in range(1, len(heads)):
        wider = [*indices, index]
        fitting = _widths_of(wider, heads, rows, screen, narrowest)
        if fitting is None and widths is not None:
            parts.append((indices, widths))
            wider = [0, index]
            fitting = _widths_of(wider, heads, rows, screen, narrowest)
        if fitting is None or len(parts) == _MOST_PARTS:
            return []
        indices, widths = wider, fitting
    return parts if widths is None else [*parts, (indices, widths)]


def _widths_of(
    indices: Sequence[int], heads: Sequence[str], rows: Sequence[Sequence[object]], screen: int, narrowest: int
) -> list[int] | None:
    cells = [[row[index] for index in indices] for row in rows]
    return fitting_widths([heads[index] for index in indices], cells, screen, narrowest=narrowest)


def _on_its_side(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> Any:
    """Return the transposed table: a line for each column, with the first column's values as headings."""
    head, *rest = columns
    turned = [[column, *(cell(row[index], column) for row in rows)] for index, column in enumerate(rest, start=1)]
    return table([head, *(cell(row[0], head) for row in rows)], turned, title=title)


def _fits(screen: Any, shown: Any) -> bool:
    unbounded = screen.options.update(max_width=_ENDLESS)  # within the screen's width everything seems to fit
    return bool(screen.measure(shown, options=unbounded).minimum <= screen.width)
