"""Which attempt one replaces, as it repeats its request with another key or in another form, and as what it counts."""

import sqlalchemy as sa
from alembic import op

from gateway.ledger.schema import Changes

revision = "0057"
down_revision = "0056"
branch_labels = None
depends_on = None
only_adds = True

CHANGED = ("samples", "throughput_1h", "throughput_24h")


def upgrade() -> None:
    is_postgres = op.get_bind().dialect.name == "postgresql"
    op.add_column("attempts", sa.Column("replaces", sa.Uuid(as_uuid=False) if is_postgres else sa.CHAR(36)))
    op.add_column("attempts", sa.Column("counts_as", sa.Text))
    changes = Changes(op.get_bind(), revision)
    changes.make_sums()
    changes.make_views(*CHANGED)


def downgrade() -> None:
    changes = Changes(op.get_bind(), down_revision)
    changes.make_sums()
    changes.make_views(*CHANGED)
    op.drop_column("attempts", "counts_as")
    op.drop_column("attempts", "replaces")
