"""The database's URL, and the way from one schema to the next, as far as no server is needed."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import structlog
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import text

from gateway.ledger import (
    DatabaseUnreachableError,
    SchemaOutdatedError,
    SchemaTooNewError,
    check_schema,
    create_engine,
    current_revision,
    downgrade,
    head_revision,
    migrate,
    migrations_folder,
    own_signing_key,
    parse_url,
    prepare_schema,
)
from gateway.ledger.database import interrupt_sqlite, open_sqlite
from gateway.ledger.errors import DatabaseUrlError
from tests.patience import PATIENCE_S
from tests.support.ledgers import lay, migrated


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


def test_the_parameters_of_tls_that_libpq_takes_are_taken() -> None:
    tls = "sslmode=verify-full&sslrootcert=/ca.pem&sslcert=/c.pem&sslkey=/k.pem&ssl_min_protocol_version=TLSv1.3"
    assert parse_url(f"postgres://u@h/db?{tls}").query["sslrootcert"] == "/ca.pem"


async def test_a_file_of_tls_that_is_not_there_is_named() -> None:
    with pytest.raises(DatabaseUrlError, match=r"sslrootcert .* '/nowhere/ca.pem'"):
        create_engine("postgres://u:secret@h/db?sslmode=verify-full&sslrootcert=/nowhere/ca.pem")


async def test_the_machines_authorities_may_be_asked_for_by_libpqs_word() -> None:
    engine = create_engine("postgres://u@h/db?sslmode=verify-full&sslrootcert=system")
    await engine.dispose()


def test_sslmode_is_understood() -> None:
    assert parse_url("postgres://u@h/db?sslmode=require").query == {"ssl": "require"}


@pytest.mark.parametrize(
    ("given", "host", "port"),
    [
        ("postgresql://u:p@/db?host=/cloudsql/project:region:instance", "/cloudsql/project:region:instance", 5432),
        ("postgresql://u:p@/db?host=/run/pg&port=6432", "/run/pg", 6432),
        ("postgres://u:p@a,b:6432/db", ["a", "b"], [5432, 6432]),
        ("postgres://u:p@[::1]:5433,b/db?sslmode=require", ["::1", "b"], [5433, 5432]),
        ("postgresql+asyncpg://u:p@/db?host=a,b&port=1", ["a", "b"], [1, 1]),
        ("postgresql://u:p@:6432/db?host=a,b", ["a", "b"], [6432, 6432]),
    ],
)
async def test_sockets_and_several_hosts_are_written_as_libpq_does(given: str, host: object, port: object) -> None:
    engine = create_engine(f"{given}{'&' if '?' in given else '?'}target_session_attrs=read-write")
    _, asked = engine.dialect.create_connect_args(engine.url)
    await engine.dispose()
    assert (asked["host"], asked.get("port"), asked["target_session_attrs"]) == (host, port, "read-write")
    assert (asked["user"], asked["password"], asked["database"]) == ("u", "p", "db")


@pytest.mark.parametrize("hosts", ["h", "a,b:6432"])
@pytest.mark.parametrize("password", ["pa,ss", "7,Kx9w"])
def test_a_password_may_have_commas(password: str, hosts: str) -> None:
    url = parse_url(f"postgresql://u:{password}@{hosts}/db")
    assert (url.username, url.password, url.database) == ("u", password, "db")
    assert (url.host or url.query["host"]) == hosts.partition(":")[0]


@pytest.mark.parametrize(
    "given",
    [
        "",
        "no url",
        "mysql://u:secret@h/db",
        "sqlite://",
        "sqlite:///:memory:",
        "postgres://u:secret@h/db?channel_binding=x",
        "postgres://u:secret@h:99999/db",
        "postgres://u:secret@a:99999,b/db",
        "postgres://u:secret@a:x,b/db",
        "postgres://u:secret@a,/db",
        "postgres://u:secret@a,b/db?host=c",
        "postgres://u:secret@/db?host=a,b&port=1,2,3",
        "postgres://u:secret@h/db?port=1",
        "postgres://u:p@secret@h/db",
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
    lay(migrated(), tmp_path / "ledger.db")
    engine = create_engine(url)
    try:
        async with engine.begin() as connection:
            await connection.execute(text("update holeshot_version set version_num = '9999'"))
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
    lay(migrated(), tmp_path / "ledger.db")
    engine = create_engine(url)
    try:
        async with engine.begin() as connection:
            await connection.execute(text("update holeshot_version set version_num = '0000'"))
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
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[4])


@pytest.fixture
def open_umask() -> Iterator[None]:
    """A umask that takes nothing away."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): oct(path.stat().st_mode & 0o777) for path in folder.rglob("*")}


