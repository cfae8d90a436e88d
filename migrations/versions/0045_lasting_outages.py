"""The leaderboard reads which outages last from ``outages_30d``: what that means is said once."""

from alembic import op

from gateway.ledger.schema import Changes

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None
only_adds = True

VIEW = "leaderboard"


def upgrade() -> None:
    Changes(op.get_bind(), revision).make_views(VIEW)


def downgrade() -> None:
    Changes(op.get_bind(), down_revision).make_views(VIEW)
