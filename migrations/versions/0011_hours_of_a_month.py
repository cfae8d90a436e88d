"""Sums of hours are kept for a month, so that a heat map of a month has them; of quantiles those that it shows.

Older hours are not made again: a month is full a month after the upgrade. What else is added up by the hour goes after
eight days as before (``gateway.ledger.retention``).
"""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None
only_adds = True


def upgrade() -> None:
    op.execute("update rollup_periods set keep_days = 31 where minutes = 60")


def downgrade() -> None:
    op.execute("update rollup_periods set keep_days = 8 where minutes = 60")
