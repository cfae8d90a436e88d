"""The database's URL, and the way from one schema to the next, as far as no server is needed."""

import asyncio
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import text

from gateway.ledger.database import (
    check_schema,
    create_engine,
    current_revision,
    downgrade,
    head_revision,
    migrate,
    migrations_folder,
    parse_url,
)
from gateway.ledger.errors import DatabaseUnreachableError, DatabaseUrlError, SchemaOutdatedError, SchemaTooNewError


async def revision_of(url: str) -> str | None:
    engine = create_engine(url)
    try:
        return await current_revision(engine)
    finally:
        await engine.dispose()


@pytest.mark.parametrize(
    ("given", "driver"),
    [
        ("postgresql://u@h/db", "postgresql+asyncpg"),
        ("postgres://u@h/db", "postgresql+asyncpg"),
        ("postgresql+asyncpg://u@h/db", "postgresql+asyncpg"),
        ("sqlite:///var/x.db", "sqlite+aiosqlite"),
        ("sqlite+aiosqlite:////abs/x.db", "sqlite+aiosqlite"),
    ],
)
def test_plain_urls_mean_their_asynchronous_drivers(given: str, driver: str) -> None:
    assert parse_url(given).drivername == driver


def test_sslmode_is_understood() -> None:
    assert parse_url("postgres://u@h/db?sslmode=require").query == {"ssl": "require"}


@pytest.mark.parametrize(
    "given",
    [
        "",
        "no url",
        "mysql://u:secret@h/db",
        "sqlite://",
        "sqlite:///:memory:",
        "postgres://u:secret@h/db?channel_binding=x",
    ],
)
def test_what_the_ledger_cannot_use_is_refused_in_words_without_the_password(given: str) -> None:
    with pytest.raises(DatabaseUrlError) as refusal:
        parse_url(given)
    assert "secret" not in str(refusal.value)
    assert "database_url" in str(refusal.value)


def test_the_newest_migration_is_alembics_head() -> None:
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()))
    assert ScriptDirectory.from_config(config).get_heads() == [head_revision()]


async def test_a_database_without_tables_is_outdated_until_migrated(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/made/on/the/way/ledger.db"
    engine = create_engine(url)
    try:
        assert await current_revision(engine) is None
        with pytest.raises(SchemaOutdatedError, match="holeshot migrate"):
            await check_schema(engine)
        await migrate(url)
        await migrate(url)
        await check_schema(engine)
        await downgrade(url, "base")
        with pytest.raises(SchemaOutdatedError, match="holeshot migrate"):
            await check_schema(engine)
    finally:
        await engine.dispose()


async def test_migrations_of_sqlite_at_once_all_succeed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    await asyncio.gather(*(migrate(url) for _ in range(3)))
    assert await revision_of(url) == head_revision()


async def test_a_migration_of_sqlite_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    engine = create_engine(url)
    try:
        async with engine.begin() as connection:
            await connection.exec_driver_sql("create table buckets (mine integer)")  # in the way of the second step
        with pytest.raises(DatabaseUnreachableError, match="buckets"):
            await migrate(url)
        async with engine.connect() as connection:
            found = await connection.exec_driver_sql("select name from sqlite_master where type = 'table'")
            assert found.scalars().all() == ["buckets"]
    finally:
        await engine.dispose()


@pytest.mark.parametrize(
    ("oldest", "is_taken"), [(None, False), ("9999", False), (head_revision(), True), ("0003", True)]
)
async def test_a_newer_schema_says_which_versions_may_use_it(
    tmp_path: Path, oldest: str | None, is_taken: bool
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    await migrate(url)
    engine = create_engine(url)
    try:
        async with engine.begin() as connection:
            await connection.execute(text("update alembic_version set version_num = '9999'"))
            if oldest is None:
                await connection.execute(text("drop table ledger_readers"))
            else:
                await connection.execute(text("update ledger_readers set oldest = :oldest"), {"oldest": oldest})
        with nullcontext() if is_taken else pytest.raises(SchemaTooNewError):
            await check_schema(engine)
    finally:
        await engine.dispose()


async def test_an_older_schema_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    await migrate(url)
    engine = create_engine(url)
    try:
        async with engine.begin() as connection:
            await connection.execute(text("update alembic_version set version_num = '0000'"))
        with pytest.raises(SchemaOutdatedError):
            await check_schema(engine)
    finally:
        await engine.dispose()


async def test_an_unreachable_database_is_named_without_its_password(unused_tcp_port: int) -> None:
    engine = create_engine(f"postgresql://user:secret@127.0.0.1:{unused_tcp_port}/db")
    try:
        with pytest.raises(DatabaseUnreachableError, match="user") as failure:
            await check_schema(engine)
    finally:
        await engine.dispose()
    assert "secret" not in str(failure.value)


def test_serving_needs_no_alembic() -> None:
    program = "import sys, gateway.ledger.writer, gateway.ledger.queries; sys.exit('alembic' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[3])
