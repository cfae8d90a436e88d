"""The ledger's tables in SQLAlchemy; names and columns are the same on Postgres and SQLite.

Columns have the names and meanings of the records' fields: ``CallRecord``, ``AttemptRecord``, ``RefusalRecord``,
``OutageRecord``. The edges of the leaderboard's buckets are a table too, and never change. Migrations make the tables;
a test compares both. The sums of windows (rollup_…) and partitions are maintained by the database itself.
"""

from typing import Any

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

# What all tables of the ledger have in common: their metadata, and types that both databases have.

# Dashed text on SQLite, so that an id from a response header can be used in a query there too.
ID = Uuid(as_uuid=False).with_variant(CHAR(36), "sqlite")
INSTANT = DateTime(timezone=True)
NUMBER = BigInteger().with_variant(Integer, "sqlite")  # SQLite counts only an INTEGER up by itself
JSON_VALUE = JSON().with_variant(JSONB(), "postgresql")


def where(condition: str) -> dict[str, Any]:
    """Return the arguments of a partial index.

    It is partial on SQLite too, where migrations make it. Here SQLite's argument would load its dialect and its client
    into each process that has Postgres.
    """
    return {"postgresql_where": text(condition)}


metadata = MetaData()


# The ledger's tables of outages, slowdowns, and the alerts about them.

# A few rows for each failure of a deployment: one from each process that notices.
outages = Table(
    "outages",
    metadata,
    Column("id", ID, primary_key=True),
    Column("deployment", Text, nullable=False),
    Column("model", Text),
    Column("began_at", INSTANT, nullable=False),
    Column("ended_at", INSTANT),
    Column("reason", Text),
    Column("replica", Text, nullable=False),
    Index("outages_began_at", "began_at"),
)

# One row for each incident: at most one with a key is open. ``gateway.alerts.alert`` has the columns' meanings.
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

# A row for each message to a webhook; it is due, or leased, until it is done.
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
    "outages", "probes", "readers", "refusals", "slowdowns",
]  # fmt: skip

