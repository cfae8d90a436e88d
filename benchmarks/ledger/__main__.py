"""``make bench WHAT=ledger``: how fast a large ledger answers while rows arrive, and what a call takes on disk.

A real Postgres, and SQLite. Asked are the views, the questions of docs/sql.md, and what the page asks at /api: each
three times after a first one; the median is shown. Meanwhile 1,000 calls and their 2,000 attempts arrive each second
(on SQLite 100), and are added up. All rows that were made before are in the sums, or the run fails. First gateways
start beside that ledger, and beside an empty one.
"""

import asyncio
import re
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from benchmarks.harness.command import Run, Told, carry_out, command
from benchmarks.harness.report import Grid, bad
from benchmarks.ledger.rows import fill_by_shipping, fill_postgres, ship
from benchmarks.ledger.starts import GOAL, Starts, measured_starts
from gateway.core.reports import By, CallEnd, CallsFilter, HeatFilter, HeatMetric, HistoryFilter, Window
from gateway.ledger import LedgerReports, Reader, ReplayRunner, create_engine, fold_all, is_sqlite, migrate, queries
from tests.support.measured.servers import ROOT
from tests.support.servers import postgres

CALLS = {"postgres": 2_000_000, "sqlite": 200_000}
QUICK = {"postgres": 100_000, "sqlite": 20_000}
ARRIVING = {"postgres": 1000, "sqlite": 100}  # calls a second, each with two attempts
GOALS_MS = {
    "postgres": {"_1h": 100.0, "_24h": 300.0, "_30d": 300.0, "": 300.0},
    "sqlite": {"_1h": 300.0, "_24h": 1000.0, "_30d": 1000.0, "": 1000.0},
}
Ask = Callable[[], Awaitable[object]]
PAGE = ROOT / "docs" / "sql.md"
_QUESTION = re.compile(r"^\*\*([^\n]+?)\*\*[^\n]*\n((?:```sql.*?^```\n)+)", re.DOTALL | re.MULTILINE)
_BLOCK = re.compile(r"```sql ?(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_TABLES = ("calls", "attempts", "rollup_attempts", "rollup_errors", "rollup_histograms", "rollup_calls", "rollup_tags")
_SIZES = """
select coalesce((select parent.relname from pg_inherits join pg_class as parent on parent.oid = inhparent
  where inhrelid = pg_class.oid), relname) as name, sum(pg_total_relation_size(pg_class.oid))::bigint as bytes
from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace group by 1
"""
GOAL_MS = 500.0  # of what a view shows first: a page of fifty, or a day


class Timing(msgspec.Struct, frozen=True):
    """How long one question took."""

    database: str
    name: str
    ms: float
    goal_ms: float

    @property
    def holds(self) -> bool:
        return self.ms <= self.goal_ms


class Measured(msgspec.Struct, frozen=True):
    """What one database did."""

    database: str
    calls: int
    timings: list[Timing]
    bytes_per_call: Mapping[str, float]
    ship_ms: list[float]  # each second's rows
    starts: Starts


def main() -> None:
    parser = command("ledger", __doc__, quick=f"{QUICK['postgres']:,} and {QUICK['sqlite']:,} calls")
    parser.add_argument("--calls", type=int, help="rows of calls; twice as many attempts")
    parser.add_argument("--database", choices=list(CALLS), help="only this one")
    carry_out(parser, measured)


def measured(run: Run) -> Told:
    options = run.options
    names = [options.database] if options.database else list(CALLS)
    numbers = {name: options.calls or (QUICK if options.quick else CALLS)[name] for name in names}
    found = [asyncio.run(_measure(name, number, run)) for name, number in numbers.items()]
    return Told(facts=found, grids=list(map(_grid, found)), lines=[line for each in found for line in _lines(each)])


async def _measure(name: str, number: int, run: Run) -> Measured:
    async with database(name) as url, AsyncExitStack() as last_first:
        await migrate(url)
        engine, shipping = create_engine(url), create_engine(url)
        last_first.push_async_callback(engine.dispose)
        last_first.push_async_callback(shipping.dispose)
        with run.counting(number, f"{name}: making rows") as made:
            if name == "postgres":
                await fill_postgres(url, engine, number, made)
            else:
                await fill_by_shipping(engine, number, made)
        await _check_sums(engine, number)
        sizes = await _sizes(engine, url)
        async with database(name) as empty_url:
            await migrate(empty_url)
            starts = await measured_starts(url, empty_url)
        questions = await _questions(name, url)
        reports = open_reports(url)
        last_first.push_async_callback(reports.aclose)
        asks: dict[str, tuple[Ask, float]] = {
            title: (partial(queries.run, url, sql), _goal(name, title)) for title, sql in questions.items()
        }
        asks |= {f"GET /api/{address}": (ask, GOAL_MS) for address, ask in (await asked(reports)).items()}
        asking = last_first.enter_context(run.counting(len(asks), f"{name}: asking"))
        taken_s: list[float] = []
        timings = []
        arriving = asyncio.gather(ship(shipping, ARRIVING[name], taken_s), _fold(shipping))
        try:
            for title, (ask, goal_ms) in asks.items():
                timings.append(Timing(name, title, await _time(ask), goal_ms))
                asking()
            if arriving.done():
                await arriving
        finally:
            arriving.cancel()
            await asyncio.gather(arriving, return_exceptions=True)
        ship_ms = [each * 1000 for each in taken_s]
        return Measured(name, number, timings, {table: size / number for table, size in sizes.items()}, ship_ms, starts)


@asynccontextmanager
async def database(name: str) -> AsyncIterator[str]:
    """Yield the URL of an empty database of its own, until the block ends."""
    if name == "postgres":
        with postgres() as url:
            yield url
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/ledger.db"


async def _questions(name: str, url: str) -> dict[str, str]:
    """Return every windowed view, what people look up, and the questions of docs/sql.md."""
    catalog = "sqlite_master where type = 'view'" if name == "sqlite" else "pg_views where schemaname = 'public'"
    column = "name" if name == "sqlite" else "viewname"
    views = sorted(row[0] for row in (await queries.run(url, f"select {column} from {catalog}")).rows)
    found = {view: f"select * from {view}" for view in views if view.endswith(("_1h", "_24h", "_30d"))}
    found |= {view: f"select * from {view}" for view in ("leaderboard", "load_5m", "load_peaks", "tag_differences")}
    for title, blocks in _QUESTION.findall(PAGE.read_text(encoding="utf-8")):
        wordings: dict[str, str] = dict(_BLOCK.findall(blocks))
        found[title] = wordings.get(name if name == "sqlite" else "postgresql", wordings.get("", ""))
    return {title: sql for title, sql in found.items() if sql}


async def _check_sums(engine: AsyncEngine, number: int) -> None:
    """Check that all calls are in the sums: views of nothing would answer at once."""
    async with engine.connect() as connection:
        summed = await connection.scalar(text("select sum(n) from rollup_calls where minutes = 1440"))
    if summed != number:
        raise RuntimeError(f"the sums of days have {summed or 0} of {number} calls")


async def _fold(engine: AsyncEngine) -> None:
    """Add up what has arrived, each second, until cancelled, as one of all workers does."""
    while True:
        await fold_all(engine)
        await asyncio.sleep(1.0)


async def _sizes(engine: AsyncEngine, url: str) -> dict[str, int]:
    if is_sqlite(engine.url):
        return {"all": (await asyncio.to_thread(Path(url.removeprefix("sqlite:///")).stat)).st_size}
    async with engine.connect() as connection:
        return {str(row[0]): int(row[1]) for row in await connection.execute(text(_SIZES)) if row[0] in _TABLES}


async def _time(ask: Ask) -> float:
    """Return milliseconds; of SQL with the connection, which takes some ten of them."""
    taken = []
    for _ in range(4):
        begun = time.perf_counter()
        await ask()
        taken.append((time.perf_counter() - begun) * 1000)
    return median(taken[1:])


def _goal(name: str, title: str) -> float:
    return next(goal for suffix, goal in GOALS_MS[name].items() if title.endswith(suffix))


def _grid(found: Measured) -> Grid:
    rows = [
        [each.name, f"{each.ms:,.0f}", f"{each.goal_ms:.0f}", bad("ok" if each.holds else "missed", not each.holds)]
        for each in found.timings
    ]
    title = f"{found.database}: a ledger of {found.calls:,} calls"
    return Grid(title, ("question", "ms", "goal", ""), rows)


def _lines(found: Measured) -> Iterator[str]:
    starts = found.starts
    yield (
        f"{found.database}: a start takes {starts.with_calls_ms:,.0f} ms until ready, beside an empty ledger "
        f"{starts.with_none_ms:,.0f} ms: {starts.times:.2f} times as long (goal: at most {GOAL:g})"
    )
    if found.ship_ms:
        behind = sum(each > 1000 for each in found.ship_ms)
        yield (
            f"{found.database}: meanwhile {ARRIVING[found.database] * 3:,} rows a second arrived, for "
            f"{len(found.ship_ms)} s: stored in {median(found.ship_ms):,.0f} ms (median; the slowest in "
            f"{max(found.ship_ms):,.0f}), {behind} took longer than a second"
        )
    parts = ", ".join(f"{name} {size:,.0f}" for name, size in found.bytes_per_call.items())
    total = sum(found.bytes_per_call.values())
    yield f"{total:,.0f} bytes a call with its two attempts, all indexes and sums included ({parts})"


def open_reports(url: str) -> LedgerReports:
    """Return the reports of a ledger, of which nothing is in memory."""
    return LedgerReports(
        Reader(url, timeout_s=60.0),
        replays=ReplayRunner(url, clock=time.monotonic),
        unshipped=tuple,
        running=lambda _: None,
        utc_now=lambda: datetime.now(UTC),
        clock=time.monotonic,
        kept_s=0.0,
    )


async def asked(reports: LedgerReports) -> Mapping[str, Ask]:
    """Return what is asked, by its address in the API. Names are those of ``rows``."""

    def calls(window: Window | None = Window.DAY, **wanted: object) -> Ask:
        return partial(reports.calls, CallsFilter(window=window, limit=50, **wanted))  # type: ignore[arg-type] # each fits

    newest = (await reports.calls(CallsFilter(window=Window.MONTH, limit=50))).rows
    call_id = str(newest[-1]["id"])
    return {
        "calls": calls(),
        "calls?window=30d": calls(Window.MONTH),
        "calls?model=model-1": calls(model="model-1"),
        "calls?client=client-1": calls(client="client-1"),
        "calls?deployment=provider-1/m": calls(deployment="provider-1/m"),
        "calls?tag=variant:a": calls(tag=("variant", "a")),
        "calls?outcome=failed": calls(outcome=CallEnd.FAILED),
        "calls?error=all_failed": calls(error="all_failed"),
        "calls?slower_than_ms=490": calls(slower_than_ms=490.0),
        "calls?request_id=req-77 (of all time)": calls(None, request_id="req-77"),
        "calls?model=nobody (none is found)": calls(model="nobody"),
        "calls?model=nobody&window=30d (none is found)": calls(Window.MONTH, model="nobody"),
        "calls?slower_than_ms=1e6&window=30d (none is found)": calls(Window.MONTH, slower_than_ms=1e6),
        "calls?deployment=nobody&window=30d (none is found)": calls(Window.MONTH, deployment="nobody"),
        "calls?tag=variant:none&window=30d (none is found)": calls(Window.MONTH, tag=("variant", "none")),
        "calls/{id}": partial(reports.call, call_id),
        **{
            f"history?window={window}{name}": partial(reports.history, HistoryFilter(window=window, model=model))
            for window in Window
            for name, model in (("", None), ("&model=model-1", "model-1"))
        },
        "history?client=client-1": partial(reports.history, HistoryFilter(window=Window.DAY, client="client-1")),
        "history?client=client-1&window=7d": partial(
            reports.history, HistoryFilter(window=Window.WEEK, client="client-1")
        ),
        **{
            f"heat?metric={metric}&window={window}": partial(reports.heat, HeatFilter(metric=metric, window=window))
            for metric in (HeatMetric.TTFT_P50, HeatMetric.ERROR_RATE)
            for window in (Window.WEEK, Window.MONTH)
        },
        **{
            f"race-value?by={by}&window={window}": partial(reports.race_value, window, by)
            for by in By
            for window in Window
        },
        **{f"refusals?window={window}": partial(reports.refusals, window) for window in Window},
        **{f"usage?window={window}": partial(reports.usage, window) for window in Window},
        "usage (spent this month)": reports.spent,
        "session (any calls)": reports.has_calls,
    }


if __name__ == "__main__":
    main()
