"""The tables and views in ClickHouse, made by the gateway: the same columns and names as in Postgres.

The views have texts of their own: SQL's views read sums. Over rows, ClickHouse takes three to five times as long for
``throughput_lately``, and refuses ``provider_errors_lately`` and the leaderboard's recursion.
"""

from collections.abc import Iterator
from pathlib import Path

import structlog

from gateway.core.columns import DescribedColumn, Sql
from gateway.core.rules import NO_ERRORS, STEPS
from gateway.ledger import entries
from gateway.ledger.clickhouse.server import ClickHouse
from gateway.ledger.migration_files import head_revision
from gateway.ledger.old_names import RENAMED, with_old_names
from gateway.ledger.reports.reader import conditions, listed
from gateway.ledger.schema import UNTIL, views_of

VERSION = 16  # raised with every change of a view; a test has each version's statements
_MADE = {"calls": "failed", "attempts": "broken"}  # by table: the rule of the column ``failed``
TABLES = {name: entries.TABLES[name] for name in _MADE}
VIEWS = Path(__file__).parent / "views"
# Over rows of all time and of the spans for which SQL has views; leaderboard has a span of its own.
_SINCE = {
    "": "",
    "_1h": "now() - interval 1 hour",
    "_24h": "now() - interval 24 hour",
    "_30d": "toStartOfDay(now('UTC') - interval 30 day)",
}
# Integers hold values that other databases clamp; columns are compressed.
_KINDS = {
    Sql.UUID: "UUID",
    Sql.INSTANT: "DateTime64(6, 'UTC')",
    Sql.BOOLEAN: "Bool",
    **dict.fromkeys((Sql.SMALLINT, Sql.INTEGER, Sql.BIGINT), "Int64"),
    Sql.DOUBLE: "Float64",
}
# Both copies of a row that came twice are in one partition: without this setting FINAL reads all days for any query.
BY_PARTITION = "settings do_not_merge_across_partitions_select_final = 1"
_KEY = ("model", "started_at", "id")  # neither is null
_TTL = "toDateTime(started_at) + toIntervalSecond({seconds:d})"

# A row that comes twice (an answer was lost) has the same key: merges keep one copy, and FINAL reads one.
_TABLE = """
create table if not exists {name} ({columns})
engine = ReplacingMergeTree
partition by toYYYYMMDD(started_at)
order by (model, toStartOfHour(started_at), id){ttl}
settings ttl_only_drop_parts = 1
"""
_VERSIONS = (
    "create table if not exists holeshot_schema (version UInt32, made_at DateTime default now())"
    " engine = ReplacingMergeTree order by version"
)


async def prepare_clickhouse(server: ClickHouse, keep_days: float | None) -> int:
    """Make or update the tables and views, and set how long rows are kept; return the views' version.

    Does nothing if all are current. Views of a later version stay as they are, as columns are only added.

    Raises:
        DatabaseUnreachableError: the server is unreachable, or the user may not make tables.

    """
    await server.run(_VERSIONS)
    version = int(await server.run("select max(version) from holeshot_schema") or 0)
    for name in TABLES:
        await server.run(table_sql(name, keep_days))
        await _add_columns(server, name)
        await _keep(server, name, keep_days)
    if version < VERSION:
        for statement in views_sql():
            await server.run(statement)
        await server.run(f"insert into holeshot_schema (version) values ({VERSION})")  # noqa: S608 - our number
        # Event ledger.clickhouse_prepared: The tables and views in ClickHouse were made or updated.
        # Do: Nothing.
        structlog.get_logger().info("ledger.clickhouse_prepared", clickhouse=server.place, schema=VERSION)
    return max(version, VERSION)


async def _add_columns(server: ClickHouse, name: str) -> None:
    """Add the columns that a table of an older version lacks."""
    there = (
        await server.run(f"select name from system.columns where database = currentDatabase() and table = '{name}'")  # noqa: S608
    ).split()
    lacking = [f"add column if not exists {column} {kind}" for column, kind in columns_of(name) if column not in there]
    if lacking:
        await server.run(f"alter table {name} {', '.join(lacking)}")


