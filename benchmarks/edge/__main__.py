"""``python -m benchmarks.edge [NAMES…] [--against DIR]``: the edge's measures, here and on another checkout."""

import argparse
import asyncio
import importlib
import pkgutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median

import msgspec
from rich.markup import escape

from benchmarks.edge import measures
from benchmarks.edge.edge import Edge, Figure, edge
from benchmarks.harness import report
from benchmarks.harness.report import console, grid, print_json
from tests.support.measured import servers
from tests.support.measured.servers import prepare

LIMIT_S = 300.0  # for one measure
HERE = Path(__file__).parents[2]

Measure = Callable[[Edge], Awaitable[Sequence[Figure]]]


class Row(msgspec.Struct):
    """A figure, on the other checkout and on this one: medians over rounds."""

    measure: str
    name: str
    unit: str
    against: float | None = None
    now: float | None = None


class Environment(msgspec.Struct, frozen=True):
    """What all measures share. ``bytecode`` is a folder for compiled modules."""

    checkouts: dict[str, Path]
    upstream: servers.Server
    bytecode: Path


class Broken(msgspec.Struct):
    """A measure that did not end as it should."""

    measure: str
    checkout: str
    reason: str


def main() -> None:
    """Run it as the arguments say."""
    names = sorted(each.name for each in pkgutil.iter_modules(measures.__path__))
    parser = argparse.ArgumentParser(prog="python -m benchmarks.edge", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"measures to run (default: all): {', '.join(names)}")
    parser.add_argument("--against", type=Path, metavar="DIR", help="another checkout, measured in turns with this one")
    parser.add_argument("--rounds", type=int, default=1, help="turns of each; medians are told (default 1)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    unknown = set(options.names) - set(names)
    if unknown:
        parser.error(f"there is no measure {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    prepare(parser)
    checkouts = {"now": HERE} if options.against is None else {"against": options.against.resolve(), "now": HERE}
    rows: list[Row] = []
    broken: list[Broken] = []
    with servers.upstream() as upstream, tempfile.TemporaryDirectory(prefix="holeshot-bytecode-") as bytecode:
        for name in options.names or names:
            more_rows, more_broken = asyncio.run(
                _measured(name, Environment(checkouts, upstream, Path(bytecode)), options.rounds)
            )
            rows += more_rows
            broken += more_broken
    if options.json:
        print_json({"interpreter": report.described(), "rows": rows, "broken": broken})
    else:
        _show(rows, broken)
    sys.exit(1 if any(each.checkout == "now" for each in broken) else 0)


async def _measured(name: str, environment: Environment, rounds: int) -> tuple[list[Row], list[Broken]]:
    """Measure on each checkout in turn, so that a machine that grows slower grows slower for both."""
    measure: Measure = importlib.import_module(f"{measures.__name__}.{name}").measure
    broken: list[Broken] = []
    rows: dict[str, Row] = {}
    found: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds):
        for where, checkout in environment.checkouts.items():
            print(f"{name}: {where}, round {number + 1} of {rounds}", file=sys.stderr, flush=True)
            try:
                async with (
                    asyncio.timeout(LIMIT_S),
                    edge(checkout, environment.upstream, environment.bytecode) as given,
                ):
                    figures = await measure(given)
            except Exception as error:  # noqa: BLE001 - a gateway that breaks under a measure is a finding
                broken.append(Broken(name, where, f"{type(error).__name__}: {error}"))
                continue
            for figure in figures:
                rows.setdefault(figure.name, Row(name, figure.name, figure.unit))
                if figure.value is not None:
                    found.setdefault((figure.name, where), []).append(figure.value)
    for title, row in rows.items():
        against, now = found.get((title, "against")), found.get((title, "now"))
        row.against = median(against) if against else None
        row.now = median(now) if now else None
    return list(rows.values()), broken


def _show(rows: Sequence[Row], broken: Sequence[Broken]) -> None:
    cells = (
        (
            f"{row.measure}: {row.name}",
            _told(row.against, row.unit),
            _told(row.now, row.unit),
            f"{row.now / row.against:.2f}" if row.now is not None and row.against else "",
        )
        for row in rows
    )
    table = grid("The edge, measured", ("measure", "against", "now", "ratio"), cells, caption=report.described())
    console().print(table)
    for each in broken:
        console().print(f"[red]broken: {each.measure}, {each.checkout}[/]: {escape(each.reason)}")


def _told(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    digits = 0 if float(value).is_integer() or abs(value) >= 1000 else 1 if abs(value) >= 20 else 3
    return f"{value:,.{digits}f} {unit}".rstrip()


if __name__ == "__main__":
    main()
