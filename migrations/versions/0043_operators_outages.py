"""On the leaderboard a first token with a client's own key ends no outage either.

The operator's keys may be refused all the same; the view ``outages_30d`` has said so since the revision before.
"""

from alembic import op

from gateway.ledger.schema import Changes

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None
only_adds = True

VIEW = "leaderboard"


def upgrade() -> None:
    Changes(op.get_bind(), revision).make_views(VIEW)


def downgrade() -> None:
    Changes(op.get_bind(), down_revision).make_views(VIEW)
