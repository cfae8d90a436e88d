"""Views tell calls of the last hour and day by the region of the replica that served them."""

from alembic import op

from gateway.ledger.schema import Changes

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None
only_adds = True

VIEWS = ("regions_1h", "regions_24h")


def upgrade() -> None:
    Changes(op.get_bind(), revision).make_views(*VIEWS)


def downgrade() -> None:
    Changes(op.get_bind(), down_revision).drop_views(*VIEWS)
