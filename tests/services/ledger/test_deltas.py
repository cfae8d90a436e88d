"""What a migration must be able to do, by that of a next version which is made up: this code is the version before."""

import asyncio
from typing import Any

import asyncpg
import pytest
from sqlalchemy import Connection

from gateway.ledger import check_schema, create_engine, downgrade, fold_all, migrate, queries
from gateway.ledger.inserts import insert
from gateway.ledger.migration_files import first_revision
from tests.services.ledger.asking import asked
from tests.services.ledger.test_rollups import entries, store
from tests.services.next_version import REVISION, NextVersion

WAITS = """
select exists (
  select from pg_locks join pg_database on pg_database.oid = pg_locks.database
  where not granted and datname = current_database()
)"""
# As the next version's sums count: calls with several attempts, those attempts, and those that answered.
COUNTED = """
select
  (select count(*) from calls where launched > 1) as calls,
  (select count(*) from attempts where role <> 'primary') as races,
  (select count(*) from attempts where outcome = 'won') as attempts
"""
SUMMED = """
select
  (select n_calls from made_up) as calls,
  (select n_races from made_up) as races,
  (select sum(n_made_up) from rollup_attempts where minutes = 1440) as attempts
"""
ON_SQLITE = "select type, name, coalesce(sql, '') from sqlite_master where name not like 'sqlite_%'"
ON_POSTGRES = """
select 'view', viewname::text, definition from pg_views where schemaname = 'public'
union all select 'function', proname::text, prosrc from pg_proc where pronamespace = 'public'::regnamespace
union all select 'index', indexname::text, indexdef from pg_indexes where schemaname = 'public'
union all select 'column', format('%s.%s', attrelid::regclass, attname),
  concat_ws(' ', format_type(atttypid, atttypmod), attnotnull, pg_get_expr(adbin, adrelid),
  col_description(attrelid, attnum))
from pg_attribute join pg_class on pg_class.oid = attrelid
left join pg_attrdef on adrelid = attrelid and adnum = attnum
where relnamespace = 'public'::regnamespace and attnum > 0 and not attisdropped
"""


async def made(url: str) -> set[tuple[str, ...]]:
    """Return what a schema has."""

    def found(connection: Connection) -> set[tuple[str, ...]]:
        is_postgres = connection.dialect.name == "postgresql"
        rows = connection.exec_driver_sql(ON_POSTGRES if is_postgres else ON_SQLITE)
        return {tuple(row) for row in rows if "_version" not in row[1]}

    engine = create_engine(url)
    try:
        async with engine.connect() as connection:
            return await connection.run_sync(found)
    finally:
        await engine.dispose()


async def revision(url: str) -> Any:
    return (await queries.run(url, "select version_num from holeshot_version")).rows[0][0]


async def sums_are_whole(url: str) -> None:
    [summed], [counted] = await asked(url, SUMMED), await asked(url, COUNTED)
    assert summed == counted
    assert min(counted.values()) > 0


async def test_rows_that_were_there_are_in_sums_that_are_new_also_after_a_way_back(
    ledger_url: str, next_version: NextVersion
) -> None:
    await store(ledger_url, entries(100))
    before = await asked(ledger_url, "select * from client_usage order by model, client")
    for _ in range(2):
        await next_version.migrate(ledger_url)
        await sums_are_whole(ledger_url)
        await next_version.downgrade(ledger_url)
        after = await asked(ledger_url, "select * from client_usage order by model, client")
        assert after == [pytest.approx(row) for row in before]  # the order in which sums of floats are made may change


async def test_rows_of_the_version_before_are_added_up_wherever_they_come(
    ledger_url: str, next_version: NextVersion
) -> None:
    engine = create_engine(ledger_url)
    await insert(engine, entries(20, 1))
    await next_version.migrate(ledger_url)
    await insert(engine, entries(20, 2))
    await check_schema(engine)  # it may start again
    await fold_all(engine)
    await sums_are_whole(ledger_url)
    await insert(engine, entries(20, 3))
    await next_version.downgrade(ledger_url)
    await insert(engine, entries(20, 4))
    await next_version.migrate(ledger_url)
    await fold_all(engine)
    await engine.dispose()
    await sums_are_whole(ledger_url)


async def test_rows_that_come_during_the_upgrade_are_counted_once(postgres_url: str, next_version: NextVersion) -> None:
    engine, reader = create_engine(postgres_url), await asyncpg.connect(postgres_url)
    await insert(engine, entries(20, 1))
    reading = reader.transaction()
    await reading.start()
    await reader.execute("select from rollup_calls")  # so that a change of that table waits
    upgrade = asyncio.create_task(next_version.migrate(postgres_url))
    while not await reader.fetchval(WAITS):
        assert not upgrade.done()
    await insert(engine, entries(20, 2))
    await reading.rollback()
    await reader.close()
    await upgrade
    await fold_all(engine)
    await engine.dispose()
    await sums_are_whole(postgres_url)


async def test_an_upgrade_makes_no_sums_again_that_were_deleted(ledger_url: str, next_version: NextVersion) -> None:
    await store(ledger_url, entries(20))
    engine = create_engine(ledger_url)
    async with engine.begin() as connection:
        for table in ("rollup_calls", "rollup_attempts"):
            await connection.exec_driver_sql(f"delete from {table}")
    await engine.dispose()
    await next_version.migrate(ledger_url)
    for table in ("rollup_calls", "rollup_attempts"):
        assert await asked(ledger_url, f"select 1 from {table}") == []


async def test_the_way_back_leaves_what_was_there_each_time(ledger_url: str, next_version: NextVersion) -> None:
    before = await made(ledger_url)
    await next_version.migrate(ledger_url)
    after = await made(ledger_url)
    assert {name for kind, name, _ in after if kind == "view"} >= {"made_up", "client_usage"}
    await next_version.downgrade(ledger_url)
    await migrate(ledger_url)  # writes comments again
    assert await made(ledger_url) == before
    await downgrade(ledger_url, first_revision())
    await next_version.migrate(ledger_url)
    assert await made(ledger_url) == after
    await next_version.downgrade(ledger_url)
    await migrate(ledger_url)  # writes comments again
    assert await made(ledger_url) == before


async def test_four_replicas_that_upgrade_at_once_do_it_once(ledger_url: str, next_version: NextVersion) -> None:
    await store(ledger_url, entries(20))
    await next_version.migrate(ledger_url, replicas=4)
    assert await revision(ledger_url) == REVISION
    await sums_are_whole(ledger_url)


async def test_a_ledger_of_the_first_revision_moves_on_and_no_row_is_touched(ledger_url: str) -> None:
    await store(ledger_url, entries(20))
    await downgrade(ledger_url, first_revision())
    rows = [f"select * from {name} order by id" for name in ("calls", "attempts")]
    rows += ["select * from rollup_calls order by 1, 2, 3, 4", "select * from rollup_attempts order by 1, 2, 3"]
    engine = create_engine(ledger_url)
    async with engine.begin() as connection:  # as an older version had it
        await connection.exec_driver_sql("update ledger_readers set oldest = '0032'")
    await engine.dispose()
    rows.append("select oldest from ledger_readers")  # its id is given by a migration that came since
    before = [await asked(ledger_url, statement) for statement in rows]
    await migrate(ledger_url)
    for statement, there in zip(rows, before, strict=True):  # a column that came since is null
        since = [{name: value for name, value in row.items() if value is not None} for row in there]
        assert [
            {name: value for name, value in row.items() if value is not None}
            for row in await asked(ledger_url, statement)
        ] == since
