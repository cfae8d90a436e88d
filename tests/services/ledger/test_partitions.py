"""Partitions on Postgres: made ahead, dropped when they are old, and none of it loses or refuses a row."""

import asyncio
from datetime import UTC, datetime, time, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.ledger import DatabaseUnreachableError, Finished, Ledger, Retention, create_engine, expired, prune, queries
from gateway.ledger.entries import Entry
from gateway.ledger.inserts import insert
from gateway.ledger.retention import KEEP_ALL, Partition, partitions
from tests.unit.ledger.records import call, new_id, won

TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
DAILY = Retention(calls_days=30, attempts_days=30)


def at(instant: datetime) -> Entry:
    return Finished(call(won(new_id(), started_at=instant), started_at=instant))


def midnights() -> set[datetime]:
    """Return the ends of the days on which this process may have migrated its databases: before midnight, or after."""
    return {TODAY + timedelta(days=1), datetime.combine(datetime.now(UTC), time(), UTC) + timedelta(days=1)}


async def parts(engine: AsyncEngine, table: str = "calls") -> list[Partition]:
    async with engine.connect() as connection:
        return await partitions(connection, table)


async def count(url: str, table: str) -> int:
    return int((await queries.run(url, f"select count(*) from {table}")).rows[0][0])


async def test_what_was_there_before_is_the_first_partition(postgres_url: str) -> None:
    engine = create_engine(postgres_url)
    (first,) = await parts(engine)
    assert (first.name, first.since, first.is_long) == ("calls_first", None, True)
    assert first.until in midnights()
    await engine.dispose()


async def test_a_month_is_made_ahead_in_days_or_weeks_without_gaps_and_once(postgres_url: str) -> None:
    engine = create_engine(postgres_url)
    keep = Retention(calls_days=400, attempts_days=30)
    for _ in range(2):
        await prune(engine, keep, TODAY)
    for table, width in (("calls", 7), ("attempts", 1)):
        _, *made = await parts(engine, table)
        assert all((part.until - part.since).days == width for part in made if part.since is not None)
        assert all(one.until == next_one.since for one, next_one in pairwise(made))
        assert made[-1].until >= TODAY + timedelta(days=31)
        assert made[-2].until < TODAY + timedelta(days=31)
    await engine.dispose()


async def test_rows_that_went_into_the_default_partition_move_to_the_one_that_is_made(postgres_url: str) -> None:
    engine = create_engine(postgres_url)
    await insert(engine, [at(TODAY + timedelta(days=3, hours=1)), at(TODAY)])
    assert await count(postgres_url, "calls_default") == 1
    await prune(engine, DAILY, TODAY)
    assert await count(postgres_url, "calls_default") == 0
    assert await count(postgres_url, "attempts") == await count(postgres_url, "calls") == 2
    assert await count(postgres_url, f"calls_{TODAY + timedelta(days=3):%Y%m%d}") == 1
    await engine.dispose()


async def test_a_day_whose_rows_are_all_too_old_is_dropped_and_counted(postgres_url: str) -> None:
    engine = create_engine(postgres_url)
    await prune(engine, DAILY, TODAY)
    made = [at(TODAY + timedelta(days=days, hours=5)) for days in (1, 2, 3)]
    await insert(engine, made)
    later = TODAY + timedelta(days=33, hours=1)
    assert await expired(engine, DAILY, later) == {"calls": 2, "attempts": 2}
    assert await count(postgres_url, "calls") == 3
    assert await prune(engine, DAILY, later) == {"calls": 2, "attempts": 2}
    assert await count(postgres_url, "calls") == 1
    assert min(part.since for part in await parts(engine) if part.since) == TODAY + timedelta(days=3)
    await engine.dispose()


async def test_after_a_long_pause_one_partition_bridges_it(postgres_url: str) -> None:
    engine = create_engine(postgres_url)
    later = TODAY + timedelta(days=400)
    await insert(engine, [at(TODAY + timedelta(days=200))])
    await prune(engine, KEEP_ALL, later)
    first, bridge, *_ = await parts(engine)
    assert (bridge.since, bridge.until, bridge.is_long) == (first.until, later, True)
    assert await count(postgres_url, bridge.name) == 1
    await insert(engine, [at(later)])  # which says that the clock is right
    await prune(engine, DAILY, later)
    assert await count(postgres_url, "calls") == 1
    await engine.dispose()


async def test_a_row_of_any_time_is_stored_once_and_never_refused(postgres_url: str) -> None:
    engine = create_engine(postgres_url)
    await prune(engine, DAILY, TODAY)
    odd = [at(TODAY + timedelta(days=days)) for days in (-4000, -1, 0, 1, 30, 4000)]
    for _ in range(2):
        assert await insert(engine, odd) == 0
    assert await count(postgres_url, "calls") == 6
    await engine.dispose()


async def test_rows_older_than_they_are_kept_are_counted_and_not_stored(ledger_url: str, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1", retention=Retention(calls_days=10, attempts_days=1))
    for days in (0, 5, 20):
        ledger.call_finished(
            call(won(new_id(), started_at=now - timedelta(days=days)), started_at=now - timedelta(days=days))
        )
    await ledger.flush()
    assert (ledger.expired, ledger.rejected, ledger.pending) == (3, 0, 0)
    assert (await count(ledger_url, "calls"), await count(ledger_url, "attempts")) == (2, 1)
    await ledger.close()


async def test_replicas_that_make_partitions_at_once_while_rows_arrive_lose_none(postgres_url: str) -> None:
    engines = [create_engine(postgres_url) for _ in range(4)]

    async def ship(engine: AsyncEngine, seed: int) -> None:
        for number in range(20):
            await insert(engine, [at(TODAY + timedelta(days=(seed + number) % 25, hours=1))])

    await asyncio.gather(
        *(prune(engine, DAILY, TODAY) for engine in engines[:2]), *(ship(engine, 3) for engine in engines[2:])
    )
    await prune(engines[0], DAILY, TODAY)
    assert await count(postgres_url, "calls") == await count(postgres_url, "attempts") == 40
    assert await count(postgres_url, "calls_default") == 0
    for engine in engines:
        await engine.dispose()


async def test_who_owns_nothing_ships_on_and_is_told_what_to_do(postgres_url: str) -> None:
    engine = create_engine(postgres_url)
    async with engine.begin() as connection:
        for statement in (
            "create role only_ships login",
            "grant select, insert on calls, attempts to only_ships",
            "grant select on rollup_periods to only_ships",
        ):
            await connection.execute(text(statement))
    theirs = create_engine(postgres_url.replace("postgres@", "only_ships@"))
    await insert(theirs, [at(TODAY + timedelta(days=3))])
    with pytest.raises(DatabaseUnreachableError, match=r"must be owner|permission denied"):
        await prune(theirs, DAILY, TODAY)
    assert await count(postgres_url, "calls_default") == 1
    await theirs.dispose()
    async with engine.begin() as connection:
        await connection.execute(text("drop owned by only_ships"))
        await connection.execute(text("drop role only_ships"))
    await engine.dispose()
