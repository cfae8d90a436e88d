"""Read-only questions in the asker's own SQL."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import pytest

from gateway.ledger import DatabaseUnreachableError, Ledger, SchemaOutdatedError, downgrade, migrate, queries
from gateway.ledger.errors import QueryError
from tests.unit.ledger.records import NOON, call, minutes, new_id, won


async def test_an_answer_has_names_and_rows(ledger_url: str) -> None:
    result = await queries.run(ledger_url, "select 1 as one, 'x%sx' as two -- a comment")
    assert result == queries.Result(("one", "two"), [(1, "x%sx")])


async def test_no_rows_still_have_columns(ledger_url: str) -> None:
    result = await queries.run(ledger_url, "select id, model from calls;")
    assert result == queries.Result(("id", "model"), [])


@pytest.mark.parametrize(
    "sql",
    [
        "delete from calls",
        "drop view slo",
        "create table mine (x int)",
        "select 1; select 2",
        "select 1; delete from calls",
        "commit; delete from calls",
        "select nothing from nowhere",
        "insert into holeshot_version values ('x') returning version_num",
        "copy calls to program 'true'",
        "commit",
        "set statement_timeout = 0",
        "do $$ begin perform 1; end $$",
    ],
)
async def test_what_writes_is_several_or_wrong_is_refused(ledger_url: str, sql: str) -> None:
    with pytest.raises(QueryError):
        await queries.run(ledger_url, sql)
    assert (await queries.run(ledger_url, "select count(*) from holeshot_version")).rows == [(1,)]


@pytest.mark.parametrize("name", ["calls", "race_value_24h"])
async def test_before_the_first_migration_the_command_to_run_is_named(empty_postgres_url: str, name: str) -> None:
    with pytest.raises(SchemaOutdatedError, match=r"the database has no ledger yet; run: holeshot migrate"):
        await queries.run(empty_postgres_url, f"select * from {name}")


async def test_after_an_older_migration_a_newer_view_names_the_command_too(empty_postgres_url: str) -> None:
    await migrate(empty_postgres_url)
    await downgrade(empty_postgres_url, "0045")

    assert (await queries.run(empty_postgres_url, "select count(*) from calls")).rows == [(0,)]
    with pytest.raises(SchemaOutdatedError, match=r"schema is 0045, this version needs .*; run: holeshot migrate"):
        await queries.run(empty_postgres_url, "select * from a_view_of_tomorrow")


async def test_a_name_that_no_migration_makes_is_the_server_s_to_refuse(postgres_url: str) -> None:
    with pytest.raises(QueryError, match='relation "nowhere" does not exist'):
        await queries.run(postgres_url, "select * from nowhere")


async def test_a_wrong_name_is_answered_with_the_nearest(ledger_url: str) -> None:
    for sql, told in (
        ("select * from troughput_24h", "did you mean 'throughput_24h'[?] The views are .*race_value_30d.*; tables: "),
        ("select ttft_p95 from throughput_24h", "ttft_p95.*; did you mean 'ttft_p95_ms'"),
    ):
        with pytest.raises(QueryError, match=told):
            await queries.run(ledger_url, sql)


async def test_hours_and_percentiles_are_asked_alike_on_both_databases(ledger_url: str, tmp_path: Path) -> None:
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    for minute, ttft_ms in ((5, 100.0), (10, 200.0), (70, 300.0)):
        at = datetime(2026, 11, 29, 14, tzinfo=UTC) + minutes(minute)
        ledger.call_finished(call(won(new_id(), started_at=at, ttft_ms=ttft_ms), started_at=at, ttft_ms=ttft_ms))
    await ledger.flush()
    await ledger.close()
    found = await queries.run(
        ledger_url,
        "select date_trunc('hour', started_at) as hour, percentile_cont(0.95) within group (order by ttft_ms) as p95,"
        " percentile_disc(0.5) within group (order by ttft_ms desc) as median from attempts"
        " where started_at >= '2026-11-29' and started_at < '2026-11-30' "
        " group by date_trunc('hour', started_at) order by hour",
    )
    hours = [row[0] if isinstance(row[0], str) else f"{row[0]:%Y-%m-%d %H:%M:%S}" for row in found.rows]
    assert hours == ["2026-11-29 14:00:00", "2026-11-29 15:00:00"]
    assert [row[1:] for row in found.rows] == [(pytest.approx(195.0), 200.0), (300.0, 300.0)]


@pytest.fixture
async def outside(postgres_url: str, tmp_path: Path) -> AsyncIterator[str]:
    """A large object, a sequence and functions of the database's own, which a question could misuse."""
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(
        "create sequence numbers; "
        "create function sweep() returns int language sql as 'delete from calls returning 1'; "
        "create function harmless() returns int stable language sql as 'select 1'"
    )
    with suppress(asyncpg.PostgresError):
        await connection.execute("create extension dblink")  # not every server has it
    yield str(await connection.fetchval("select lo_from_bytea(0, 'secret')"))
    await connection.close()


