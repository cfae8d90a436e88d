"""Sums have what the operator's keys did: what clients' own keys cost, and how they failed, is not the operator's."""

from alembic import op

from gateway.ledger.schema import Changes

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None
only_adds = True

VIEW = "samples"


def upgrade() -> None:
    changes = Changes(op.get_bind(), revision)
    changes.make_sums()
    changes.make_views(VIEW)


def downgrade() -> None:
    before = Changes(op.get_bind(), down_revision)
    before.make_views(VIEW)
    before.make_sums()
