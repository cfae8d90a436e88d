"""``make bench WHAT=truth``: a real gateway before a fleet that knows its draws, and the ledger's figures beside them.

Every column of ``calls`` and ``attempts`` and the figures of the views people look at first, in SQLite, in Postgres,
and in ClickHouse where its engine is installed (tests/clickhouse/requirements.lock). Ends with 1 when one is farther
from the truth than it may be. ``--faults`` then bends each column in turn, and each figure of those views, and ends
with 1 when a bend would have passed unnoticed; ``--bend COLUMN`` bends one.
"""

import asyncio
from contextlib import AsyncExitStack, ExitStack
from importlib.util import find_spec
from typing import Any

import msgspec

from benchmarks.harness.command import Run, Told, carry_out, command
from benchmarks.harness.replicas import alone
from benchmarks.harness.report import Grid, bad
from benchmarks.truth.columns import columns
from benchmarks.truth.course import PERSONAS, Made, configuration, counted, drive, scenarios
from benchmarks.truth.facts import Ledger, Row, alike, arrived, join, read, read_clickhouse
from benchmarks.truth.faults import Planted, bend, bendable, plant
from benchmarks.truth.figures import figures
from benchmarks.truth.fleet import Fleet, serving
from benchmarks.truth.rules import Figure
from gateway.ledger import create_engine
from tests.support.clickhouse import clickhouse
from tests.support.measured.gateways import production, sqlite
from tests.support.servers import free_port

CALLS, QUICK_CALLS = 6_000, 800
STORES = ("sqlite", "postgres", "clickhouse")  # postgres with Redis; clickhouse: beside these two


class Outcome(msgspec.Struct, frozen=True):
    """What one run found; ``faults`` only where they were asked for."""

    figures: list[Figure]
    faults: list[Planted]


def main() -> None:
    parser = command("truth", __doc__, quick=f"{QUICK_CALLS} raced calls")
    parser.add_argument("--calls", type=int, help=f"raced calls (default {CALLS})")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shared", type=float, default=0.3, help="share of the log-variance that is the call's")
    parser.add_argument("--stores", choices=STORES, help="one run alone; default: sqlite, then postgres or clickhouse")
    parser.add_argument("--faults", action="store_true", help="bend every column in turn: each must be noticed")
    parser.add_argument(
        "--bend", metavar="COLUMN", choices=bendable(), help="bend this column (calls.cost_usd): it must fail"
    )
    carry_out(parser, measured)


def measured(run: Run) -> Told:
    """Compare; tell of the figures that are not simply nothing, and of what is off."""
    found = asyncio.run(_outcome(run))
    exact = [each for each in found.figures if each.holds and each.truth == each.measured == 0]
    rows = [
        [
            each.name,
            f"{each.truth:.6g}",
            f"{each.measured:.6g}",
            each.goal,
            bad("ok" if each.holds else "OFF", not each.holds),
        ]
        for each in found.figures
        if each not in exact
    ]
    off = [each.name for each in found.figures if not each.holds]
    passed = [each.name for each in found.faults if not each.is_noticed]
    lines = [f"{len(found.figures) - len(off)} of {len(found.figures)} figures hold, {len(exact)} of them exactly."]
    if found.faults:
        lines.append(f"{len(found.faults) - len(passed)} of {len(found.faults)} planted faults are noticed.")
    grid = Grid("The ledger against the truth", ("figure", "truth", "ledger", "goal", ""), rows)
    missed = [*(f"off: {name}" for name in off), *(f"not noticed: {name}" for name in passed)]
    return Told(facts=found, grids=[grid], lines=lines, missed=missed)


async def _outcome(run: Run) -> Outcome:
    options = run.options
    runs = [options.stores] if options.stores else ["sqlite", "clickhouse" if find_spec("chdb") else "postgres"]
    found: list[Figure] = []
    for stores in runs:
        outcome = await _run_on(run, stores, is_bent=stores == runs[0])
        found += [msgspec.structs.replace(each, name=f"{stores}: {each.name}") for each in outcome.figures]
        if outcome.faults or options.bend:
            return Outcome(found, outcome.faults)  # of one store: what compares them is the same
    return Outcome(found, [])


async def _run_on(run: Run, stores: str, *, is_bent: bool) -> Outcome:
    options = run.options
    calls = options.calls or (QUICK_CALLS if options.quick else CALLS)
    fleet = Fleet({persona.name: persona for persona in PERSONAS}, options.seed, options.shared)
    ledger, made, in_clickhouse = await _play(run, calls, fleet, stores)
    if options.bend and is_bent:
        ledger = bend(ledger, options.bend)

    def compared(rows: Ledger, column: str | None = None) -> list[Figure]:
        facts = join(rows, made, fleet)
        return [*(figures(rows, facts) if column is None else ()), *columns(facts, column)]

    found = compared(ledger)
    if in_clickhouse:
        both = msgspec.structs.replace(ledger, views=ledger.views | in_clickhouse)
        of_views = [
            msgspec.structs.replace(each, name=f"views: {each.name}") for each in figures(both, join(both, made, fleet))
        ]
        found += [*of_views, *alike(ledger.views, in_clickhouse)]
    if not options.faults:
        return Outcome(found, [])
    planted = []
    with run.counting(len(bendable()) * 2, "faults") as tick:
        for fault in plant(ledger, compared):
            planted.append(fault)
            tick()
    return Outcome(found, planted)


async def _play(run: Run, calls: int, fleet: Fleet, stores: str) -> tuple[Ledger, list[Made], dict[str, list[Row]]]:
    """Run the fleet, the gateway and all clients.

    Return what the ledger has in the end, what the clients saw, and what the views of ClickHouse say, if it was there.
    """
    todo, engine_url = scenarios(calls), None
    folder = run.folder / stores
    folder.mkdir()
    async with AsyncExitStack() as last_first:
        kept = sqlite(folder) if stores == "sqlite" else production(last_first.enter_context(ExitStack()))
        fleet_port = free_port()
        settings: dict[str, Any] = configuration(fleet, fleet_port)
        if stores == "clickhouse":
            engine_url = (await last_first.enter_async_context(clickhouse(folder / "clickhouse"))).url
            settings["ledger"] = {"clickhouse": {"url": engine_url}}
        await last_first.enter_async_context(serving(fleet, fleet_port))
        tick = last_first.enter_context(run.counting(sum(scenario.calls for scenario in todo)))
        async with alone(folder, settings, kept) as gateway:
            made = await drive(gateway.port, todo, tick)
            await asyncio.sleep(3)  # audited losers outlive their calls, and rows follow a second later
            limits = await counted(gateway.port)
            if engine_url is not None:
                await arrived(engine_url, kept.database_url)
        engine = create_engine(kept.database_url)
        try:
            ledger = await read(engine, limits)
        finally:
            await engine.dispose()
        return ledger, made, {} if engine_url is None else await read_clickhouse(engine_url)


if __name__ == "__main__":
    main()
