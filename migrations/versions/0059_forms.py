"""A request that was refused for its form is no try of its deployment: the one that repeats it is."""

from alembic import op

from gateway.ledger.schema import Changes

revision = "0059"
down_revision = "0058"
branch_labels = None
depends_on = None
only_adds = True

CHANGED = ("samples", "throughput_1h", "throughput_24h")


def upgrade() -> None:
    changes = Changes(op.get_bind(), revision)
    changes.make_sums()
    changes.make_views(*CHANGED)


def downgrade() -> None:
    changes = Changes(op.get_bind(), down_revision)
    changes.make_sums()
    changes.make_views(*CHANGED)
