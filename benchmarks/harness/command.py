"""The command line of a benchmark: the options that all have, what is said meanwhile, tables, bars, JSON, exit code.

A benchmark is a function of a ``Run`` that returns what it has ``Told``. Its figures are kept as JSON in ``var/NAME``.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.harness.report import Grid, console, described
from tests.support.measured.load import LoadError
from tests.support.measured.servers import ROOT, prepare


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has found. ``missed``: a sentence for each bar that is missed, with which the command ends with 1.

    ``above``: figures that are above their goals, which is told, and no error.
    """

    facts: object  # all figures, for JSON
    grids: Sequence[Grid] = ()
    lines: Sequence[str] = ()  # sentences below the tables
    missed: Sequence[str] = ()
    above: Sequence[str] = ()
    pictures: dict[str, str] = {}  # files beside the JSON, by name


class Run:
    """One run: what was asked for, and a folder that goes with it."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options: Any = options
        self.folder = folder

    def say(self, what: str) -> None:
        """Tell what is being done."""
        sys.stderr.write(f"{what} ...\n")

    @contextmanager
    def counting(self, total: int, what: str = "calls") -> Iterator[Callable[..., None]]:
        """Show how far it is; what is given counts one more each time it is called, or as many as it is told."""
        shown = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=shown, disable=not shown.is_terminal) as progress:
            task = progress.add_task(what, total=total)
            yield lambda more=1: progress.advance(task, more)


class _Help(argparse.RawDescriptionHelpFormatter):
    def _get_help_string(self, action: argparse.Action) -> str | None:
        has_default = action.default not in (None, False, argparse.SUPPRESS, [])
        return f"{action.help} [default: %(default)s]" if has_default else action.help


class Choices(tuple[str, ...]):
    """What may be named, or nothing: Python before 3.12 looks for what was not given, too."""

    __slots__ = ()

    def __contains__(self, named: object) -> bool:
        """Tell whether this may be said."""
        return named == [] or super().__contains__(named)


def command(name: str, about: str | None, *, quick: str = "") -> argparse.ArgumentParser:
    """Return the options that all benchmarks have; ``quick``: what that option makes less of."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=about, formatter_class=_Help)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON instead of tables")
    form.add_argument("--markdown", action="store_true", help="print tables for a document")
    place = ROOT / "var" / name.partition(".")[0]
    parser.add_argument("--out", type=Path, default=place, metavar="DIR", help="where the figures go, as JSON")
    if quick:
        parser.add_argument("--quick", action="store_true", help=quick)
    return parser


def carry_out(parser: argparse.ArgumentParser, measure: Callable[[Run], Told]) -> None:
    """Measure as the command line says, tell what was found, and exit: with 1 when a bar is missed or it broke."""
    options = parser.parse_args()
    prepare(parser)
    name = parser.prog.rpartition("benchmarks.")[2]
    with tempfile.TemporaryDirectory(prefix=f"holeshot-{name}-") as folder:
        try:
            told = measure(Run(options, Path(folder)))
        except KeyboardInterrupt:
            sys.exit("interrupted; everything is stopped")
        except (LoadError, RuntimeError) as error:
            sys.exit(f"broken: {error}")
    facts = {"interpreter": described(), "missed": told.missed, "above": told.above, "facts": told.facts}
    json = msgspec.json.format(msgspec.json.encode(facts), indent=2).decode() + "\n"
    options.out.mkdir(parents=True, exist_ok=True)
    for file, content in {f"{name}.json": json, **told.pictures}.items():
        (options.out / file).write_text(content, encoding="utf-8")
    if options.json:
        sys.stdout.write(json)
    else:
        show(told, as_markdown=options.markdown)
    sys.stderr.write(f"Written: {options.out}\n")
    sys.exit(bool(told.missed))


def show(told: Told, *, as_markdown: bool = False) -> None:
    """Print the tables, what is said below them, and the bars that are missed."""
    for grid in told.grids:
        if as_markdown:
            print("\n".join([*grid.markdown(), "", grid.caption]), end="\n\n")
        else:
            console().print(grid.table())
    for line in told.lines:
        print(line)
    short = [*(f"Missed: {each}." for each in told.missed), *(f"Above its goal: {each}." for each in told.above)]
    print("\n".join(short) or "Every bar is reached.")
