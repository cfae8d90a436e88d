"""The ledger of the first published version: its tables, views, and the sums that the database keeps by itself.

Rows of Postgres are in partitions by time: what is old is dropped, not deleted. To store rows only notes their ids
there, and one process at a time adds up the rows of these (a fold), so that no writer waits for another one's COMMIT.
"""

from pathlib import Path

import sqlalchemy as sa
from alembic import op

from gateway.ledger.schema import Changes, function_sql, rendered, views_of

revision = "0045"
down_revision = None
branch_labels = None
depends_on = None
only_adds = False  # nothing before it was published

TYPES = {
    "postgresql": {"id": "uuid", "instant": "timestamptz", "json": "jsonb", "double": "double precision"},
    "sqlite": {"id": "char(36)", "instant": "datetime", "json": "json", "double": "double"},
}
ROWS = ("calls", "attempts")
TABLES = (
    *("calls", "attempts", "refusals", "outages", "probes", "alerts", "alert_messages", "slowdowns", "detector"),
    *("client_keys", "key_changes", "target_counts", "ledger_readers", "buckets", "rollup_periods", "rollup_series"),
    *("rollup_attempts", "rollup_errors", "rollup_histograms", "rollup_calls", "rollup_tags", "rollup_wide_tags"),
)
NOTED, NOTED_ON_SQLITE = ("rollup_fresh", "rollup_waiting"), ("rollup_fresh_calls", "rollup_fresh_attempts")
FUNCTIONS = ("roll_up_calls", "roll_up_attempts", "roll_up_fresh", "values_of_wide_tag")
LOWEST, HIGHEST = -56, 111  # numbers of buckets: from 0.08 ms to 163.84 s
NOTES = """
create function roll_up_{table}() returns trigger language plpgsql security definer
set search_path = "{path}", pg_temp as $$ begin \
insert into rollup_fresh (is_call, id, started_at) select {is_call}, id, started_at from fresh; return null; end $$
"""
TRIGGER = (
    "create trigger roll_up after insert on {table} referencing new table as fresh "
    "for each statement execute function roll_up_{table}()"
)


def upgrade() -> None:
    changes, dialect = Changes(op.get_bind(), revision), op.get_bind().dialect.name
    written = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    for statement in rendered(written, TYPES[dialect], is_postgres=changes.words.is_postgres).split(";\n"):
        if statement.strip():
            changes.run(statement)
    buckets = sa.table("buckets", sa.column("bucket"), sa.column("from_ms"), sa.column("to_ms"))
    op.bulk_insert(
        buckets,
        [
            {"bucket": bucket, "from_ms": 10.0 * 2 ** (bucket / 8), "to_ms": 10.0 * 2 ** ((bucket + 1) / 8)}
            for bucket in range(LOWEST, HIGHEST + 1)
        ],
    )
    if changes.words.is_postgres:
        _make_functions(changes)
    changes.make_views(*views_of(revision))
    changes.make_sums()


def _make_functions(changes: Changes) -> None:
    """Make the first partitions, what notes new rows, and what adds up those of tags that sums do not have."""
    bind = op.get_bind()
    path = str(bind.scalar(sa.text("select current_schema()")))
    midnight = bind.scalar(sa.text("select date_trunc('day', now(), 'UTC') + interval '1 day'")).isoformat()
    for table in ROWS:
        changes.run(f"alter table {table} attach partition {table}_first for values from (minvalue) to ('{midnight}')")
        is_call = "true" if table == "calls" else "false"
        changes.run(NOTES.format(table=table, path=path, is_call=is_call))
        changes.run(TRIGGER.format(table=table))
    changes.run(function_sql("values_of_wide_tag", changes.words, path, revision))


def downgrade() -> None:
    changes = Changes(op.get_bind(), revision)
    is_postgres = changes.words.is_postgres
    changes.drop_views(*reversed(views_of(revision)))
    for table in (*TABLES, *(NOTED if is_postgres else NOTED_ON_SQLITE)):
        changes.run(f"drop table {table}")
    for function in FUNCTIONS if is_postgres else ():
        changes.run(f"drop function {function}")