calls = Table(
    "calls",
    metadata,
    Column("id", ID, primary_key=True),
    Column("started_at", INSTANT, nullable=False),
    Column("client", Text),
    Column("model", Text, nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("streamed", Boolean, nullable=False),
    Column("mode", Text, nullable=False),
    Column("objective", Text, nullable=False),
    Column("prompt_class", SmallInteger, nullable=False),
    Column("launched", SmallInteger, nullable=False),
    Column("takeover", Text),
    Column("takeovers", SmallInteger),
    Column("first_was_invalid", Boolean),
    Column("winner_attempt_id", ID),
    Column("status_code", SmallInteger, nullable=False),
    Column("error_kind", Text),
    Column("ttft_ms", Double),
    Column("total_ms", Double),  # null only for an interrupted call: its end is unknown
    Column("overhead_ms", Double),
    Column("prompt_tokens", Integer),
    Column("completion_tokens", Integer),
    Column("reasoning_tokens", Integer),
    Column("cached_tokens", Integer),
    Column("cost_usd", Double),
    Column("duplicate_cost_usd", Double),
    Column("tags", JSON_VALUE, nullable=False),
    Column("replica", Text, nullable=False),
    Column("region", Text),
    Column("win_on", Text, nullable=False),
    Column("request_id", Text),
    Column("answered_model", Text),
    Column("dropped", JSON_VALUE),
    Column("cache_write_tokens", Integer),
    Column("cache_saved_usd", Double),
    Column("api", Text),
    Column("size_class", SmallInteger),
    Column("tokens_source", Text),
    Column("finish_reason", Text),
    Column("max_tokens", Integer),
    Column("temperature", Double),
    Column("tools", Integer),
    Column("tool_calls", Integer),
    Column("tool_calls_valid", Boolean),
    Column("is_empty", Boolean),
    Column("is_truncated", Boolean),
    Column("cost_low_usd", Double),
    Column("cost_high_usd", Double),
    Column("duplicate_cost_low_usd", Double),
    Column("duplicate_cost_high_usd", Double),
    Column("abandoned_cost_low_usd", Double),
    Column("abandoned_cost_high_usd", Double),
    Column("alone_ms", Double),
    Column("alone_predicted_ms", Double),
    Column("alone_age_ms", Double),
    Column("held_ms", Double),
    Column("held_for", Text),
    Column("held_gain_ms", Double),
    Column("deadline_ms", Double),
    Column("deadline_met", Boolean),
    Column("profile", Text),
    Column("narrowed", Text),
    Column("width_asked", SmallInteger),
    Column("extras", SmallInteger),
    Column("failed", Boolean),  # null: stored by a version that did not know it
    Index("calls_started_at", "started_at"),
    Index("calls_request_id", "request_id", postgresql_using="hash", **where("request_id is not null")),
    Index("calls_client_started_at", "client", "started_at"),
    Index("calls_errors", "started_at", **where("error_kind is not null")),
)

# No foreign key: a call that cannot be stored must not prevent its attempts, and audited ones arrive later.
attempts = Table(
    "attempts",
    metadata,
    Column("id", ID, primary_key=True),
    Column("call_id", ID, nullable=False),
    Column("number", SmallInteger, nullable=False),
    Column("started_at", INSTANT, nullable=False),
    Column("role", Text, nullable=False),
    Column("audited", Boolean, nullable=False),
    Column("provider", Text, nullable=False),
    Column("deployment", Text, nullable=False),
    Column("launch_offset_ms", Double, nullable=False),
    Column("connect_ms", Double),
    Column("headers_ms", Double),
    Column("first_event_ms", Double),
    Column("ttft_ms", Double),
    Column("ttft_answer_ms", Double),
    Column("last_token_ms", Double),
    Column("outcome", Text, nullable=False),
    Column("censored_at_ms", Double),
    Column("status_code", SmallInteger),
    Column("error_kind", Text),
    Column("error_message", Text),
    Column("prompt_tokens", Integer),
    Column("completion_tokens", Integer),
    Column("reasoning_tokens", Integer),
    Column("cached_tokens", Integer),
    Column("tokens_source", Text),
    Column("decode_tps", Double),
    Column("e2e_tps", Double),
    Column("itl_p50_ms", Double),
    Column("itl_p95_ms", Double),
    Column("itl_max_ms", Double),
    Column("sentence_ms", Double),
    Column("continues", ID),
    Column("is_extra", Boolean),
    Column("valid_ms", Double),
    Column("speech_pause_ms", Double),
    Column("cost_usd", Double),
    Column("cost_is_lower_bound", Boolean, nullable=False),
    Column("cache_write_tokens", Integer),
    Column("reported_tokens", BigInteger),
    Column("cache_saved_usd", Double),
    Column("model", Text),  # null: the call's
    Column("client", Text),
    Column("api", Text),
    Column("size_class", SmallInteger),
    Column("win_on", Text),
    Column("token_ms", Double),
    Column("chars", Integer),
    Column("chunks", Integer),
    Column("first_chars", Integer),
    Column("finish_reason", Text),
    Column("tool_calls", Integer),
    Column("tool_calls_valid", Boolean),
    Column("key_name", Text),
    Column("model_version", Text),
    Column("system_fingerprint", Text),
    Column("provider_request_id", Text),
    Column("in_flight", Integer),
    Column("sends", SmallInteger),
    Column("cost_low_usd", Double),
    Column("cost_high_usd", Double),
    Column("is_overtaken", Boolean),
    Column("is_kept", Boolean),
    Column("would_take_over", Boolean),
    Column("would_take_over_ms", Double),
    Column("overtaken_at_ms", Double),
    Column("predicted_ms", Double),
    Column("wasted_low_tokens", Integer),
    Column("wasted_high_tokens", Integer),
    Column("judged_as", Text),
    Column("flaw", Text),
    Column("text_gap_max_ms", Double),
    Column("tier_asked", Text),
    Column("tier_served", Text),
    Column("units_cost_usd", Double),
    Column("failed", Boolean),  # as of a call
    Column("units", JSON()),
    Column("price", JSON()),
    Column("itl", JSON()),
    Index("attempts_started_at", "started_at", postgresql_using="brin"),
    Index("attempts_call_id", "call_id"),
    Index("attempts_errors", "started_at", **where("error_kind is not null")),
)

# Small, so it is not partitioned: at most some hundred rows a minute from each flooded process.
refusals = Table(
    "refusals",
    metadata,
    Column("id", ID, primary_key=True),
    Column("started_at", INSTANT, nullable=False),  # the minute
    Column("status_code", SmallInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("client", Text),
    Column("address", Text),
    Column("n", Integer, nullable=False),
    Column("replica", Text, nullable=False),
    Index("refusals_started_at", "started_at"),
)

# A row for each probe, stored before it is sent.
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

# One row: the oldest revision whose code may use this schema, for rolling upgrades without a stop.
readers = Table("ledger_readers", metadata, Column("oldest", Text, nullable=False))

# With ``keys: database``: a row for each key of a client, ``gateway.keys.stored`` has its meaning. Rows are never
# deleted.
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

# The log of changes. Gateways read the largest id each second; changes are made one after the other, so it grows with
# each.
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
