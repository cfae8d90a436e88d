"""Why a call had fewer attempts than its mode, width and budget ask for, and how many these are."""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None
only_adds = True


def upgrade() -> None:
    op.add_column("calls", sa.Column("narrowed", sa.Text))
    op.add_column("calls", sa.Column("width_asked", sa.SmallInteger))


def downgrade() -> None:
    op.drop_column("calls", "width_asked")
    op.drop_column("calls", "narrowed")
