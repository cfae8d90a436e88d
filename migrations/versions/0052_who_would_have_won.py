"""Which deployment would have been first in the calls that did not ask it: ``would_win_24h``."""

from alembic import op

from gateway.ledger.schema import Changes

revision = "0052"
down_revision = "0051"
branch_labels = None
depends_on = None
only_adds = True


def upgrade() -> None:
    Changes(op.get_bind(), revision).make_views("would_win_24h")


def downgrade() -> None:
    Changes(op.get_bind(), down_revision).drop_views("would_win_24h")
