"""What deployments write to fixed prompts of the gateway's own, so that another model behind a name is noticed."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None
only_adds = True


def upgrade() -> None:
    op.add_column("probes", sa.Column("prompt", sa.SmallInteger))
    op.add_column("probes", sa.Column("answer", sa.Text))


def downgrade() -> None:
    op.drop_column("probes", "answer")
    op.drop_column("probes", "prompt")