@pytest.mark.usefixtures("open_umask")
async def test_nobody_else_can_read_a_sqlite_file_its_wal_and_its_folders(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/outer/inner/holeshot.db"
    engine = create_engine(url)
    async with engine.begin() as connection:
        await connection.execute(text("create table t (a)"))
        await connection.execute(text("insert into t values (1)"))
        own_signing_key(url)
        assert modes(tmp_path) == {
            "outer": "0o700",
            "outer/inner": "0o700",
            "outer/inner/holeshot.db": "0o600",
            "outer/inner/holeshot.db-wal": "0o600",
            "outer/inner/holeshot.db-shm": "0o600",
            "outer/inner/holeshot.db.signing-key": "0o600",
        }
    await engine.dispose()


def test_a_connect_that_is_cancelled_leaves_no_thread_to_a_loop_that_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[object] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    opening, go_on = threading.Event(), threading.Event()
    connect = sqlite3.connect

    def slow(*arguments: Any, **options: Any) -> sqlite3.Connection:
        opening.set()
        go_on.wait(PATIENCE_S)
        opened: sqlite3.Connection = connect(*arguments, **options)
        return opened

    async def cancel_while_it_opens() -> None:
        engine = create_engine(f"sqlite:///{tmp_path}/holeshot.db")
        monkeypatch.setattr(sqlite3, "connect", slow)
        connecting = asyncio.ensure_future(current_revision(engine))
        await asyncio.to_thread(opening.wait, PATIENCE_S)
        connecting.cancel()
        asyncio.get_running_loop().call_later(0.05, go_on.set)
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await engine.dispose()

    before = set(threading.enumerate())
    asyncio.run(cancel_while_it_opens())
    go_on.set()
    for thread in set(threading.enumerate()) - before:
        thread.join()
    assert not failures


async def test_a_connection_that_comes_back_after_its_engine_was_disposed_is_closed(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/holeshot.db")
    async with engine.connect() as connection:
        raw: Any = (await connection.get_raw_connection()).driver_connection
        await engine.dispose()
        assert await connection.scalar(text("select 1")) == 1
    assert raw._connection is None  # else its thread goes on


@pytest.mark.parametrize(("before", "after"), [(0o644, "0o640"), (0o666, "0o660"), (0o640, "0o640"), (0o600, "0o600")])
async def test_a_sqlite_file_that_all_may_read_is_closed_to_those_outside_its_group(
    tmp_path: Path, before: int, after: str
) -> None:
    path = tmp_path / "holeshot.db"
    path.touch()
    path.chmod(before)
    engine = create_engine(f"sqlite:///{path}")
    await engine.dispose()
    assert modes(tmp_path) == {"holeshot.db": after}


def test_processes_with_one_sqlite_file_share_a_key_that_lasts(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/var/holeshot.db"
    with ThreadPoolExecutor(8) as threads:
        keys = set(threads.map(own_signing_key, [url] * 32))
    assert keys == {own_signing_key(url)}
    assert len(keys.pop()) == 64
    assert [path.name for path in (tmp_path / "var").iterdir()] == ["holeshot.db.signing-key"]
    assert own_signing_key(f"sqlite:///{tmp_path}/other.db") != own_signing_key(url)
    assert own_signing_key("postgresql://u@h/db") == ""


def test_a_signing_key_that_cannot_be_read_or_is_short_is_replaced_by_one_of_this_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/holeshot.db"
    path = tmp_path / "holeshot.db.signing-key"
    path.write_text("short")
    with structlog.testing.capture_logs() as logged:
        assert len(own_signing_key(url)) == 64
        path.unlink()
        path.mkdir()
        assert own_signing_key(url) != own_signing_key(url)
    assert {entry["event"] for entry in logged} == {"ledger.signing_key_unusable"}


async def test_a_statement_of_sqlite_that_is_cancelled_before_it_began_does_not_run_for_ever() -> None:
    endless = "with recursive n as (select 1 as i union all select i + 1 from n) select max(i) from n"
    connection: Any = await open_sqlite(":memory:")
    begin = threading.Event()
    busy = asyncio.ensure_future(connection._execute(begin.wait))
    asked = asyncio.ensure_future(connection.execute(endless))
    await asyncio.sleep(0)
    asked.cancel()
    ending = asyncio.ensure_future(interrupt_sqlite(connection))
    await asyncio.sleep(0)  # interrupted for the first time, while nothing runs
    begin.set()
    async with asyncio.timeout(PATIENCE_S):
        await ending
        await connection.close()
    assert await busy
    assert asked.cancelled()


def test_a_connection_of_sqlite_ends_quietly_where_its_loop_is_closed_before_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    begin = threading.Event()

    async def leave_while_it_works() -> Any:
        connection: Any = await open_sqlite(str(tmp_path / "ledger.db"))
        busy = asyncio.ensure_future(connection._execute(begin.wait))
        await asyncio.sleep(0)
        busy.cancel()
        connection.stop()
        return connection

    connection = asyncio.run(leave_while_it_works())
    begin.set()
    connection._thread.join(PATIENCE_S)
    assert not connection._thread.is_alive()
    assert connection._connection is None
    assert failed == []


async def test_a_file_that_is_no_database_is_named_at_the_start_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_text("A letter to the operator, of more than the hundred bytes that a database begins with. " * 2)
    for step, error in ((prepare_schema, DatabaseUrlError), (migrate, DatabaseUnreachableError)):
        with pytest.raises(error, match=r"ledger\.db cannot be used: file is not a database; name another file"):
            await step(f"sqlite:///{path}")
