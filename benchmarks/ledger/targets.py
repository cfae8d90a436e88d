"""``python -m benchmarks.ledger.targets``: how fast targets are read from a large ledger, before and after counting.

Each figure is held against the same from rows alone: a difference ends this with an error.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from statistics import median
from typing import Any

import asyncpg
from rich.console import Console
from rich.progress import Progress
from sqlalchemy.ext.asyncio import AsyncEngine

from benchmarks.harness.report import grid
from benchmarks.ledger.__main__ import database
from benchmarks.ledger.rows import DAYS, fill_by_shipping, make_partitions
from gateway.ledger import Reader, TargetCounting, create_engine, is_sqlite, migrate
from gateway.ledger.targets import statements
from gateway.ledger.targets.statements import begin
from gateway.targets.targets import Definition, Target

CALLS = {"postgres": 2_000_000, "sqlite": 200_000}  # of 60 days
TARGETS = (
    Target("all calls, answered", Definition(), 0.99),
    Target("a model, first token", Definition(model="model-1", ttft_ms=450.0), 0.99),
    Target("a model, first token and speed", Definition(model="model-1", ttft_ms=450.0, tok_s=70.0), 0.99),
    Target("all calls, first token, speed and gaps", Definition(ttft_ms=450.0, tok_s=70.0, gap_ms=500.0), 0.99),
)
LENGTHS = {
    "5 min": timedelta(minutes=5),
    "1 h": timedelta(hours=1),
    "6 h": timedelta(hours=6),
    "3 d": timedelta(days=3),
    "28 d": timedelta(days=28),
}
TRIES = 5
# One attempt a call, and of the sums those that targets use: enough for these figures, and quickly made.
_ROWS = """
create temp table made as
select i, gen_random_uuid() as id, gen_random_uuid() as winner,
  now() - make_interval(secs => {seconds} * (1 - i / {number}.0)) as at
from generate_series(1, {number}) as i;
insert into calls (id, started_at, client, model, endpoint, streamed, mode, objective, prompt_class, launched,
  winner_attempt_id, status_code, error_kind, ttft_ms, total_ms, tags, replica, win_on)
select id, at, 'client-' || i % 8, 'model-' || i % 5, 'chat.completions', true, 'race', 'first_token', 0, 1, winner,
  case when i % 50 > 0 then 200 else 502 end, case when i % 50 = 0 then 'all_failed' end, 100 + 400 * random(),
  2000 * random(), '{{}}', 'r1', 'any'
from made;
insert into attempts (id, call_id, number, started_at, role, audited, provider, deployment, launch_offset_ms, outcome,
  ttft_ms, tokens_source, decode_tps, itl_max_ms, cost_is_lower_bound, win_on)
select winner, id, 1, at, 'primary', false, 'provider', 'provider/m', 0, 'won', 300, 'reported', 60 + 60 * random(),
  1000 * random(), false, 'any'
from made;
"""
_SUMS = """
insert into rollup_calls (minutes, window_start, client, model, n, slo_tps)
select p.minutes, to_timestamp(floor(extract(epoch from c.started_at) / (p.minutes * 60)) * p.minutes * 60), c.client,
  c.model, count(*), count(*)
from calls as c cross join rollup_periods as p
where p.keep_days is null or c.started_at >= now() - make_interval(days => p.keep_days)
group by 1, 2, 3, 4
"""


def main() -> None:
    """Make the rows, count, and show."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ledger.targets", description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, help="rows of calls; twice as many attempts")
    parser.add_argument("--database", choices=list(CALLS), help="only this one")
    options = parser.parse_args()
    for name in [options.database] if options.database else list(CALLS):
        asyncio.run(_measure(name, options.calls or CALLS[name]))


async def _measure(name: str, number: int) -> None:
    async with database(name) as url, AsyncExitStack() as last_first:
        await migrate(url)
        engine = create_engine(url)
        last_first.push_async_callback(engine.dispose)
        with Progress(console=Console(stderr=True)) as progress:
            making = progress.add_task(f"{name}: making rows", total=number)
            await _fill(url, engine, number, partial(progress.advance, making))
        reader = Reader(url, timeout_s=600.0)
        last_first.push_async_callback(reader.aclose)
        now = datetime.now(UTC)
        counting = TargetCounting(url, lambda: TARGETS, utc_now=lambda: now, clock=lambda: 0.0)
        before = {key: await _time(reader, sql) for key, sql in _asked(reader, now, from_rows=True)}
        uncounted = {key: await _time(reader, sql) for key, sql in _asked(reader, now) if key[1] == "28 d"}
        begun = time.perf_counter()
        windows = await counting.count(engine)
        took_s = time.perf_counter() - begun
        begun = time.perf_counter()
        again = await counting.count(engine)
        idle_ms = (time.perf_counter() - begun) * 1000
        after = {key: await _time(reader, sql) for key, sql in _asked(reader, now)}
    if wrong := [key for key, (_, counts) in after.items() if counts != before[key][1]]:
        sys.exit(f"other figures than the rows': {wrong}")
    title = f"{name}: a ledger of {number:,} calls in 60 days; ms, of rows alone → counted"
    table = grid(title, ("target", *LENGTHS, "28 d, not counted yet"), ())
    for target in TARGETS:
        cells = [f"{before[target.name, at][0]:,.0f} → {after[target.name, at][0]:,.0f}" for at in LENGTHS]
        table.add_row(target.name, *cells, f"{uncounted[target.name, '28 d'][0]:,.0f}")
    console = Console(width=150)
    console.print(table)
    console.print(
        f"{windows:,} windows were counted in {took_s:,.1f} s; "
        f"a later look, which counted {again}, took {idle_ms:,.0f} ms"
    )


async def _fill(url: str, engine: AsyncEngine, number: int, made: Callable[[int], None]) -> None:
    if is_sqlite(engine.url):
        await fill_by_shipping(engine, number, made)
        return
    connection: Any = await asyncpg.connect(url)
    await make_partitions(connection, engine, datetime.now(UTC))
    await connection.execute("set session_replication_role = replica")  # without triggers; their sums are made below
    await connection.execute(_ROWS.format(number=number, seconds=DAYS * 86_400.0))
    await connection.execute(_SUMS)
    await connection.execute("vacuum analyze")
    await connection.close()
    made(number)


def _asked(reader: Reader, now: datetime, *, from_rows: bool = False) -> Iterator[tuple[tuple[str, str], str]]:
    for target in TARGETS:
        for at, length in LENGTHS.items():
            if from_rows:
                sql = statements.of_rows(reader.words, target.definition, begin(length, now))
            else:
                sql = statements.counts(reader.words, target.definition, length, now)
            yield (target.name, at), sql


async def _time(reader: Reader, sql: str) -> tuple[float, list[int]]:
    """Return milliseconds, and what was answered."""
    taken: list[float] = []
    row: list[int] = []
    while len(taken) < TRIES and sum(taken) < 10_000:
        begun = time.perf_counter()
        [found] = (await reader.run(sql)).rows
        taken.append((time.perf_counter() - begun) * 1000)
        row = [int(each) for each in found]
    return median(taken), row


if __name__ == "__main__":
    main()
