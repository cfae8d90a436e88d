"""Which thoughts of its request an attempt's vendor did not show its model, and why."""

import sqlalchemy as sa
from alembic import op

revision = "0050"
down_revision = "0049"
branch_labels = None
depends_on = None
only_adds = True


def upgrade() -> None:
    op.add_column("attempts", sa.Column("thoughts_dropped", sa.JSON))


def downgrade() -> None:
    op.drop_column("attempts", "thoughts_dropped")
