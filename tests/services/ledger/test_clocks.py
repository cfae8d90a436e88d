"""What is deleted, and who does it, goes by the database's clock, however others' clocks and notations are set."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError
from structlog.testing import capture_logs

from gateway.ledger import (
    DatabaseUnreachableError,
    Finished,
    Ledger,
    Retention,
    create_engine,
    downgrade,
    migrate,
    prune,
    queries,
)
from gateway.ledger.database import unreachable
from gateway.ledger.inserts import insert
from gateway.ledger.migration_files import first_revision
from gateway.ledger.retention import partitions
from tests.app.gateway.running_gateway import serving
from tests.patience import eventually
from tests.services.ledger.test_partitions import midnights
from tests.unit.ledger.records import call, new_id, won

AHEAD = timedelta(days=2.5)
TWO_DAYS = Retention(calls_days=2, attempts_days=2, refusals_days=2)
NOW = datetime.now(UTC)


async def store(url: str, *ages: timedelta, replica: str = "r1", now: datetime = NOW) -> None:
    engine = create_engine(url)
    for age in ages:
        at = now - age
        await insert(engine, [Finished(call(won(new_id(), started_at=at), started_at=at, replica=replica))])
    await engine.dispose()


async def count(url: str, table: str) -> int:
    return int((await queries.run(url, f"select count(*) from {table}")).rows[0][0])


def ahead() -> datetime:
    return datetime.now(UTC) + AHEAD


async def ordered(url: str, *statements: str) -> None:
    engine = create_engine(url)
    try:
        async with engine.begin() as connection:
            for statement in statements:
                await connection.exec_driver_sql(statement)
    finally:
        await engine.dispose()


async def test_a_replica_whose_clock_is_days_ahead_deletes_nothing_that_should_stay(
    postgres_url: str, tmp_path: Path
) -> None:
    await store(postgres_url, *(timedelta(hours=hours) for hours in (0, 1, 30, 47, 49, 70)))
    ledger = Ledger(postgres_url, tmp_path / "spool", "w1", replica="r1", retention=TWO_DAYS, utc_now=ahead)
    with capture_logs() as logs:
        await ledger.prune()
    assert await count(postgres_url, "calls") == await count(postgres_url, "attempts") == 4
    assert [log["ahead_s"] for log in logs if log["event"] == "ledger.clock_off"] == [pytest.approx(216_000, abs=9)]
    assert ledger.clock.ahead_s == pytest.approx(216_000, abs=9)
    assert abs((ledger.clock.now() - datetime.now(UTC)).total_seconds()) < 9
    await ledger.close()


async def test_rows_are_not_too_old_to_be_stored_by_a_clock_that_is_days_ahead(
    postgres_url: str, tmp_path: Path
) -> None:
    ledger = Ledger(postgres_url, tmp_path / "spool", "w1", retention=TWO_DAYS, utc_now=ahead)
    await ledger.measure_clock()
    ledger.call_finished(call(won(new_id(), started_at=NOW), started_at=NOW))
    await ledger.flush()
    assert (ledger.expired, await count(postgres_url, "calls")) == (0, 1)
    await ledger.close()


@pytest.mark.parametrize(("theirs", "leaves"), [((0, 5), True), ((-600,), False), ((600, 1), False), ((), False)])
async def test_shared_work_is_left_to_a_replica_whose_clock_is_right_if_there_is_one(
    postgres_url: str, tmp_path: Path, theirs: tuple[int, ...], leaves: bool
) -> None:
    await store(postgres_url, *(timedelta(seconds=-each) for each in theirs), replica="r2", now=datetime.now(UTC))
    await store(postgres_url, timedelta(0), timedelta(hours=60), replica="r1")
    ledger = Ledger(postgres_url, tmp_path / "spool", "w1", replica="r1", retention=TWO_DAYS, utc_now=ahead)
    await ledger.prune()
    assert ledger.clock.leaves_turns is leaves
    assert (await count(postgres_url, "calls") == 2 + len(theirs)) is leaves
    await ledger.close()


async def test_when_all_rows_would_go_nothing_goes_until_the_clock_has_run_on_for_a_day(ledger_url: str) -> None:
    await store(ledger_url, *(timedelta(days=days) for days in (3, 4, 5)))
    engine = create_engine(ledger_url)
    with capture_logs() as logs:
        for hours in (0, 1, 23):
            assert await prune(engine, TWO_DAYS, NOW + timedelta(hours=hours)) == {
                "calls": 0,
                "attempts": 0,
                "refusals": 0,
            }
        said = [log["table"] for log in logs if log["event"] == "ledger.deletion_waits"]
        assert sorted(said) == sorted(set(said)) >= ["attempts", "calls"]
    assert await prune(engine, TWO_DAYS, NOW + timedelta(hours=25)) == {"calls": 3, "attempts": 3, "refusals": 0}
    await engine.dispose()


async def test_what_waited_is_forgotten_once_the_clock_is_right_again(ledger_url: str) -> None:
    await store(ledger_url, timedelta(hours=1), timedelta(hours=30))
    engine = create_engine(ledger_url)
    for now in (NOW + timedelta(days=3), NOW, NOW + timedelta(days=4, hours=1)):
        assert await prune(engine, TWO_DAYS, now) == {"calls": 0, "attempts": 0, "refusals": 0}
    await engine.dispose()
    assert await count(ledger_url, "calls") == 2


async def test_on_sqlite_a_clock_that_has_jumped_deletes_nothing_for_a_day(sqlite_url: str, tmp_path: Path) -> None:
    """This machine's clock is the database's: what runs on beside it is the monotonic one."""
    wall, seconds = NOW - timedelta(days=2), 0.0
    await store(sqlite_url, timedelta(0), timedelta(days=1), timedelta(days=3))
    ledger = Ledger(
        sqlite_url, tmp_path / "spool", "w1", retention=TWO_DAYS, utc_now=lambda: wall, clock=lambda: seconds
    )
    wall, seconds = NOW, 60.0  # two days within a minute
    await ledger.prune()
    assert await count(sqlite_url, "calls") == 3
    await ledger.close()
    calm = Ledger(sqlite_url, tmp_path / "spool", "w2", retention=TWO_DAYS)
    await calm.prune()
    assert await count(sqlite_url, "calls") == 2
    await calm.close()


async def test_on_sqlite_nothing_goes_for_a_day_when_the_newest_call_is_older_than_one(sqlite_url: str) -> None:
    await store(sqlite_url, timedelta(days=1, hours=1), timedelta(days=3))
    engine = create_engine(sqlite_url)
    for hours, left in ((0, 2), (23, 2), (24, 0)):
        await prune(engine, TWO_DAYS, NOW + timedelta(hours=hours))
        assert await count(sqlite_url, "calls") == left
    await engine.dispose()


async def test_a_database_in_german_and_in_kolkatas_time_keeps_and_deletes_the_same_rows(german_url: str) -> None:
    engine = create_engine(german_url)
    await store(german_url, *(timedelta(days=days) for days in (0, 1, 3)))
    assert await prune(engine, TWO_DAYS) == {"calls": 1, "attempts": 1, "refusals": 0}
    async with engine.connect() as connection:
        first, second, *_ = await partitions(connection, "calls")
    assert first.until in midnights()
    assert (first.since, second.since) == (None, first.until)
    await store(german_url, timedelta(days=-1), timedelta(days=-2.5))  # the day of the first has passed at any hour
    later = NOW + timedelta(days=4.1)
    assert await prune(engine, TWO_DAYS, later) == {"calls": 3, "attempts": 3, "refusals": 0}
    assert await prune(engine, TWO_DAYS, later) == {"calls": 0, "attempts": 0, "refusals": 0}
    await engine.dispose()


@pytest.mark.usefixtures("german_words")
async def test_what_a_server_says_in_german_is_known_by_its_code(german_url: str) -> None:
    engine = create_engine(german_url)
    async with engine.begin() as connection:
        await connection.exec_driver_sql("set local statement_timeout = '1ms'")
        with pytest.raises(DBAPIError) as raised:
            await connection.exec_driver_sql("select pg_sleep(60)")
    assert re.search("storniere.*statement_timeout = 0$", str(unreachable(engine.url, raised.value)))
    await engine.dispose()


async def test_a_roles_limit_of_time_stops_neither_migrations_nor_retention(postgres_url: str) -> None:
    await store(postgres_url, timedelta(0), *(timedelta(days=3) for _ in range(40)))
    name = postgres_url.rpartition("/")[2]
    slow = (
        "create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(1.2); return null; end $$"
    )
    await ordered(
        postgres_url,
        slow,
        "create trigger slow after delete on calls_first for each statement execute function slow()",
        f"alter database {name} set statement_timeout = '1s'",
    )
    engine = create_engine(postgres_url)
    assert await prune(engine, TWO_DAYS) == {"calls": 40, "attempts": 40, "refusals": 0}
    await engine.dispose()
    await ordered(postgres_url, "drop trigger slow on calls_first")
    await downgrade(postgres_url, first_revision())
    await migrate(postgres_url)
    assert await count(postgres_url, "calls") == 1


async def test_one_tables_failure_does_not_keep_the_next(postgres_url: str) -> None:
    await store(postgres_url, timedelta(0), timedelta(days=3))
    await ordered(
        postgres_url,
        "create function refuse() returns trigger language plpgsql as $$ begin raise 'no room'; end $$",
        "create trigger refuse before delete on calls_first for each statement execute function refuse()",
    )
    engine = create_engine(postgres_url)
    with pytest.raises(DatabaseUnreachableError, match=r"cannot be used at calls: .*no room"):
        await prune(engine, TWO_DAYS)
    assert (await count(postgres_url, "calls"), await count(postgres_url, "attempts")) == (2, 1)
    async with engine.connect() as connection:
        assert len(await partitions(connection, "attempts")) > 30
    await engine.dispose()


async def test_a_gateway_whose_clock_is_days_ahead_says_so_and_answers_as_any_other(
    postgres_url: str, tmp_path: Path
) -> None:
    async with serving(tmp_path, {"alpha": None}, utc_now=ahead, database_url=postgres_url) as running:

        async def off() -> dict[str, Any] | None:
            async with running.get("/health/ready") as ready:
                assert ready.status == 200
                shown: dict[str, Any] = (await ready.json())["clock"]
                return shown if shown["is_off"] else None

        shown = await eventually(off)
        assert shown["ahead_s"] == pytest.approx(216_000, abs=9)
        async with running.get("/metrics") as page:
            assert "\nholeshot_clock_off 1.0\n" in await page.text()
        async with running.get("/api/session") as session:
            assert (await session.json())["stores"]["clock_off_s"] == shown["ahead_s"]
        async with running.chat() as response:
            assert response.status == 200
            await response.read()
