"""Attempts that ran on behind a winner, and winners of streams that dribbled."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None
only_adds = True


def upgrade() -> None:
    op.add_column("attempts", sa.Column("is_kept", sa.Boolean))
    op.add_column("attempts", sa.Column("would_take_over", sa.Boolean))
    op.add_column("attempts", sa.Column("would_take_over_ms", sa.Double))


def downgrade() -> None:
    op.drop_column("attempts", "would_take_over_ms")
    op.drop_column("attempts", "would_take_over")
    op.drop_column("attempts", "is_kept")
