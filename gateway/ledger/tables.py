"""The ledger's tables in SQLAlchemy; names and columns are the same on Postgres and SQLite.

The fields of records declare the columns of calls, attempts, refusals, outages and stored names. The edges of the
leaderboard's buckets are a table, too, and never change. Migrations make the tables; a test compares the two. The
database itself maintains the sums of windows (rollup_…) and partitions.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from sqlalchemy import (
    CHAR,
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeEngine

from gateway.core.attempts import AttemptRecord
from gateway.core.calls import CallRecord
from gateway.core.columns import Sql, columns_of
from gateway.core.records import OutageRecord, RefusalRecord, StoredName

# For all tables: the metadata, and types that both databases have.

# Dashed text on SQLite, so that an id from a response header can be pasted into a query there, too.
ID = Uuid(as_uuid=False).with_variant(CHAR(36), "sqlite")
INSTANT = DateTime(timezone=True)
NUMBER = BigInteger().with_variant(Integer, "sqlite")  # in SQLite only an INTEGER counts up by itself
JSON_VALUE = JSON().with_variant(JSONB(), "postgresql")


def where(condition: str) -> dict[str, Any]:
    """Return the arguments of a partial index on Postgres.

    On SQLite migrations make it partial, too. SQLite's argument here would load its dialect and driver into each
    process that uses Postgres.
    """
    return {"postgresql_where": text(condition)}


_TYPES: Mapping[Sql, TypeEngine[Any]] = {
    Sql.TEXT: Text(),
    Sql.UUID: ID,
    Sql.INSTANT: INSTANT,
    Sql.BOOLEAN: Boolean(),
    Sql.SMALLINT: SmallInteger(),
    Sql.INTEGER: Integer(),
    Sql.BIGINT: BigInteger(),
    Sql.DOUBLE: Double(),
    Sql.JSON: JSON(),
    Sql.JSONB: JSON_VALUE,
}


def _of(record: type[Struct]) -> Iterator[Column[Any]]:
    """Yield the columns that a record declares (``gateway/core/columns.py``)."""
    for each in columns_of(record):
        yield Column(each.name, _TYPES[each.sql], primary_key=each.name == "id", nullable=each.is_nullable)


metadata = MetaData()


# Tables of outages, slowdowns, and alerts.

# A few rows for each failure of a deployment: one from each process that notices it.
outages = Table(
    "outages",
    metadata,
    *_of(OutageRecord),
    Index("outages_began_at", "began_at"),
)

# One row for each incident; at most one row of a key is open. ``gateway.alerts.alert`` says what the columns mean.
alerts = Table(
    "alerts",
    metadata,
    Column("id", ID, primary_key=True),
    Column("key", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("severity", Text, nullable=False),
    Column("summary", Text, nullable=False),
    Column("figures", JSON_VALUE, nullable=False),
    Column("sql", Text, nullable=False),
    Column("opened_at", INSTANT, nullable=False),
    Column("seen_at", INSTANT, nullable=False),
    Column("resolved_at", INSTANT),
    Column("replica", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Index("alerts_open", "key", unique=True, **where("resolved_at is null")),
    Index("alerts_opened_at", "opened_at"),
)

# A row for each message to a webhook: due or leased, until it is done.
alert_messages = Table(
    "alert_messages",
    metadata,
    Column("id", ID, primary_key=True),
    Column("alert_id", ID, nullable=False),
    Column("webhook", Text, nullable=False),
    Column("event", Text, nullable=False),
    Column("created_at", INSTANT, nullable=False),
    Column("due_at", INSTANT, nullable=False),
    Column("done_at", INSTANT),
    Column("is_sent", Boolean),
    Column("tries", SmallInteger, nullable=False),
    Column("answer", Text),
    Index("alert_messages_due", "due_at", **where("done_at is null")),
    Index("alert_messages_alert_id", "alert_id"),
)

# Slowdowns of deployments (``gateway.alerts.detector``). At most one row is open for each metric.
slowdowns = Table(
    "slowdowns",
    metadata,
    Column("id", ID, primary_key=True),
    Column("deployment", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("metric", Text, nullable=False),
    Column("began_at", INSTANT, nullable=False),
    Column("noticed_at", INSTANT, nullable=False),
    Column("ended_at", INSTANT),
    Column("ending", Text),
    Column("ratio", Double, nullable=False),
    Column("low", Double, nullable=False),
    Column("high", Double, nullable=False),
    Column("n", BigInteger, nullable=False),
    Column("evidence_sql", Text, nullable=False),
    Index("slowdowns_began_at", "began_at"),
    Index("slowdowns_open", "model", "deployment", "metric", unique=True, **where("ended_at is null")),
)

# One row: the process that looks for slowdowns, and until when.
detector = Table(
    "detector",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("holder", Text),
    Column("until_at", INSTANT),
)


__all__ = [
    "alert_messages", "alerts", "attempts", "buckets", "calls", "client_keys", "detector", "key_changes", "metadata",
    "outages", "probes", "readers", "refusals", "slowdowns", "stored_names",
]  # fmt: skip

calls = Table(
    "calls",
    metadata,
    *_of(CallRecord),
    Index("calls_started_at", "started_at"),
    Index("calls_request_id", "request_id", postgresql_using="hash", **where("request_id is not null")),
    Index("calls_client_started_at", "client", "started_at"),
    Index("calls_errors", "started_at", **where("error_kind is not null")),
)

# No foreign key: if a call cannot be stored, its attempts still can, and audited attempts arrive later.
attempts = Table(
    "attempts",
    metadata,
    *_of(AttemptRecord),
    Index("attempts_started_at", "started_at", postgresql_using="brin"),
    Index("attempts_call_id", "call_id"),
    Index("attempts_errors", "started_at", **where("error_kind is not null")),
)

# Not partitioned, as it is small: at most some hundred rows a minute from each flooded process.
refusals = Table(
    "refusals",
    metadata,
    *_of(RefusalRecord),
    Index("refusals_started_at", "started_at"),
)

# Resources at providers and their clients: rows until they expire, and the newest million.
stored_names = Table(
    "stored_names",
    metadata,
    *_of(StoredName),
    Index("stored_names_expires_at", "expires_at"),
    Index("stored_names_running", "expires_at", **where("sealed is not null")),
    Index("stored_names_ended", "id", **where("ended is not null")),
)

# A row for each probe, stored before the probe is sent.
probes = Table(
    "probes",
    metadata,
    Column("id", ID, primary_key=True),
    Column("started_at", INSTANT, nullable=False),
    Column("ended_at", INSTANT),
    Column("model", Text, nullable=False),
    Column("deployment", Text, nullable=False),
    Column("replica", Text, nullable=False),
    Column("outcome", Text),
    Column("error_kind", Text),
    Column("ttft_ms", Double),
    Column("reserved_usd", Double, nullable=False),
    Column("cost_usd", Double),
    Column("prompt", SmallInteger),
    Column("answer", Text),
    Index("probes_started_at", "started_at"),
    Index("probes_deployment", "deployment", "started_at"),
)

buckets = Table(
    "buckets",
    metadata,
    Column("bucket", SmallInteger, primary_key=True, autoincrement=False),
    Column("from_ms", Double, nullable=False),
    Column("to_ms", Double, nullable=False),
    Index("buckets_from_ms", "from_ms"),
)

# One row: the oldest revision whose code may use this schema, for rolling upgrades without a stop; and the ledger's id.
readers = Table("ledger_readers", metadata, Column("oldest", Text, nullable=False), Column("ledger_id", ID))

# With ``keys: database``: a row for each key of a client; ``gateway.keys.stored`` says what the columns mean. Rows are
# never deleted.
client_keys = Table(
    "client_keys",
    metadata,
    Column("id", ID, primary_key=True),
    Column("name", Text, nullable=False),
    Column("sha256", CHAR(64), nullable=False),
    Column("hint", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("settings", JSON_VALUE, nullable=False),
    Column("expires_at", INSTANT),
    Column("retires_at", INSTANT),
    Column("created_at", INSTANT, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("revoked_at", INSTANT),
    Column("last_used_at", INSTANT),
    Column("change_id", BigInteger, nullable=False),
    Index("client_keys_sha256", "sha256", unique=True),
    Index("client_keys_name", "name", **where("revoked_at is null")),
    Index("client_keys_change_id", "change_id"),
)

# The log of changes. Changes are made one after the other, so the id grows; gateways read the largest id each second.
key_changes = Table(
    "key_changes",
    metadata,
    Column("id", NUMBER, primary_key=True),
    Column("at", INSTANT, nullable=False),
    Column("who", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("before", JSON_VALUE),
    Column("after", JSON_VALUE),
)
