"""The tables and views as the migrations make them, held against what the code believes and against each other."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, inspect

from gateway.ledger import (
    ATTEMPT_COLUMNS,
    CALL_COLUMNS,
    DatabaseUnreachableError,
    Finished,
    Ledger,
    SchemaOutdatedError,
    SchemaTooNewError,
    attempt_rows,
    call_rows,
    check_schema,
    create_engine,
    database,
    downgrade,
    head_revision,
    metadata,
    migrate,
    queries,
)
from gateway.ledger.migration_files import first_revision
from gateway.ledger.schema import UNTIL, Changes, renamed, views_of
from tests.services.next_version import NextVersion
from tests.unit.ledger.records import raced_call

# Comments are written from docs/reference/ledger.md, and held to it by a test of their own.
COMMENTED = ("modify_comment", "add_table_comment", "remove_table_comment")


async def inspected(url: str, look: Any) -> Any:
    engine = create_engine(url)
    try:
        async with engine.connect() as connection:
            return await connection.run_sync(look)
    finally:
        await engine.dispose()


def differences(connection: Connection) -> list[Any]:
    def is_ours(
        _found: Any, name: str | None, kind: str, *_more: Any
    ) -> bool:  # partitions and sums are the database's own
        return kind != "table" or name in metadata.tables

    context = MigrationContext.configure(connection, opts={"compare_type": True, "include_object": is_ours})
    known = ("holeshot_version", "calls_tags")  # the index of tags is Postgres' alone
    found = [
        each
        for group in compare_metadata(context, metadata)
        for each in (group if isinstance(group, list) else [group])
        if each[0] not in COMMENTED
    ]
    return [each for each in found if not any(name in str(each) for name in known)]


def tables_and_views(connection: Connection) -> dict[str, list[str]]:
    inspector = inspect(connection)
    names = [name for name in inspector.get_table_names() if not OF_ONE_ENGINE.fullmatch(name)]
    names += [name for name in inspector.get_view_names() if name != "rollup_pending"]
    return {name: [column["name"] for column in inspector.get_columns(name)] for name in names}


# Postgres has partitions; both note which rows are new, each in its own way.
OF_ONE_ENGINE = re.compile(r"holeshot_version|(calls|attempts)_(first|default|\d+)|rollup_fresh(_\w+)?|rollup_waiting")
WINDOWED = {
    "race_value": ("", "_1h", "_24h", "_30d"),
    "throughput": ("", "_1h", "_24h", "_30d"),
    "provider_errors": ("", "_24h", "_30d"),
    "client_usage": ("", "_24h", "_30d"),
    "tag_values": ("", "_30d"),
    "slo": ("", "_30d"),
    "cache_value": ("", "_30d"),
    "waste": ("_24h", "_30d"),
    "answer_quality": ("_24h", "_30d"),
}


async def test_the_migrated_tables_are_the_ones_the_code_knows(ledger_url: str) -> None:
    assert await inspected(ledger_url, differences) == []


async def test_both_databases_have_the_same_tables_and_views_with_the_same_columns(
    postgres_url: str, sqlite_url: str
) -> None:
    on_postgres = await inspected(postgres_url, tables_and_views)
    assert set(on_postgres) == {
        *("calls", "attempts", "refusals", "outages", "probes", "buckets", "ledger_readers", "client_keys"),
        "stored_names",
        *("key_changes", "alerts", "alert_messages", "slowdowns", "detector"),
        *("throughput_5m", "leaderboard", "samples", "speed_by_hour", "speed_days", "refusals_24h", "wrong_keys_24h"),
        *("outages_30d", "regions_1h", "regions_24h"),
        *(f"{view}{window}" for view, windows in WINDOWED.items() for window in windows),
        *("tag_differences", "load_5m", "load_peaks", "gaps_24h", "cache_latency_24h", "would_win_24h"),
        *("client_usage_by_month", "team_usage_by_month", "end_user_usage_by_month"),
        *("rollup_periods", "rollup_series", "rollup_attempts", "rollup_errors", "rollup_histograms", "rollup_calls"),
        *("rollup_tags", "rollup_wide_tags", "target_counts", "used_totals"),
    }
    assert on_postgres == await inspected(sqlite_url, tables_and_views)


async def test_up_down_and_up_again_leaves_nothing_and_then_everything(ledger_url: str) -> None:
    before = await inspected(ledger_url, tables_and_views)
    await downgrade(ledger_url, "base")
    assert await inspected(ledger_url, tables_and_views) == {}
    await migrate(ledger_url)
    assert await inspected(ledger_url, tables_and_views) == before


async def test_views_that_went_with_a_revision_are_there_again_on_the_way_back(ledger_url: str) -> None:
    now = await inspected(ledger_url, tables_and_views)
    await downgrade(ledger_url, "0048")
    before = await inspected(ledger_url, tables_and_views)
    gone = set(UNTIL)
    assert gone
    assert (gone & set(now), gone & set(before)) == (set(), gone)
    for view in gone:
        await queries.run(ledger_url, f"select * from {view}")
    await migrate(ledger_url)
    assert await inspected(ledger_url, tables_and_views) == now


async def test_an_operators_view_of_one_that_goes_keeps_the_schema_and_the_error_says_what_to_do(
    postgres_url: str,
) -> None:
    await downgrade(postgres_url, "0048")
    owner = await asyncpg.connect(postgres_url)
    try:
        await owner.execute("create view mine as select * from throughput; create view other as select * from waste")
        with pytest.raises(DatabaseUnreachableError, match="drop those first"):
            await migrate(postgres_url)
        assert await owner.fetchval("select version_num from holeshot_version") == "0048"
        await owner.execute("select * from gaps_1h; drop view other")
        await migrate(postgres_url)
        await owner.execute("select * from mine")
    finally:
        await owner.close()


async def test_an_operators_view_of_columns_that_get_other_names_stays_and_says_what_it_said(postgres_url: str) -> None:
    await downgrade(postgres_url, "0050")
    owner = await asyncpg.connect(postgres_url)
    try:
        for view in (name for name in views_of("0050") if renamed(name)):
            await owner.execute(f"create view mine_{view} as select {', '.join(renamed(view))} from {view}")
        await owner.execute("create role looker; grant select on race_value_30d to looker")
        before = await owner.fetch("select * from mine_throughput_24h")
        await migrate(postgres_url)
        for view in (name for name in views_of("0051") if renamed(name)):
            assert await owner.fetch(f"select * from mine_{view}") == []
            assert await owner.fetch(f"select {', '.join(renamed(view).values())} from {view}") == []
        assert await owner.fetch("select * from mine_throughput_24h") == before
        assert await owner.fetchval("select has_table_privilege('looker', 'race_value_30d', 'select')")
    finally:
        await owner.execute("drop owned by looker; drop role looker")
        await owner.close()


async def test_columns_with_two_names_say_the_same_on_both_databases(ledger_url: str, tmp_path: Path) -> None:
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    for _ in range(4):
        ledger.call_finished(raced_call(started_at=datetime.now(UTC)))
    await ledger.flush()
    await ledger.close()
    filled = 0
    for view in (name for name in views_of(head_revision()) if renamed(name)):
        columns = ", ".join(
            f"{old} as a{place}, {new} as b{place}" for place, (old, new) in enumerate(renamed(view).items())
        )
        for row in (await queries.run(ledger_url, f"select {columns} from {view}")).rows:
            assert row[::2] == row[1::2], view
            filled += 1
    assert filled


async def test_the_version_before_goes_on_shipping_on_the_new_schema(
    ledger_url: str, tmp_path: Path, next_version: NextVersion
) -> None:
    await next_version.migrate(ledger_url)
    made = raced_call()
    for _ in range(2):
        ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
        ledger.call_finished(made)
        await ledger.flush()
        await ledger.close()
    found = await queries.run(ledger_url, "select (select count(*) from calls), (select count(*) from attempts)")
    assert found.rows == [(1, 2)]
    assert (await queries.run(ledger_url, "select count(*) from samples")).rows == [(2,)]


async def test_the_way_back_and_up_again_under_load_meets_no_deadlock(
    postgres_url: str, next_version: NextVersion
) -> None:
    """Rows are shipped, added up and read meanwhile: each of these locks tables in an order of its own."""
    ended, moved = asyncio.Event(), asyncio.Event()

    async def again_and_again(step: Callable[[Any], Awaitable[None]]) -> None:
        connection = await asyncpg.connect(postgres_url, statement_cache_size=0)
        try:
            while not ended.is_set():
                with suppress(asyncpg.PostgresError):  # what an older schema lacks
                    await step(connection)
                moved.set()
                await asyncio.sleep(0)
        finally:
            await connection.close()

    async def ship(connection: Any) -> None:
        entries = [Finished(raced_call(started_at=datetime.now(UTC))) for _ in range(3)]
        made = {"calls": (call_rows(entries), CALL_COLUMNS), "attempts": (attempt_rows(entries), ATTEMPT_COLUMNS)}
        async with connection.transaction():
            for table, (rows, columns) in made.items():
                await connection.copy_records_to_table(table, records=rows, columns=columns)

    async def add_up(connection: Any) -> None:
        await connection.fetch("select roll_up_fresh()")

    async def read(connection: Any) -> None:
        for view in ("leaderboard", "client_usage", "throughput", "race_value", "provider_errors_24h"):
            await connection.fetch(f"select * from {view}")

    running = [asyncio.create_task(again_and_again(step)) for step in (ship, ship, add_up, read)]
    for step in (
        downgrade(postgres_url, first_revision()),
        next_version.migrate(postgres_url),
        next_version.downgrade(postgres_url),
    ):
        await moved.wait()
        moved.clear()
        await step
    ended.set()
    await asyncio.gather(*running)
    assert (await queries.run(postgres_url, "select version_num from holeshot_version")).rows == [(head_revision(),)]


async def test_who_may_read_a_view_still_may_on_the_way_back(postgres_url: str, next_version: NextVersion) -> None:
    owner = await asyncpg.connect(postgres_url)
    views = ("leaderboard", "client_usage", "client_usage_24h", "provider_errors")
    await next_version.migrate(postgres_url)
    await owner.execute(f"create role looker; grant select on {', '.join(views)} to looker with grant option")
    await owner.execute("grant select on waste_30d to public")
    try:
        await next_version.downgrade(postgres_url)
        for view in views:
            may = f"has_table_privilege('looker', '{view}', 'select with grant option')"
            assert await owner.fetchval(f"select {may} and not has_table_privilege('looker', '{view}', 'insert')")
        assert await owner.fetchval("select has_table_privilege('looker', 'waste_30d', 'select')")
    finally:
        await owner.execute("drop owned by looker; drop role looker")
        await owner.close()


@pytest.mark.parametrize("revision", ["0044", "0045"])
async def test_a_version_older_than_the_first_that_was_published_does_not_start_on_this_schema(
    ledger_url: str, revision: str
) -> None:
    refused = pytest.raises(SchemaTooNewError, match=f"holeshot migrate --down-to {revision}")
    engine = create_engine(ledger_url)
    try:
        with refused if revision < first_revision() else nullcontext():
            await check_schema(engine, revision)
    finally:
        await engine.dispose()


@pytest.mark.parametrize("table", ["alembic_version", "holeshot_version"])
async def test_a_ledger_older_than_the_first_that_was_published_is_refused_with_the_remedy(
    ledger_url: str, table: str
) -> None:
    engine = create_engine(ledger_url)
    if table == "alembic_version":
        await downgrade(ledger_url, first_revision())
    async with engine.begin() as connection:
        await connection.exec_driver_sql(f"update {table} set version_num = '0044'")
    remedy = "schema is 0044.* from 0045 on: first run `holeshot migrate` of the version whose schema is 0045"
    try:
        for step in (migrate(ledger_url), downgrade(ledger_url, "base"), check_schema(engine)):
            with pytest.raises(SchemaOutdatedError, match=remedy):
                await step
    finally:
        await engine.dispose()


async def test_there_is_no_way_back_beyond_the_first_that_was_published(ledger_url: str) -> None:
    with pytest.raises(SchemaOutdatedError, match="the first schema is 0045: go back to that one, or to 'base'"):
        await downgrade(ledger_url, "0044")


async def test_migrations_make_the_views_and_functions_of_the_files(ledger_url: str) -> None:
    """What the first revision made and later ones changed is what the files of today say."""

    def made(connection: Connection) -> dict[str, str]:
        is_postgres = connection.dialect.name == "postgresql"
        found = connection.exec_driver_sql(MADE_ON_POSTGRES if is_postgres else MADE_ON_SQLITE)
        return {name: sql for name, sql in found if name != "holeshot_version"}

    def made_again(connection: Connection) -> dict[str, str]:
        changes = Changes(connection, head_revision())
        changes.make_views(*views_of(head_revision()))
        changes.make_sums()
        return made(connection)

    engine = create_engine(ledger_url)
    async with engine.connect() as connection:
        before = await connection.run_sync(made)
        assert set(views_of(head_revision())) <= set(before)
        assert await connection.run_sync(made_again) == before
    await engine.dispose()


MADE_ON_SQLITE = "select name, sql from sqlite_master where type in ('view', 'trigger')"
MADE_ON_POSTGRES = """
select viewname, definition from pg_views where schemaname = 'public'
union all select proname, prosrc from pg_proc where pronamespace = 'public'::regnamespace
"""


async def test_a_migration_may_take_its_time(empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "COMMAND_TIMEOUT_S", 0.0001)
    await migrate(empty_postgres_url)
    monkeypatch.undo()
    assert "calls" in await inspected(empty_postgres_url, tables_and_views)


async def test_two_migrations_of_postgres_at_once_both_succeed(empty_postgres_url: str) -> None:
    await asyncio.gather(migrate(empty_postgres_url), migrate(empty_postgres_url))
    assert "calls" in await inspected(empty_postgres_url, tables_and_views)


async def test_a_path_with_odd_characters_is_migrated(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/50% of a name?/x.db".replace("?", "")
    await migrate(url)
    assert "calls" in await inspected(url, tables_and_views)


OF_SUMS = (
    *("race_value", "race_value_1h", "throughput", "provider_errors", "client_usage", "cache_value", "slo"),
    *("throughput_5m", "throughput_30d", "load_5m", "speed_days", "speed_by_hour", "gaps_24h", "waste_30d"),
)
OF_TAGS = ("tag_values", "tag_values_30d", "tag_differences")  # a plan of SQLite names rows that it will not read


async def test_views_of_sums_read_no_rows(ledger_url: str) -> None:
    """What reads rows of all time is slow on SQLite; on Postgres it also seems dear enough to be compiled (jit)."""
    is_sqlite = ledger_url.startswith("sqlite")
    explain, views = ("explain query plan", OF_SUMS) if is_sqlite else ("explain", (*OF_SUMS, *OF_TAGS))
    engine = create_engine(ledger_url)
    async with engine.connect() as connection:
        for view in views:
            steps = await connection.exec_driver_sql(f"{explain} select * from {view}")
            plan = "\n".join(str(step[-1]) for step in steps)
            assert not re.search(r"( on |SCAN |SEARCH )(calls|attempts)", plan), view
    await engine.dispose()
