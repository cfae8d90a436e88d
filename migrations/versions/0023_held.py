"""How long the winner's first token was held back, for whom, and what that was to gain; of calls that ask for it."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None
only_adds = True


def upgrade() -> None:
    op.add_column("calls", sa.Column("held_ms", sa.Double))
    op.add_column("calls", sa.Column("held_for", sa.Text))
    op.add_column("calls", sa.Column("held_gain_ms", sa.Double))


def downgrade() -> None:
    op.drop_column("calls", "held_gain_ms")
    op.drop_column("calls", "held_for")
    op.drop_column("calls", "held_ms")
