"""Answers that broke and were finished by another deployment, or why they were not."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None
only_adds = True


def upgrade() -> None:
    op.add_column("attempts", sa.Column("continues", sa.Uuid(as_uuid=False).with_variant(sa.CHAR(36), "sqlite")))
    op.add_column("calls", sa.Column("takeover", sa.Text))
    op.add_column("calls", sa.Column("takeovers", sa.SmallInteger))


def downgrade() -> None:
    op.drop_column("calls", "takeovers")
    op.drop_column("calls", "takeover")
    op.drop_column("attempts", "continues")