@pytest.mark.parametrize(
    "sql",
    [
        "select pg_read_file('/etc/passwd')",
        "select PG_READ_FILE('/etc/passwd')",
        "select pg_catalog.\"pg_read_file\"('/etc/passwd')",
        "select pg_catalog . pg_read_file ('/etc/passwd')",
        "select U&\"pg_read_f\\0069le\"('/etc/passwd')",
        "select u&\"pg!_read_f!0069le\" UESCAPE '!' ('/etc/passwd')",
        "select 1 from calls where 1=1and pg_read_file('/etc/passwd') is not null",
        "select * from pg_ls_dir('/')",
        "select lo_export({lo}, '{folder}/exported')",
        "select lo_import('/etc/passwd')",
        "select lo_put({lo}, 0, 'x')",
        "select * from pg_largeobject",
        "select * from pg_authid",
        "select table_to_xml('pg_auth' || 'id', true, false, '')",
        "select table_to_xml(1260, true, false, '')",
        "select schema_to_xml_and_xmlschema('pg_catalog', true, false, '')",
        "select pg_catalog.\"database_to_xml\"(true, false, '')",
        "select query_to_xml('select pg_read_file(''/etc/passwd'')', true, true, '')",
        "select query_to_xml('select pg_' || 'read_file(''/etc/passwd'')', true, true, '')",
        "select dblink('dbname=postgres', 'delete from calls')",
        "select pg_terminate_backend(pid) from pg_stat_activity",
        "select pg_cancel_backend(1)",
        "select pg_reload_conf()",
        "select pg_advisory_lock(1)",
        "select pg_notify('a', 'b')",
        "select pg_stat_reset()",
        "select pg_switch_wal()",
        "select set_config('transaction_read_only', 'off', false)",
        "select set_config('statement_timeout', '0', false)",
        "select nextval('numbers')",
        "select setval('numbers', 1)",
        "select sweep()",
        "select * from calls for update",
        "with gone as (delete from calls returning 1) select * from gone",
        "explain analyze delete from calls",
        "set transaction read write",
        "set session characteristics as transaction read write",
        "set role postgres",
        "reset role",
        "copy (select 1) to '{folder}/copied'",
        "copy (select 1) to program 'touch {folder}/touched'",
        "copy calls from '/etc/passwd'",
        "rollback; delete from calls",
        "select 1; select pg_read_file('/etc/passwd')",
        "listen x",
        "lock table calls",
        "vacuum",
    ],
)
async def test_in_postgres_a_question_does_nothing_but_read(
    postgres_url: str, outside: str, tmp_path: Path, sql: str
) -> None:
    folder = tmp_path / "reachable"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(QueryError):
        await queries.run(postgres_url, sql.format(lo=outside, folder=folder))
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "sql",
    [
        "select now(), clock_timestamp(), random(), gen_random_uuid()",
        "select pg_size_pretty(pg_total_relation_size('calls'))",
        "select percentile_cont(0.5) within group (order by ttft_ms) from calls",
        "select count(*) over () from calls c join lateral (select * from attempts where call_id = c.id) a on true",
        "select tags ->> 'system', jsonb_array_length('[1]'), string_agg(model, ',') from calls group by tags",
        "select * from generate_series(1, 3) as n",
        "select harmless()",
        "explain analyze select * from calls",
        "show timezone",
        "table calls",
        "values (1)",
        "select * from leaderboard",
        "select * from slo",
        "select state, query from pg_stat_activity",
    ],
)
async def test_in_postgres_what_only_reads_is_run(postgres_url: str, outside: str, sql: str) -> None:
    assert (await queries.run(postgres_url, sql)).columns


