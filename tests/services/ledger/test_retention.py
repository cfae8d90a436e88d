"""What is older than it is to be kept goes, a little at a time; nothing else does."""

from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path

import pytest
from sqlalchemy import text

from gateway.ledger import (
    DatabaseUnreachableError,
    Finished,
    Ledger,
    Retention,
    create_engine,
    expired,
    prune,
    queries,
    retention,
)
from gateway.ledger.inserts import insert
from gateway.ledger.store import SqlStore
from gateway.limits.windows import month
from tests.patience import eventually
from tests.unit.ledger.records import call, new_id, won

NOW = datetime(2026, 3, 31, 12, tzinfo=UTC)


async def fill(url: str, folder: Path, *ages_days: float) -> Ledger:
    ledger = Ledger(url, folder / "spool", "w1")
    for age in ages_days:
        at = NOW - timedelta(days=age)
        ledger.call_finished(call(won(new_id(), started_at=at), started_at=at))
    await ledger.flush()
    return ledger


async def ages(url: str, table: str) -> list[int]:
    instants = [str(row[0]) for row in (await queries.run(url, f"select started_at from {table}")).rows]
    return sorted((NOW - datetime.fromisoformat(each[:19]).replace(tzinfo=UTC)).days for each in instants)


async def test_each_table_keeps_its_own_time(ledger_url: str, tmp_path: Path) -> None:
    await (await fill(ledger_url, tmp_path, 1, 29, 31, 89, 91)).close()
    engine = create_engine(ledger_url)
    keep = Retention(calls_days=90, attempts_days=30)
    assert await expired(engine, keep, NOW) == {"calls": 1, "attempts": 3}
    assert await prune(engine, keep, NOW) == {"calls": 1, "attempts": 3}
    assert await prune(engine, keep, NOW) == {"calls": 0, "attempts": 0}
    await engine.dispose()
    assert await ages(ledger_url, "calls") == [1, 29, 31, 89]
    assert await ages(ledger_url, "attempts") == [1, 29]


async def test_what_is_kept_for_good_is_not_even_counted(ledger_url: str, tmp_path: Path) -> None:
    await (await fill(ledger_url, tmp_path, 0, 4000)).close()
    engine = create_engine(ledger_url)
    assert await prune(engine, Retention(attempts_days=1), NOW) == {"attempts": 1}
    await engine.dispose()
    assert len(await ages(ledger_url, "calls")) == 2


async def test_sums_that_limits_go_on_from_are_kept_for_a_month(ledger_url: str) -> None:
    engine, store = create_engine(ledger_url), SqlStore(ledger_url)
    for age_days, usd in ((30.4, 1.0), (29.0, 2.0), (33.0, 4.0)):  # of this month of 31 days, and of the one before
        at = NOW - timedelta(days=age_days)
        await insert(engine, [Finished(call(won(new_id(), started_at=at, cost_usd=usd), started_at=at, cost_usd=usd))])
    for now in (NOW - timedelta(days=1), NOW):  # nothing is new, so it waits for a day
        assert await prune(engine, Retention(calls_days=1, attempts_days=1, rollups_days=0.5), now) is not None
    used = await store.used([month(NOW.timestamp()).starts_s], NOW)
    assert [each.usd for each in used if each.model is None] == [3.0]
    ever = await store.used([-inf], NOW)
    assert [each.usd for each in ever if each.model is None] == [7.0]  # a total has no end
    kept = {table: f"select count(*) from {table}" for table in ("rollup_calls", "rollup_histograms")}
    found = {table: (await queries.run(ledger_url, sql)).rows for table, sql in kept.items()}
    assert found == {"rollup_calls": [(2,)], "rollup_histograms": [(0,)]}
    await store.aclose()
    await engine.dispose()


async def test_rows_go_a_little_at_a_time(ledger_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH_ROWS", 3)
    await (await fill(ledger_url, tmp_path, 0, *[50] * 8)).close()
    engine = create_engine(ledger_url)
    steps: list[tuple[str, int]] = []
    await prune(engine, Retention(calls_days=1), NOW, lambda table, number: steps.append((table, number)))
    await engine.dispose()
    assert steps == [("calls", 3), ("calls", 3), ("calls", 2)]


async def test_only_one_replica_deletes(postgres_url: str) -> None:
    engine, other = create_engine(postgres_url), create_engine(postgres_url)
    async with other.connect() as connection:
        await connection.execute(text("select pg_advisory_lock(hashtext('holeshot.prune'))"))
        assert await prune(engine, Retention(calls_days=1), NOW) is None
        await connection.execute(text("select pg_advisory_unlock(hashtext('holeshot.prune'))"))
    assert await prune(engine, Retention(calls_days=1), NOW) == {"calls": 0}
    await engine.dispose()
    await other.dispose()


async def test_a_deletion_that_fails_says_why_and_keeps_nobody_else_from_it(postgres_url: str) -> None:
    engine, other = create_engine(postgres_url), create_engine(postgres_url)
    async with other.begin() as connection:
        await connection.execute(
            text("create function refuse() returns trigger language plpgsql as $$ begin raise 'no room'; end $$")
        )
        await connection.execute(
            text("create trigger refuse before delete on calls_default for each statement execute function refuse()")
        )
    with pytest.raises(DatabaseUnreachableError, match=r"at calls: .*no room"):
        await prune(engine, Retention(calls_days=1), NOW)
    async with other.begin() as connection:
        await connection.execute(text("drop trigger refuse on calls_default"))
    assert await prune(other, Retention(calls_days=1), NOW) == {"calls": 0}
    await engine.dispose()
    await other.dispose()


async def test_a_running_gateway_deletes_by_itself(ledger_url: str, tmp_path: Path) -> None:
    lately = (NOW - datetime.now(UTC)).total_seconds() / 86_400
    await (await fill(ledger_url, tmp_path, lately, 4000)).close()
    ledger = Ledger(ledger_url, tmp_path / "spool", "w2", retention=Retention(calls_days=1, attempts_days=1))
    await ledger.start()

    async def is_pruned() -> bool:
        return len(await ages(ledger_url, "attempts")) <= 1

    await eventually(is_pruned)
    await ledger.close()
    assert len(await ages(ledger_url, "calls")) == 1
