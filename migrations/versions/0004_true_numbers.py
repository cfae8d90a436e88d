"""What analysts ask of a call and its attempts: bounds of costs, what the answer was, and what racing gained."""

import re
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# All of them may be null: no database rewrites its rows for them, and the previous version may go on writing its own.
CALLS: dict[str, sa.types.TypeEngine[Any]] = {
    "api": sa.Text(),
    "size_class": sa.SmallInteger(),
    "tokens_source": sa.Text(),
    "finish_reason": sa.Text(),
    "max_tokens": sa.Integer(),
    "temperature": sa.Double(),
    "tools": sa.Integer(),
    "tool_calls": sa.Integer(),
    "tool_calls_valid": sa.Boolean(),
    "is_empty": sa.Boolean(),
    "is_truncated": sa.Boolean(),
    "cost_low_usd": sa.Double(),
    "cost_high_usd": sa.Double(),
    "duplicate_cost_low_usd": sa.Double(),
    "duplicate_cost_high_usd": sa.Double(),
    "abandoned_cost_low_usd": sa.Double(),
    "abandoned_cost_high_usd": sa.Double(),
    "alone_ms": sa.Double(),
    "alone_predicted_ms": sa.Double(),
    "alone_age_ms": sa.Double(),
    "deadline_ms": sa.Double(),
    "deadline_met": sa.Boolean(),
}
ATTEMPTS: dict[str, sa.types.TypeEngine[Any]] = {
    "client": sa.Text(),
    "api": sa.Text(),
    "size_class": sa.SmallInteger(),
    "win_on": sa.Text(),
    "token_ms": sa.Double(),
    "chars": sa.Integer(),
    "chunks": sa.Integer(),
    "first_chars": sa.Integer(),
    "finish_reason": sa.Text(),
    "tool_calls": sa.Integer(),
    "tool_calls_valid": sa.Boolean(),
    "key_name": sa.Text(),
    "model_version": sa.Text(),
    "provider_request_id": sa.Text(),
    "in_flight": sa.Integer(),
    "sends": sa.SmallInteger(),
    "cost_low_usd": sa.Double(),
    "cost_high_usd": sa.Double(),
    "is_overtaken": sa.Boolean(),
    "overtaken_at_ms": sa.Double(),
    "predicted_ms": sa.Double(),
    "judged_as": sa.Text(),
    "flaw": sa.Text(),
    "price": sa.JSON(),
    "itl": sa.JSON(),
}

# Views in the order in which they are made, each after those it reads; with them the revision whose view of this name
# is replaced, if there was one. NAME_1h, NAME_24h and NAME_30d are made of NAME's file.
VIEWS: dict[str, str | None] = {
    "samples": "0003",
    "leaderboard": "0002",
    "race_value": "0001",
    "race_value_1h": None,
    "race_value_24h": None,
    "race_value_30d": None,
    "slo": "0003",
    "throughput": "0001",
    "throughput_1h": None,
    "throughput_24h": None,
    "throughput_30d": None,
    "provider_errors": "0001",
    "provider_errors_1h": None,
    "provider_errors_24h": None,
    "provider_errors_30d": None,
    "client_usage": None,
    "client_usage_1h": None,
    "client_usage_24h": None,
    "client_usage_30d": None,
    "tag_values": None,
    "tag_values_1h": None,
    "tag_values_24h": None,
    "tag_values_30d": None,
    "tag_differences": None,
    "answer_quality": None,
    "answer_quality_1h": None,
    "answer_quality_24h": None,
    "answer_quality_30d": None,
    "load_5m": None,
    "load_peaks": None,
}
# What people look things up by.
INDEXES: dict[str, tuple[str, list[str], str | None]] = {
    "calls_request_id": ("calls", ["request_id"], "request_id is not null"),
    "calls_client_started_at": ("calls", ["client", "started_at"], None),
    "calls_errors": ("calls", ["started_at"], "error_kind is not null"),
    "attempts_errors": ("attempts", ["started_at"], "error_kind is not null"),
}
WINDOWS = {"1h": "1 hour", "24h": "24 hours", "30d": "30 days"}
SINCE = {
    "postgresql": "now() - interval '{}'",
    "sqlite": "strftime('%Y-%m-%d %H:%M:%S', 'now', '-{}')",
}
# The oldest version that may go on using this schema: what it writes has a place here, and the rest may be null.
OLDEST_READER = "0003"
VIEWS_FOLDER = Path(__file__).resolve().parents[1] / "views"


def upgrade() -> None:
    for name in reversed([name for name, replaced in VIEWS.items() if replaced is not None]):
        op.execute(f"drop view {name}")
    for table, columns in (("calls", CALLS), ("attempts", ATTEMPTS)):
        for name, kind in columns.items():
            op.add_column(table, sa.Column(name, kind))
    for name, (table, names, where) in INDEXES.items():
        condition = None if where is None else sa.text(where)
        op.create_index(name, table, names, postgresql_where=condition, sqlite_where=condition)
    if op.get_bind().dialect.name == "postgresql":
        op.create_index(
            "calls_tags", "calls", ["tags"], postgresql_using="gin", postgresql_ops={"tags": "jsonb_path_ops"}
        )
    readers = op.create_table("ledger_readers", sa.Column("oldest", sa.Text(), nullable=False))
    op.bulk_insert(readers, [{"oldest": OLDEST_READER}])
    for name in VIEWS:
        create(name)


def downgrade() -> None:
    op.drop_table("ledger_readers")
    for name in reversed(VIEWS):
        op.execute(f"drop view {name}")
    for name, (table, _, _) in INDEXES.items():
        op.drop_index(name, table)
    if op.get_bind().dialect.name == "postgresql":
        op.drop_index("calls_tags", "calls")
    for table, columns in (("attempts", ATTEMPTS), ("calls", CALLS)):
        for name in reversed(columns):
            op.drop_column(table, name)
    for name, replaced in VIEWS.items():
        if replaced is not None:
            op.get_bind().exec_driver_sql(file_of(replaced, name).read_text(encoding="utf-8"))


def create(view: str) -> None:
    """Make a view; a window's is its file's with the comments that name ``:since`` made conditions."""
    name, _, suffix = view.rpartition("_")
    if suffix not in WINDOWS:
        op.get_bind().exec_driver_sql(file_of(revision, view).read_text(encoding="utf-8"))
        return
    since = SINCE[op.get_bind().dialect.name].format(WINDOWS[suffix])
    definition = (
        file_of(revision, name).read_text(encoding="utf-8").replace(f"create view {name} as", f"create view {view} as")
    )
    op.get_bind().exec_driver_sql(re.sub(r"-- (and \S+ >= ):since", lambda found: found[1] + since, definition))


def file_of(of_revision: str, view: str) -> Path:
    """Return where a view is defined: once for both databases, where their SQL is the same."""
    folder = VIEWS_FOLDER / of_revision
    same = folder / f"{view}.sql"
    return same if same.exists() else folder / op.get_bind().dialect.name / f"{view}.sql"
