"""Calls and attempts say whether they failed; views tell outages, single hours, and when an error was first seen.

``failed`` is false where nothing failed before, so that no table is written again: only rows of failures are. Of what
the version before stores from now on it is null. ``decode_tps_p05`` is ``decode_tps_p95``, what 95 % of the
answers reach, by its name in statistics.
"""

import sqlalchemy as sa
from alembic import op

from gateway.ledger.schema import Changes

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None
only_adds = True

FAILED = {
    "calls": "error_kind is not null and (status_code in (424, 429) or status_code not between 400 and 499)",
    # Each of these has an error's kind; of the two only that has an index.
    "attempts": "error_kind is not null and outcome in ('failed', 'timeout', 'stalled')",
}
NEW = ("speed_hours", "outages_30d")
CHANGED = (
    *("throughput", "throughput_1h", "throughput_24h", "throughput_30d", "throughput_5m"),
    *("speed_by_hour", "speed_days"),
    *("provider_errors", "provider_errors_1h", "provider_errors_24h", "provider_errors_30d"),
)


def upgrade() -> None:
    changes = Changes(op.get_bind(), revision)
    for table, condition in FAILED.items():
        if changes.words.is_postgres:
            changes.run(f"alter table {table} add column failed boolean default false")
            changes.run(f"alter table {table} alter column failed drop default")
            changes.run(f"update {table} set failed = true where {condition}")
        else:  # a default stays there
            op.add_column(table, sa.Column("failed", sa.Boolean))
            changes.run(f"update {table} set failed = ({condition})")
    changes.make_views(*NEW, *CHANGED)


def downgrade() -> None:
    before = Changes(op.get_bind(), down_revision)
    before.drop_views(*NEW)
    before.make_views_again(*CHANGED)
    for table in FAILED:
        op.drop_column(table, "failed")
