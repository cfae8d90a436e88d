"""The ledger's tables of what went wrong: outages, slowdowns, and the alerts about them."""

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, SmallInteger, Table, Text

from gateway.ledger.columns import ID, INSTANT, JSON_VALUE, metadata, where

# A few rows for each time that a deployment breaks: one from each process that notices.
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

# When a deployment was slower than usual (``gateway.detecting``). One row at most is open for each metric.
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

# One row: which process looks for slowdowns, and until when.
detector = Table(
    "detector",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("holder", Text),
    Column("until_at", INSTANT),
)
