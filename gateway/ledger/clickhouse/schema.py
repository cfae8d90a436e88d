"""The tables and views in ClickHouse, made by the gateway: the same columns and names as in Postgres."""

from collections.abc import Iterator
from pathlib import Path

import structlog
from sqlalchemy import BigInteger, Boolean, Column, DateTime, Double, Integer, SmallInteger, Uuid
from sqlalchemy.types import TypeEngine

from gateway.ledger.clickhouse.server import ClickHouse
from gateway.ledger.entries import ATTEMPT_COLUMNS, CALL_COLUMNS
from gateway.ledger.reports.reader import conditions
from gateway.ledger.tables import attempts, calls

VERSION = 9  # raised with every change of a table or a view; a test has the statements of each version
_MADE = {"calls": "failed", "attempts": "broken"}  # by table the rule of its column ``failed``
TABLES = {"calls": (calls, CALL_COLUMNS), "attempts": (attempts, ATTEMPT_COLUMNS)}
VIEWS = Path(__file__).parent / "views"
# Of rows, over all time and lately; the others have one window of their own.
WINDOWED = ("throughput", "race_value", "slo", "client_usage", "provider_errors")
_SINCE = {
    "": "",
    "_1h": "now() - interval 1 hour",
    "_24h": "now() - interval 24 hour",
    "_30d": "toStartOfDay(now('UTC')) - interval 29 day",
}
# Text that has a value of its own in nearly every row; all other text is a word that many rows share.
_DISTINCT = frozenset(
    {"request_id", "error_message", "provider_request_id", "tags", "dropped", "price", "itl", "units"}
)
# A row that came twice is in one partition twice: without this FINAL reads all days, whatever is asked for.
BY_PARTITION = "settings do_not_merge_across_partitions_select_final = 1"
_KEY = ("model", "started_at", "id")  # neither null
_TTL = "toDateTime(started_at) + toIntervalSecond({seconds:d})"

# Rows that come twice, after an answer that was lost, have the same key: merges leave one of them, and FINAL reads one.
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
    """Make or update the tables and views, and set for how long rows are kept; return the schema's version.

    Does nothing if they are current. A schema of a later version stays as it is: columns are only added.

    Raises:
        DatabaseUnreachableError: the server is unreachable, or this user may not make tables.

    """
    await server.run(_VERSIONS)
    found = int(await server.run("select max(version) from holeshot_schema") or 0)
    for name in TABLES:
        await server.run(table_sql(name, keep_days))
        await _keep(server, name, keep_days)
    if found < VERSION:
        for name in TABLES:
            await server.run(_columns_sql(name))
        for statement in views_sql():
            await server.run(statement)
        await server.run(f"insert into holeshot_schema (version) values ({VERSION})")  # noqa: S608 - our number
        # Event ledger.clickhouse_prepared: The tables and views in ClickHouse were made or updated.
        # Do: Nothing.
        structlog.get_logger().info("ledger.clickhouse_prepared", clickhouse=server.place, schema=VERSION)
    return max(found, VERSION)


async def _keep(server: ClickHouse, name: str, keep_days: float | None) -> None:
    made = await server.run(
        f"select engine_full from system.tables where database = currentDatabase() and name = '{name}'"  # noqa: S608
    )
    wanted = _ttl(keep_days)
    has_one = " TTL " in made
    if wanted and wanted not in made:
        # Only new parts, and those that are merged anyhow: old ones are dropped as a whole when their day is over.
        await server.run(f"alter table {name} modify ttl {wanted} settings materialize_ttl_after_modify = 0")
    elif has_one and not wanted:
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


def _columns_sql(name: str) -> str:
    """Return the statement that adds the columns missing in an older version's table."""
    added = (f"add column if not exists {column} {kind}" for column, kind in columns_of(name))
    return f"alter table {name} {', '.join(added)}"


def columns_of(name: str) -> Iterator[tuple[str, str]]:
    """Yield the columns of a table with their types in ClickHouse."""
    table, names = TABLES[name]
    for column in names:
        made = f" default {conditions()[_MADE[name]]}" if column == "failed" else ""  # of rows that came without it
        yield column, _kind(table.c[column]) + made


def _kind(column: "Column[object]") -> str:
    kind = _plain(column.name, column.type)
    if not column.nullable or column.name in _KEY:
        return kind if column.name in _DISTINCT or kind != "String" else "LowCardinality(String)"
    if kind == "String" and column.name not in _DISTINCT:
        return "LowCardinality(Nullable(String))"
    return f"Nullable({kind})"


def _plain(name: str, kind: TypeEngine[object]) -> str:
    match kind:
        case Uuid():
            return "UUID"
        case DateTime():
            return "DateTime64(6, 'UTC')"
        case Boolean():
            return "Bool"
        case SmallInteger() | BigInteger() | Integer():
            return "Int64"  # holds values that the other databases clamp; columns are compressed
        case Double():
            return "Float64"
    return "UUID" if name == "id" else "String"


# Of an attempt beside its call (``of_call``): whether racing added it, and the dollars of the cache that it lost.
_ADDED_AND_LOST = """\
attempts.id <> coalesce(of_call.winner_id, call_id) and (
        role in ('race', 'hedge', 'fallback', 'explore', 'probe') or ({beaten} and of_call.is_beside)
      ) as is_added,
      -- What an overtaken primary's cache would have saved, less what its winner's did: as gateway/ledger/sums.py has it.
      cache_saved_usd - of_call.winner_saved_usd as unsaved_usd,
      multiIf(
        role in ('race', 'hedge', 'fallback', 'explore', 'probe') or not of_call.is_winner_own
          or not coalesce(unsaved_usd > 0, false), 0,
        coalesce(of_call.winner_usd < unsaved_usd, false), of_call.winner_usd,
        unsaved_usd) as lost_usd"""  # noqa: E501 - a shorter line would be another version of the schema


def views_sql() -> Iterator[str]:
    """Yield the statements that make the views, each with all its windows."""
    rules = {
        "added_and_lost": _ADDED_AND_LOST,
        **conditions(),
        **{f"calls.{name}": rule for name, rule in conditions("calls.").items()},
    }
    for path in sorted(VIEWS.glob("*.sql")):
        text = "\n".join(line for line in path.read_text("utf-8").splitlines() if not line.startswith("--"))
        for name, rule in rules.items():
            text = text.replace(f"{{{name}}}", rule)
        for suffix, since in _SINCE.items() if path.stem in WINDOWED else [("", "")]:
            body = text
            for table in TABLES:
                rows = f"select * from {table} final" + (f" where started_at >= {since}" if since else "")  # noqa: S608
                body = body.replace(f"{{{table}}}", f"({rows} {BY_PARTITION})")
            yield f"create or replace view {path.stem}{suffix} as\n{body.strip()}"
