"""What racing added has no cache that was lost to an attempt with a client's own key: the operator did not pay that."""

from alembic import op

from gateway.ledger.schema import Changes

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None
only_adds = True


def upgrade() -> None:
    Changes(op.get_bind(), revision).make_sums()


def downgrade() -> None:
    Changes(op.get_bind(), down_revision).make_sums()
