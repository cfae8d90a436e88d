"""``python -m benchmarks.edge [NAMES…] [--against DIR]``: the edge's measures, here and on another checkout."""

import asyncio
import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median

import msgspec
from rich.markup import escape

from benchmarks.edge import measures
from benchmarks.edge.edge import Edge, Figure
from benchmarks.harness.command import Choices, Run, Told, carry_out, command
from benchmarks.harness.report import Grid
from tests.support.measured import servers
from tests.support.measured.servers import ROOT, Server

LIMIT_S = 300.0  # for one measure

Measure = Callable[[Edge], Awaitable[Sequence[Figure]]]


class Row(msgspec.Struct):
    """A figure, on the other checkout and on this one: medians over rounds."""

    measure: str
    name: str
    unit: str
    against: float | None = None
    now: float | None = None


class Broken(msgspec.Struct):
    """A measure that did not end as it should."""

    measure: str
    checkout: str
    reason: str


def main() -> None:
    names = sorted(each.name for each in pkgutil.iter_modules(measures.__path__))
    parser = command("edge", __doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", choices=Choices(names), help=f"measures: {', '.join(names)}"
    )
    parser.add_argument("--against", type=Path, metavar="DIR", help="another checkout, measured in turns with this one")
    parser.add_argument("--rounds", type=int, default=1, help="turns of each; medians are told")
    parser.set_defaults(every=names)
    carry_out(parser, measured)


def measured(run: Run) -> Told:
    options = run.options
    checkouts = {"now": ROOT} if options.against is None else {"against": options.against.resolve(), "now": ROOT}
    rows: list[Row] = []
    broken: list[Broken] = []
    with servers.upstream() as upstream:
        for name in options.names or options.every:
            more_rows, more_broken = asyncio.run(_measured(name, checkouts, upstream, run))
            rows += more_rows
            broken += more_broken
    grid = Grid("The edge, measured", ("measure", "against", "now", "ratio"), list(map(_cells, rows)))
    told = [f"{each.measure}, {each.checkout}: {escape(each.reason)}" for each in broken]
    missed = [line for line, each in zip(told, broken, strict=True) if each.checkout == "now"]
    return Told(facts={"rows": rows, "broken": broken}, grids=[grid], lines=told, missed=missed)


async def _measured(
    name: str, checkouts: dict[str, Path], upstream: Server, run: Run
) -> tuple[list[Row], list[Broken]]:
    """Measure on each checkout in turn, so that a machine that grows slower grows slower for both."""
    measure: Measure = importlib.import_module(f"{measures.__name__}.{name}").measure
    broken: list[Broken] = []
    rows: dict[str, Row] = {}
    found: dict[tuple[str, str], list[float]] = {}
    for number in range(run.options.rounds):
        for where, checkout in checkouts.items():
            run.say(f"{name}: {where}, round {number + 1} of {run.options.rounds}")
            try:
                async with asyncio.timeout(LIMIT_S):
                    figures = await measure(Edge(checkout, upstream, run.folder))
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


def _cells(row: Row) -> Sequence[str]:
    ratio = f"{row.now / row.against:.2f}" if row.now is not None and row.against else ""
    return (f"{row.measure}: {row.name}", _told(row.against, row.unit), _told(row.now, row.unit), ratio)


def _told(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    digits = 0 if float(value).is_integer() or abs(value) >= 1000 else 1 if abs(value) >= 20 else 3
    return f"{value:,.{digits}f} {unit}".rstrip()


if __name__ == "__main__":
    main()
