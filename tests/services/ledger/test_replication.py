"""A publication for all tables, as Debezium and blue/green upgrades make: the ledger works, before it and after."""

import signal
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import asyncpg
import pytest

from gateway.ledger import Finished, Retention, create_engine, downgrade, fold_all, migrate, prune
from gateway.ledger.inserts import insert
from providers.simulator import ScriptedProvider
from tests.app.gateway.process import started
from tests.app.gateway.running_gateway import chat_body, configuration
from tests.support import servers
from tests.unit.ledger.records import new_id, raced_call

BEFORE = "0045"  # not every table has a key, or logs whole rows
PUBLISH = "create publication everything for all tables"
# Those that cannot be changed once they are published.
WITHOUT_IDENTITY = """
select relname::text from pg_class
where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and relpersistence = 'p' and relreplident = 'd'
and not exists (select from pg_index where indrelid = pg_class.oid and indisprimary)
"""


@pytest.fixture(scope="module")
def logical_server_url() -> Iterator[str]:
    with servers.postgres(settings=("wal_level=logical", "synchronous_commit=on")) as url:
        yield url


@pytest.fixture
async def logical_url(logical_server_url: str) -> AsyncIterator[str]:
    """An empty database of a server that can replicate logically."""
    operator = await asyncpg.connect(logical_server_url)
    name = f"holeshot_{new_id().replace('-', '')}"
    await operator.execute(f"create database {name}")
    yield logical_server_url.rpartition("/")[0] + f"/{name}"
    await operator.execute(f"drop database {name} with (force)")
    await operator.close()


async def run(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def column(url: str, query: str) -> list[object]:
    connection = await asyncpg.connect(url)
    try:
        return [row[0] for row in await connection.fetch(query)]
    finally:
        await connection.close()


async def store(url: str, days_ago: float = 0.0, calls: int = 3) -> None:
    engine = create_engine(url)
    try:
        for _ in range(calls):
            at = datetime.now(UTC) - timedelta(days=days_ago)
            entry = Finished(raced_call(started_at=at))
            await insert(engine, [entry])
            await insert(engine, [entry])  # once more, as after a crash: by way of a temporary table
    finally:
        await engine.dispose()


async def added_up(url: str) -> int:
    engine = create_engine(url)
    try:
        await fold_all(engine)
    finally:
        await engine.dispose()
    (calls,) = await column(url, "select sum(n) from rollup_calls where minutes = 1440")
    return int(str(calls))


async def test_a_ledger_is_made_in_a_database_that_publishes_all_its_tables(logical_url: str) -> None:
    await run(logical_url, PUBLISH)
    await migrate(logical_url)
    await store(logical_url)
    assert await added_up(logical_url) == 3
    assert await column(logical_url, WITHOUT_IDENTITY) == []
    await downgrade(logical_url, BEFORE)
    await migrate(logical_url)
    await store(logical_url)
    assert await added_up(logical_url) == 6
    await downgrade(logical_url, "base")


async def test_a_ledger_of_which_a_publication_was_made_is_migrated_and_then_added_up(logical_url: str) -> None:
    await migrate(logical_url)
    await downgrade(logical_url, BEFORE)
    for table in ("ledger_readers", "rollup_fresh", "rollup_waiting"):  # as that version had made them
        await run(logical_url, f"alter table {table} replica identity default")
    await run(logical_url, "insert into rollup_fresh (is_call, id, started_at) values (true, gen_random_uuid(), now())")
    await run(logical_url, PUBLISH)
    with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match="rollup_fresh"):
        await column(logical_url, "select taken from roll_up_fresh()")
    await migrate(logical_url)
    await store(logical_url)
    assert await added_up(logical_url) == 3


async def test_new_partitions_are_published_filled_and_emptied(logical_url: str) -> None:
    await migrate(logical_url)
    await run(logical_url, PUBLISH)
    await store(logical_url, days_ago=-3)  # in the default partition: its own is not there yet
    await store(logical_url)
    engine = create_engine(logical_url)
    try:
        await prune(engine, Retention(calls_days=10))
    finally:
        await engine.dispose()
    assert await column(logical_url, "select count(*) from calls_default") == [0]
    assert await column(logical_url, "select count(distinct tableoid) from calls") == [2]
    assert len(await column(logical_url, "select inhrelid from pg_inherits where inhparent = 'calls'::regclass")) > 30
    assert await column(logical_url, WITHOUT_IDENTITY) == []
    assert await added_up(logical_url) == 6
    await run(logical_url, "delete from calls; delete from attempts")


async def test_what_is_new_is_told_to_who_reads_the_publication(logical_url: str) -> None:
    await migrate(logical_url)
    await run(logical_url, PUBLISH)
    await column(logical_url, "select pg_create_logical_replication_slot('reader', 'pgoutput')")
    await store(logical_url, calls=1)
    assert await added_up(logical_url) == 1
    changes = await column(
        logical_url,
        "select get_byte(data, 0) from pg_logical_slot_get_binary_changes("
        "'reader', null, null, 'proto_version', '1', 'publication_names', 'everything')",
    )
    assert {ord(kind) for kind in "IDRBC"} <= set(changes)
    await run(logical_url, "select pg_drop_replication_slot('reader')")


async def test_a_gateway_whose_sums_stand_still_is_degraded_until_they_are_added_up_again(
    tmp_path: Path, logical_url: str
) -> None:
    await migrate(logical_url)
    await run(logical_url, "alter table rollup_fresh replica identity default")
    await run(logical_url, PUBLISH)
    async with ScriptedProvider() as alpha, aiohttp.ClientSession() as http:
        config = configuration(tmp_path, {"alpha": alpha.base_url}, database_url=logical_url)
        async with started(config, tmp_path) as gateway:

            async def health() -> tuple[str, float | None]:
                async with http.get(f"{gateway.url}/health/ready") as ready:
                    assert ready.status == 200
                    body = await ready.json()
                    return body["status"], body["database"]["sums_stand_still_s"]

            while await health() != ("ok", None):  # it serves before it has met its database
                pass
            async with http.post(f"{gateway.url}/v1/chat/completions", json=chat_body()) as response:
                assert response.status == 200
            assert "rollup_fresh" in (await gateway.event("ledger.not_folded"))["cause"]
            status, still_s = await health()
            assert (status, still_s is not None) == ("degraded", True)
            await run(logical_url, "alter table rollup_fresh replica identity full")
            await gateway.event("ledger.folded_again")
            assert await health() == ("ok", None)
            gateway.send(signal.SIGTERM)
            assert await gateway.ended() == 0
    assert await column(logical_url, "select sum(n) from rollup_calls where minutes = 1440") == [1]