@pytest.mark.parametrize(
    "sql",
    [
        "attach '{folder}/made.db' as made",
        "attach database 'file:/etc/passwd?mode=ro' as other",
        "detach main",
        "vacuum into '{folder}/copied.db'",
        "vacuum",
        "pragma writable_schema = on",
        "pragma query_only = off",
        "PRAGMA Query_Only = off",
        "pragma journal_mode = delete",
        "pragma temp_store_directory = '/'",
        "pragma mmap_size = 1",
        "select * from pragma_journal_mode('delete')",
        "select load_extension('/tmp/evil.so')",
        "select writefile('{folder}/written', 'x')",
        "select readfile('/etc/passwd')",
        "select fts3_tokenizer('simple')",
        "create temp table mine (x int)",
        "begin",
        "begin immediate",
        "savepoint s",
        "update calls set model = 'x'",
        "replace into calls (id) values ('x')",
        "insert into calls (id) values ('x') returning id",
        "select 1; attach '{folder}/made.db' as made",
    ],
)
async def test_in_sqlite_a_question_does_nothing_but_read_this_file(sqlite_url: str, tmp_path: Path, sql: str) -> None:
    folder = tmp_path / "reachable"
    folder.mkdir()
    with pytest.raises(QueryError):
        await queries.run(sqlite_url, sql.format(folder=folder))
    assert list(folder.iterdir()) == []


async def test_in_sqlite_the_refusal_says_what_is_refused(sqlite_url: str) -> None:
    with pytest.raises(QueryError, match="other files are not attached"):
        await queries.run(sqlite_url, "attach ':memory:' as m")
    with pytest.raises(QueryError, match="pragma mmap_size is not run"):
        await queries.run(sqlite_url, "pragma mmap_size = 1")


@pytest.mark.parametrize(
    "sql",
    [
        "pragma table_info(calls)",
        "select * from pragma_table_info('calls')",
        "select * from json_each('[1, 2]')",
        "select json_extract(tags, '$.a'), row_number() over (order by started_at) from calls",
        "with recursive n as (select 1 as i union all select i + 1 from n where i < 3) select * from n",
        "explain query plan select * from calls",
        "select * from sqlite_master",
        "select * from leaderboard",
    ],
)
async def test_in_sqlite_what_only_reads_is_run(sqlite_url: str, sql: str) -> None:
    assert (await queries.run(sqlite_url, sql)).columns


async def test_a_query_that_takes_too_long_is_stopped(ledger_url: str) -> None:
    forever = "with recursive n as (select 1 as i union all select i + 1 from n) select count(*) from n where i < 0"
    with pytest.raises(QueryError, match="longer than"):
        await queries.run(ledger_url, forever, timeout_s=0.05)


def test_a_time_out_while_a_file_is_opened_leaves_its_thread_a_loop_to_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty.db").touch()
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    failures: list[object] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    before = set(threading.enumerate())
    for _ in range(20):
        with pytest.raises(QueryError, match="longer than"):
            asyncio.run(queries.run(url, "select 1", timeout_s=0))
        for thread in set(threading.enumerate()) - before:
            thread.join()
    assert not failures


@pytest.mark.parametrize("url", ["sqlite:////nowhere/at/all.db", "postgresql://u:secret@127.0.0.1:1/db"])
async def test_a_missing_database_is_unreachable(url: str, tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnreachableError) as failure:
        await queries.run(url, "select 1")
    assert "secret" not in str(failure.value)


MANY = "with recursive n (i) as (select 1 union all select i + 1 from n where i < 100000) select i, 'text' from n"


