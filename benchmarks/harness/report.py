"""A figure as a row, quantiles, and the report: a table for a terminal, Markdown to be pasted, or JSON."""

import platform
import re
import sysconfig
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from statistics import median

import msgspec
from rich.console import Console
from rich.table import Table

BEGIN, END = "<!-- made by: make bench WHAT={} -->", "<!-- end of what the benchmark made -->"
PIPED_WIDTH = 240  # columns, where no terminal says
_MARKED = re.compile(r"\[red\](.*?)\[/\]")
_PGO, _LTO = "--enable-optimizations", "--with-lto"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One figure. ``low`` and ``high`` are the extremes over rounds; ``detail`` says what it is made of.

    ``value`` is None when it could not be measured; then the detail says why. ``broken``: because something went wrong.
    """

    title: str
    value: float | None
    low: float | None = None
    high: float | None = None
    unit: str = ""
    at_most: float | None = None
    detail: str = ""
    broken: bool = False

    @property
    def reached(self) -> bool | None:
        """Whether it is as good as promised; None when nothing was, or nothing was measured."""
        return None if self.at_most is None or self.value is None else self.value <= self.at_most


def row(title: str, values: Sequence[float], unit: str, *, at_most: float | None = None, detail: str = "") -> Row:
    """Return the row of one figure that was measured several times."""
    return Row(
        title=title,
        value=median(values),
        low=min(values),
        high=max(values),
        unit=unit,
        at_most=at_most,
        detail=detail,
    )


def skipped(title: str, what: object) -> Row:
    """Return the row of a figure that needs something this machine does not have."""
    return Row(title=title, value=None, detail=f"skipped: needs {what}")


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that ``share`` of ``values`` do not exceed."""
    ordered = sorted(values)
    return ordered[round((len(ordered) - 1) * share)]


class Grid(msgspec.Struct, frozen=True):
    """A table. The first ``words`` columns and the last ``notes`` have words, the others figures; see ``bad``."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1
    notes: int = 0
    caption: str = ""

    def table(self) -> Table:
        made = Table(title=self.title, title_justify="left", caption=self.caption or None, caption_justify="left")
        for number, name in enumerate(self.columns):
            is_note = number >= len(self.columns) - self.notes
            is_text = is_note or number < self.words
            made.add_column(name, justify="left" if is_text else "right", no_wrap=not is_note, overflow="fold")
        for row in self.rows:
            made.add_row(*row)
        return made

    def markdown(self) -> list[str]:
        """Return the lines of it for a document; what is bad is bold."""
        sides = ["---"] * self.words + ["--:"] * (len(self.columns) - self.words - self.notes) + ["---"] * self.notes
        rows = (_MARKED.sub(r"**\1**", " | ".join(row)) for row in self.rows)
        return [f"| {' | '.join(self.columns)} |", f"|{'|'.join(sides)}|", *(f"| {row} |" for row in rows)]


def bad(cell: str, is_bad: bool = True) -> str:
    """Return a cell, marked where it is not as promised."""
    return f"[red]{cell}[/]" if is_bad else cell


def write_lines(page: Path, what: str, lines: Sequence[str]) -> None:
    """Put these lines where ``make bench WHAT=…`` writes them, between two marks of a page."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN.format(what))
    _, end, after = rest.partition(END)
    assert end, f"{page} has no {BEGIN.format(what)} … {END}"
    page.write_text("\n".join([before + begin, "", *lines, "", end]) + after, encoding="utf-8")


def shown(value: float | None, form: str = ".0f") -> str:
    """Return a figure as a cell; a dash where there is none."""
    return "-" if value is None else format(value, form)


def figures(title: str, rows: Sequence[Row], conditions: str) -> Grid:
    """Return the rows as a table."""
    cells = [[row.title, *_cells(row), row.detail] for row in rows]
    return Grid(title, ("", "median", "min to max", "at most", "made of"), cells, notes=1, caption=conditions)


def console() -> Console:
    """Return the console to print to."""
    made = Console()
    return made if made.is_terminal else Console(width=PIPED_WIDTH)


def _cells(row: Row) -> tuple[str, str, str]:
    value = "-" if row.value is None else f"{_number(row.value)} {row.unit}".rstrip()
    one = row.low is None or row.high is None or row.low == row.high
    spread = "" if one else f"{_number(row.low or 0.0)} to {_number(row.high or 0.0)}"
    return (
        bad(value, row.broken or row.reached is False),
        spread,
        "" if row.at_most is None else f"{row.at_most:g} {row.unit}".rstrip(),
    )


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 20 else f"{value:.2f}"


def described() -> str:
    """Return version, machine and build of this interpreter, which is the measured servers' as well."""
    build = built(sysconfig.get_config_var("CONFIG_ARGS"), platform.python_compiler())
    return f"{platform.python_implementation()} {platform.python_version()}, {platform.machine()}, {build}"


def built(config_args: str | None, compiler: str) -> str:
    """Return how an interpreter was built, from the arguments of its ``configure`` and its compiler's name.

    PGO: guided by a profile (``--enable-optimizations``). LTO: optimised at link time.
    """
    if config_args is None:  # nobody ran configure: Windows, and some builds that were moved
        return f"built by {compiler}, optimisations unknown"
    given = {word.strip("'\"") for word in config_args.split()}
    pgo = "with PGO" if _PGO in given else "without PGO"
    lto = any(word == _LTO or (word.startswith(f"{_LTO}=") and word != f"{_LTO}=no") for word in given)
    return f"built {pgo} and {'with' if lto else 'without'} LTO by {compiler}"


def weighted_quantile(samples: Iterable[tuple[float, float]], q: float) -> float | None:
    """Return the smallest value at or below which a share ``q`` of the weight lies; None without samples.

    ``samples`` are pairs of value and weight.
    """
    ordered = sorted(samples)
    if not ordered:
        return None
    sums = list(accumulate(weight for _, weight in ordered))
    return ordered[min(bisect_left(sums, q * sums[-1]), len(sums) - 1)][0]


def known_quantile(values: Iterable[float], q: float) -> float | None:
    """Return the smallest value at or below which a share ``q`` of the values lies; None without values."""
    return weighted_quantile(((value, 1.0) for value in values), q)


def milliseconds(seconds: float | None) -> float | None:
    """Return seconds as milliseconds, to a tenth."""
    return None if seconds is None else round(seconds * 1000, 1)
