"""What a provider reported where it was more tokens than can be; it only adds."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None
only_adds = True


def upgrade() -> None:
    op.add_column("attempts", sa.Column("reported_tokens", sa.BigInteger))


def downgrade() -> None:
    op.drop_column("attempts", "reported_tokens")
