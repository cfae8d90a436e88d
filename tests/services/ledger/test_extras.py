"""Extra attempts in the ledger: beside rows of versions that did not count them, and over upgrades."""

import asyncio
from operator import add
from typing import Any

import asyncpg
import pytest

from gateway.core.attempts import Role
from gateway.core.calls import CallRecord
from gateway.ledger import queries
from gateway.ledger.database import create_engine, downgrade, migrate
from gateway.ledger.entries import Finished
from gateway.ledger.folding import fold_all
from gateway.ledger.inserts import insert
from tests.services.ledger.asking import asked
from tests.services.ledger.older import without
from tests.services.ledger.test_rollups import store
from tests.services.ledger.test_schema import OF_0035, OF_0041
from tests.unit.ledger.records import call, failed, lost, new_id, raced_call, won


def alone() -> CallRecord:
    return call(won(new_id(), is_extra=False, text_gap_max_ms=712.5), launched=1, extras=0)


def failover() -> CallRecord:
    """A call whose first attempt failed: the second replaced it."""
    call_id = new_id()
    second = won(call_id, 2, role=Role.FAILOVER, is_extra=False)
    return call(failed(call_id, is_extra=False), second, launched=2, extras=0)


def rescue() -> CallRecord:
    """A call whose first attempt was silent, and was cut when the second answered."""
    call_id = new_id()
    second = won(call_id, 2, role=Role.FAILOVER, is_extra=True)
    return call(lost(call_id, 1, is_extra=False), second, launched=2, extras=1)


def race() -> CallRecord:
    """A race of two, in which one failed and was replaced while the other ran."""
    call_id = new_id()
    others = failed(call_id, 2, is_extra=True), lost(call_id, 3, role=Role.FAILOVER, is_extra=True)
    return call(won(call_id, is_extra=False), *others, launched=3, extras=2)


def all_kinds() -> list[Any]:
    return [Finished(each()) for each in (alone, failover, rescue, race)]


async def told(url: str) -> tuple[int, int, float, int]:
    """Return calls, those with an extra attempt, the extra attempts of all, and the calls of clients with one."""
    (value,) = await asked(url, "select calls, calls_with_extra, extra_per_call from race_value")
    (usage,) = await asked(url, "select sum(n_raced) as n_raced from client_usage")
    calls, with_extra, per_call = value.values()
    return int(calls), int(with_extra), round(per_call * calls, 6), int(usage["n_raced"])


NEW = (4, 2, 3.0, 2)  # of ``all_kinds``, counted as they happened
OLD = (4, 3, 4.0, 3)  # and by the number of attempts: failovers too
WAITS = """
select exists (
  select from pg_locks join pg_database on pg_database.oid = pg_locks.database
  where not granted and datname = current_database()
)"""


async def test_what_replaced_a_failed_attempt_is_no_extra_one(ledger_url: str) -> None:
    await store(ledger_url, all_kinds())
    assert await told(ledger_url) == NEW
    by_role = await asked(
        ledger_url, "select role, count(*) as n from attempts where is_extra group by role order by role"
    )
    assert by_role == [{"role": "failover", "n": 2}, {"role": "race", "n": 1}]
    assert await asked(ledger_url, "select text_gap_max_ms from attempts where text_gap_max_ms is not null") == [
        {"text_gap_max_ms": 712.5}
    ]


async def test_rows_of_a_version_that_runs_on_count_as_they_did(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        without(OF_0035, patch)
        await store(ledger_url, all_kinds())
    assert await asked(ledger_url, "select distinct extras from calls") == [{"extras": None}]
    assert await told(ledger_url) == OLD
    await store(ledger_url, all_kinds())
    assert await told(ledger_url) == tuple(a + b for a, b in zip(OLD, NEW, strict=True))


async def test_an_upgrade_leaves_sums_as_they_are_and_so_does_the_way_back(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store(ledger_url, all_kinds())
    await downgrade(ledger_url, "0034")
    assert await told(ledger_url) == NEW  # as it was added up
    with monkeypatch.context() as patch:
        without(OF_0035, patch)
        await store(ledger_url, all_kinds())
    before = list(map(add, OLD, NEW))
    assert [*await told(ledger_url)] == before
    await migrate(ledger_url)
    assert [*await told(ledger_url)] == before
    assert await asked(ledger_url, "select distinct extras from calls") == [{"extras": None}]
    await store(ledger_url, all_kinds())
    assert [*await told(ledger_url)] == list(map(add, before, NEW))


async def test_rows_that_the_version_before_stored_are_added_up_after_the_upgrade(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await downgrade(postgres_url, "0034")
    engine = create_engine(postgres_url)
    with monkeypatch.context() as patch:
        without(OF_0035, patch)
        await insert(engine, all_kinds())
    await migrate(postgres_url)
    await insert(engine, all_kinds())
    await fold_all(engine)
    await engine.dispose()
    assert await told(postgres_url) == tuple(a + b for a, b in zip(OLD, NEW, strict=True))
    assert len((await queries.run(postgres_url, "select 1 from rollup_fresh")).rows) == 0


async def test_rows_from_before_the_upgrade_are_counted_where_they_lack_an_upper_bound(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await downgrade(ledger_url, "0039")
    with monkeypatch.context() as patch:
        without(OF_0041, patch)
        await store(ledger_url, [Finished(raced_call())])  # neither attempt has a price
    await migrate(ledger_url)
    for view, number in (("client_usage", 2), ("race_value", 2), ("waste", 1)):
        assert await asked(ledger_url, f"select n_unpriced from {view}") == [{"n_unpriced": number}]


async def test_rows_that_come_during_the_upgrade_are_counted_once(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await downgrade(postgres_url, "0039")
    engine, reader = create_engine(postgres_url), await asyncpg.connect(postgres_url)
    reading = reader.transaction()
    await reading.start()
    await reader.execute("select from rollup_calls")  # so that a change of that table waits
    upgrade = asyncio.create_task(migrate(postgres_url))
    while not await reader.fetchval(WAITS):
        assert not upgrade.done()
    with monkeypatch.context() as patch:
        without(OF_0041, patch)
        await insert(engine, [Finished(raced_call())])
    await reading.rollback()
    await reader.close()
    await upgrade
    await fold_all(engine)
    await engine.dispose()
    for view, number in (("client_usage", 2), ("race_value", 2), ("waste", 1)):
        assert await asked(postgres_url, f"select n_unpriced from {view}") == [{"n_unpriced": number}]


async def test_an_upgrade_makes_no_sums_again_that_were_deleted(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await downgrade(ledger_url, "0039")
    with monkeypatch.context() as patch:
        without(OF_0041, patch)
        await store(ledger_url, [Finished(raced_call())])
    engine = create_engine(ledger_url)
    async with engine.begin() as connection:
        for table in ("rollup_calls", "rollup_attempts"):
            await connection.exec_driver_sql(f"delete from {table}")
    await engine.dispose()
    await migrate(ledger_url)
    for table in ("rollup_calls", "rollup_attempts"):
        assert await asked(ledger_url, f"select 1 from {table}") == []
