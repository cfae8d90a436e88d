"""Whom the ledger is asked as: what such a role may do besides is said, and the reader role may do nothing."""

from collections.abc import AsyncIterator

import asyncpg
import pytest
from sqlalchemy.engine import URL, make_url
from typer.testing import CliRunner

from gateway.cli.main import application
from gateway.ledger import queries, reader_sql
from gateway.ledger.queries import READER, powers


@pytest.fixture
async def owner(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


@pytest.fixture
async def reader_url(postgres_url: str, owner: asyncpg.Connection) -> AsyncIterator[str]:
    """The ledger as the role that ``holeshot sql --reader-role`` describes."""
    await owner.execute(reader_sql(make_url(postgres_url)))
    yield _as(postgres_url, READER)
    await _drop(owner, READER)


async def _drop(owner: asyncpg.Connection, role: str) -> None:
    await owner.execute(f"drop owned by {role}; drop role {role}")


def _as(url: str, role: str) -> str:
    parsed: URL = make_url(url)
    return parsed.set(username=role).render_as_string(hide_password=False)


async def _powers_of(url: str) -> str | None:
    return (await queries.run(url, "select 1", examine_role=True)).role_may


async def test_the_reader_role_reads_everything_and_may_do_nothing_else(reader_url: str) -> None:
    assert await _powers_of(reader_url) is None
    for relation in (
        "calls",
        "attempts",
        "refusals",
        "outages",
        "slowdowns",
        "wrong_keys_24h",
        "leaderboard",
        "throughput",
        "slo",
        "provider_errors",
    ):
        await queries.run(reader_url, f"select * from {relation}")
    reader = await asyncpg.connect(reader_url)
    try:
        assert await powers(reader) is None
        await reader.execute("set default_transaction_read_only = off")  # whoever gets round ours
        for statement in (
            "delete from calls",
            "create table mine (x int)",
            "select pg_read_file('/etc/passwd')",
            "copy (select 1) to program 'true'",
            "select lo_import('/etc/passwd')",
            "set role postgres",
            "select roll_up_fresh()",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await reader.execute(statement)
    finally:
        await reader.close()


async def test_the_reader_role_reads_what_a_later_version_adds(reader_url: str, owner: asyncpg.Connection) -> None:
    await owner.execute("create table later (x int); create view later_still as select * from later")
    assert (await queries.run(reader_url, "select x from later_still")).columns == ("x",)


@pytest.mark.parametrize(
    ("grant", "words"),
    [
        ("grant insert on calls to asker", "write the ledger"),
        ("grant truncate on attempts to asker", "write the ledger"),
        ("alter table calls owner to asker", "write the ledger"),
        ("grant create on schema public to asker", "create tables and functions"),
        ("alter role asker createrole", "make roles"),
        ("grant pg_read_server_files to asker", "read the server's files"),
        ("grant pg_write_server_files to asker", "write the server's files"),
        ("grant pg_execute_server_program to asker", "run programs on the server"),
        ("grant pg_signal_backend to asker", "end other sessions"),
        ("alter role asker superuser", "is a superuser"),
    ],
)
async def test_what_a_role_may_do_besides_is_told(
    postgres_url: str, owner: asyncpg.Connection, grant: str, words: str
) -> None:
    await owner.execute("create role asker login; grant select on all tables in schema public to asker")
    try:
        assert await _powers_of(_as(postgres_url, "asker")) is None
        await owner.execute(grant)
        assert words in str(await _powers_of(_as(postgres_url, "asker")))
    finally:
        await owner.execute("alter table calls owner to current_user")
        await _drop(owner, "asker")


def test_sql_says_in_one_line_that_its_role_may_do_more(postgres_url: str) -> None:
    asked = CliRunner().invoke(application(), ["sql", "select 1 as one"], env={"HOLESHOT_SQL_URL": postgres_url})
    assert (asked.exit_code, asked.stdout) == (0, "one\n1\n")
    [line] = asked.stderr.splitlines()
    assert line.startswith("holeshot: the role postgres is a superuser")
    assert "--reader-role" in line


def test_sql_prints_how_to_make_a_reader_and_says_nothing_to_it(
    postgres_url: str, reader_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = CliRunner().invoke(application(), ["sql", "--reader-role"], env={"HOLESHOT_DATABASE_URL": postgres_url})
    assert printed.stdout == reader_sql(make_url(postgres_url))
    asked = CliRunner().invoke(
        application(),
        ["sql", "select 1 as one"],
        env={"HOLESHOT_DATABASE_URL": postgres_url, "HOLESHOT_SQL_URL": reader_url},
    )
    assert (asked.exit_code, asked.stdout, asked.stderr) == (0, "one\n1\n", "")


def test_the_settings_know_that_the_variable_is_none_of_theirs(postgres_url: str) -> None:
    checked = CliRunner().invoke(
        application(), ["check"], env={"HOLESHOT_DATABASE_URL": postgres_url, "HOLESHOT_SQL_URL": postgres_url}
    )
    assert "SQL_URL" not in checked.output
