"""Google's interactions are answers that are raced: the sums count them as such."""

from alembic import op

from gateway.ledger.schema import Changes

revision = "0064"
down_revision = "0062"
branch_labels = None
depends_on = None
only_adds = True


def upgrade() -> None:
    Changes(op.get_bind(), revision).make_sums()


def downgrade() -> None:
    Changes(op.get_bind(), down_revision).make_sums()