async def _keep(server: ClickHouse, name: str, keep_days: float | None) -> None:
    statement = await server.run(
        f"select engine_full from system.tables where database = currentDatabase() and name = '{name}'"  # noqa: S608
    )
    ttl = _ttl(keep_days)
    has_one = " TTL " in statement
    if ttl and ttl not in statement:
        # Only for new parts, and parts that are merged anyway: old parts are dropped as a whole when their day is over.
        await server.run(f"alter table {name} modify ttl {ttl} settings materialize_ttl_after_modify = 0")
    elif has_one and not ttl:
        await server.run(f"alter table {name} remove ttl")


def _ttl(keep_days: float | None) -> str:
    return "" if keep_days is None else _TTL.format(seconds=int(keep_days * 86_400))


def table_sql(name: str, keep_days: float | None = None) -> str:
    """Return the statement that makes a table."""
    ttl = _ttl(keep_days)
    columns = [*(f"{column} {kind}" for column, kind in columns_of(name))]
    if name == "attempts":
        columns.append("index attempts_call_id call_id type bloom_filter granularity 4")
    return _TABLE.format(name=name, columns=", ".join(columns), ttl=f"\nttl {ttl}" if ttl else "").strip()


def columns_of(name: str) -> Iterator[tuple[str, str]]:
    """Yield the columns of a table with their types in ClickHouse."""
    declared = {each.name: each for each in TABLES[name].declared}
    for column in TABLES[name].names:
        default = f" default {conditions()[_MADE[name]]}" if column == "failed" else ""  # for rows that came without it
        yield column, _kind(declared[column]) + default


def _kind(column: DescribedColumn) -> str:
    kind = _KINDS.get(column.sql, "String")
    is_word = kind == "String" and not column.about.is_distinct and not column.is_json  # many rows share it
    if column.is_nullable and column.name not in _KEY:
        kind = f"Nullable({kind})"
    return f"LowCardinality({kind})" if is_word else kind


# Of an attempt with its call (``of_call``): whether racing added it, and the dollars of cache savings that were lost.
_ADDED_AND_LOST = """\
attempts.id <> coalesce(of_call.winner_id, call_id) and (
        coalesce(counts_as, role) in ('race', 'hedge', 'fallback', 'explore', 'probe') or ({beaten} and of_call.is_beside)
      ) as is_added,
      -- What an overtaken primary's cache would have saved, less what its winner's did: as gateway/ledger/sums.py has it.
      cache_saved_usd - of_call.winner_saved_usd as unsaved_usd,
      multiIf(
        coalesce(counts_as, role) in ('race', 'hedge', 'fallback', 'explore', 'probe') or not of_call.is_winner_own
          or not coalesce(unsaved_usd > 0, false), 0,
        coalesce(of_call.winner_usd < unsaved_usd, false), of_call.winner_usd,
        unsaved_usd) as lost_usd"""  # noqa: E501 - a shorter line would be another version of the schema


def views_sql() -> Iterator[str]:
    """Yield the statements that make the views of SQL's spans, and that drop the views that SQL has dropped."""
    there = views_of(head_revision())
    rules = {
        "added_and_lost": _ADDED_AND_LOST,
        "no errors": listed(NO_ERRORS),
        "steps": listed(STEPS),
        **conditions(),
        **{f"calls.{name}": rule for name, rule in conditions("calls.").items()},
    }
    for path in sorted(VIEWS.glob("*.sql")):
        text = "\n".join(line for line in path.read_text("utf-8").splitlines() if not line.startswith("--"))
        for name, rule in rules.items():
            text = text.replace(f"{{{name}}}", rule)
        for suffix, since in _SINCE.items():
            name, body = f"{path.stem}{suffix}", text
            if name in UNTIL:
                yield f"drop view if exists {name}"
            if name not in there:
                continue
            for table in TABLES:
                rows = f"select * from {table} final" + (f" where started_at >= {since}" if since else "")  # noqa: S608
                body = body.replace(f"{{{table}}}", f"({rows} {BY_PARTITION})")
            yield f"create or replace view {name} as\n{with_old_names(body.strip(), RENAMED.get(path.stem, {}))}"
