"""The leaderboard says which deployments are out, since when, and ranks them last.

One is out if an outage without an end began within a day, nothing has had a first token there since, and its replica
has not seen a later one end.
"""

from alembic import op

from gateway.ledger.schema import Changes

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None
only_adds = True

VIEW = "leaderboard"


def upgrade() -> None:
    Changes(op.get_bind(), revision).make_views(VIEW)


def downgrade() -> None:
    before = Changes(op.get_bind(), down_revision)
    before.make_views_again(VIEW)
