"""A ledger in the schema of another program that uses Alembic, too, and one from when we had its table's name."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import inspect, text

from gateway.ledger import (
    SchemaOutdatedError,
    check_schema,
    create_engine,
    current_revision,
    downgrade,
    head_revision,
    migrate,
    queries,
)

BEFORE = "0045"
THEIRS = ("create table alembic_version (version_num varchar(32) primary key)", "create table experiments (id integer)")


@pytest.fixture
def empty_url(request: pytest.FixtureRequest, ledger_url: str) -> str:
    """An empty database of the same kind as ``ledger_url``."""
    if ledger_url.startswith("sqlite"):
        return ledger_url.replace("ledger.db", "empty.db")
    return str(request.getfixturevalue("empty_postgres_url"))


async def run(url: str, *statements: str) -> None:
    engine = create_engine(url)
    try:
        async with engine.begin() as connection:
            for statement in statements:
                await connection.execute(text(statement))
    finally:
        await engine.dispose()


async def rows(url: str, table: str) -> list[Any]:
    """Return what is in a table of versions; empty if there is none."""
    engine = create_engine(url)
    try:
        async with engine.connect() as connection:
            if not await connection.run_sync(lambda sync: inspect(sync).has_table(table)):
                return []
            return list(await connection.scalars(text(f"select version_num from {table} order by 1")))
    finally:
        await engine.dispose()


async def revision(url: str) -> str | None:
    engine = create_engine(url)
    try:
        return await current_revision(engine)
    finally:
        await engine.dispose()


@pytest.mark.parametrize("theirs", ["f5a4f2784254", "0044"])
async def test_another_programs_versions_are_left_alone_by_every_step(empty_url: str, theirs: str) -> None:
    await run(empty_url, *THEIRS, f"insert into alembic_version values ('{theirs}')")
    assert await revision(empty_url) is None
    for step, expected in (
        (migrate(empty_url), head_revision()),
        (migrate(empty_url), head_revision()),
        (downgrade(empty_url, BEFORE), BEFORE),
        (migrate(empty_url), head_revision()),
        (downgrade(empty_url, "base"), None),
        (migrate(empty_url), head_revision()),
    ):
        await step
        assert await revision(empty_url) == expected
        assert await rows(empty_url, "alembic_version") == [theirs]


async def test_a_schema_of_another_program_alone_has_no_ledger_yet(empty_url: str) -> None:
    await run(empty_url, *THEIRS, "insert into alembic_version values ('f5a4f2784254')")
    engine = create_engine(empty_url)
    try:
        with pytest.raises(SchemaOutdatedError, match="has no ledger yet; run: holeshot migrate"):
            await check_schema(engine)
    finally:
        await engine.dispose()
    with pytest.raises(SchemaOutdatedError, match="has no ledger yet; run: holeshot migrate"):
        await queries.run(empty_url, "select count(*) from calls")


async def test_a_new_ledger_leaves_the_name_to_others(ledger_url: str) -> None:
    assert await rows(ledger_url, "holeshot_version") == [head_revision()]
    await run(ledger_url, *THEIRS, "insert into alembic_version values ('f5a4f2784254')")
    await migrate(ledger_url)
    assert await rows(ledger_url, "alembic_version") == ["f5a4f2784254"]


async def test_a_ledger_from_before_is_carried_over_once_by_replicas_that_start_at_once(ledger_url: str) -> None:
    await downgrade(ledger_url, BEFORE)
    assert await rows(ledger_url, "holeshot_version") == []
    assert await rows(ledger_url, "alembic_version") == [BEFORE]
    assert await revision(ledger_url) == BEFORE
    await asyncio.gather(*(migrate(ledger_url) for _ in range(3)))
    assert await rows(ledger_url, "holeshot_version") == [head_revision()]


async def test_the_version_before_reads_where_it_looks_what_the_schema_is_until_nobody_needs_it(
    ledger_url: str,
) -> None:
    await downgrade(ledger_url, BEFORE)
    await migrate(ledger_url)
    assert await rows(ledger_url, "alembic_version") == [head_revision()]
    await run(ledger_url, "drop table alembic_version", *THEIRS, "insert into alembic_version values ('f5a4f2784254')")
    await migrate(ledger_url)
    assert await revision(ledger_url) == head_revision()
    assert await rows(ledger_url, "alembic_version") == ["f5a4f2784254"]


async def test_what_an_older_version_did_meanwhile_is_known(ledger_url: str) -> None:
    await downgrade(ledger_url, BEFORE)
    await run(ledger_url, "update alembic_version set version_num = '0044'")
    assert await revision(ledger_url) == "0044"
    await run(ledger_url, f"update alembic_version set version_num = '{BEFORE}'")
    await migrate(ledger_url)
    assert await revision(ledger_url) == head_revision()


async def test_a_ledger_that_is_dropped_leaves_no_table_of_versions(ledger_url: str) -> None:
    await downgrade(ledger_url, BEFORE)
    await migrate(ledger_url)
    await downgrade(ledger_url, "base")
    assert await rows(ledger_url, "alembic_version") == await rows(ledger_url, "holeshot_version") == []
    assert await revision(ledger_url) is None


async def test_an_older_file_is_told_to_be_migrated_by_who_asks_it(sqlite_url: str) -> None:
    await downgrade(sqlite_url, BEFORE)
    await run(sqlite_url, "drop view leaderboard")
    with pytest.raises(SchemaOutdatedError, match=f"schema is {BEFORE}, this version needs {head_revision()}"):
        await queries.run(sqlite_url, "select * from leaderboard")


async def test_a_file_that_is_too_old_is_told_the_remedy_by_who_asks_it(sqlite_url: str) -> None:
    await run(sqlite_url, "update holeshot_version set version_num = '0044'", "drop view leaderboard")
    with pytest.raises(SchemaOutdatedError, match=r"schema is 0044.* from 0045 on: first run `holeshot migrate`"):
        await queries.run(sqlite_url, "select * from leaderboard")


async def test_who_may_read_the_revision_still_may(postgres_url: str) -> None:
    await downgrade(postgres_url, BEFORE)
    await run(postgres_url, "create role watcher_of_versions", "grant select on alembic_version to watcher_of_versions")
    try:
        await migrate(postgres_url)
        may = "select has_table_privilege('watcher_of_versions', 'holeshot_version', 'select')"
        assert (await queries.run(postgres_url, may)).rows == [(True,)]
    finally:
        await run(postgres_url, "drop owned by watcher_of_versions", "drop role watcher_of_versions")