async def test_of_a_long_answer_only_a_batch_is_in_memory(ledger_url: str) -> None:
    async with queries.asked(ledger_url, MANY, timeout_s=None) as answer:
        sizes = [len(batch) async for batch in answer.batches]
    assert max(sizes) <= queries.BATCH_ROWS
    assert sum(sizes) == 100_000


async def test_a_reader_that_has_had_enough_ends_the_question(ledger_url: str) -> None:
    async with queries.asked(ledger_url, MANY, timeout_s=None) as answer:
        async for batch in answer.batches:
            assert batch[0] == (1, "text")
            break
    assert (await queries.run(ledger_url, "select 1")).rows == [(1,)]


async def test_a_question_that_fails_late_says_so(postgres_url: str) -> None:
    async with queries.asked(
        postgres_url, "select 1 / (5000 - i) from generate_series(1, 9000) i", timeout_s=None
    ) as answer:
        with pytest.raises(QueryError, match="division by zero"):
            async for _ in answer.batches:
                pass


async def test_a_pipe_that_nobody_reads_is_no_fault_of_the_database(ledger_url: str) -> None:
    with pytest.raises(BrokenPipeError):
        async with queries.asked(ledger_url, MANY):
            raise BrokenPipeError


# Forms of one instant, as people and programs write it.
FORMS = (
    "2026-03-04 12:00:00", "2026-03-04T12:00:00Z", "2026-03-04T12:00:00.000Z", "2026-03-04T12:00",
    "2026-03-04t12:00:00z", "2026-03-04 12:00:00+00:00", "2026-03-04T14:00:00+02:00",
)  # fmt: skip
AROUND = (NOON - minutes(1), NOON + minutes(1))


@pytest.mark.parametrize("form", FORMS)
async def test_times_are_compared_in_whatever_form_they_are_written(ledger_url: str, tmp_path: Path, form: str) -> None:
    ledger = Ledger(ledger_url, tmp_path / "spool", "queries")
    for at in AROUND:
        ledger.call_finished(call(won(new_id(), started_at=at), started_at=at, tags={"at": form}))
    await ledger.flush()
    await ledger.close()
    sqlite = ledger_url.startswith("sqlite")
    tag = "json_extract(tags, '$.at')" if sqlite else "tags ->> 'at'"
    for condition, count in (
        (f"started_at > '{form}'", 1),
        (f"'{form}'<calls.started_at /* > '{form}' */", 1),
        (f"started_at between '2026-03-04' and '{form}'", 1),
        (f"started_at not between '2026-03-04' and '{form}' -- '{form}", 1),
        (f"started_at between '{form}' and '2026-03-04T23:00:00Z'", 1),
        (f"\"started_at\" <= '{form}' or started_at>'{form}'", 2),
        (f"{tag} = '{form}'", 2),  # text that looks like a time, and is none
    ):
        found = await queries.run(ledger_url, f"select count(*) from calls where {condition}")
        assert found.rows == [(count,)], condition
    windows = f"select count(*) from rollup_calls where minutes = 60 and window_start >= '{form}'"
    assert (await queries.run(ledger_url, windows)).rows == [(0,)]  # hours of March are not kept
    windows = f"select count(*) from rollup_calls where minutes = 1440 and window_start < '{form}'"
    assert (await queries.run(ledger_url, windows)).rows == [(1,)]


async def test_now_is_understood_on_both_databases(ledger_url: str, tmp_path: Path) -> None:
    ledger = Ledger(ledger_url, tmp_path / "spool", "queries")
    at = datetime.now(UTC) - minutes(90)
    ledger.call_finished(call(won(new_id(), started_at=at), started_at=at))
    await ledger.flush()
    await ledger.close()
    for condition, count in (
        ("started_at > now() - interval '1 hour'", 0),
        ("started_at>NOW( )-interval '2 hours' and started_at < now()", 1),
        ("now() - INTERVAL '1 day' < started_at -- now()", 1),
        ("started_at > now()", 0),
        ("started_at < now() + interval '10 minutes' and 'now() - interval' <> ''", 1),
    ):
        found = await queries.run(ledger_url, f"select count(*) from calls where {condition}")
        assert found.rows == [(count,)], condition
