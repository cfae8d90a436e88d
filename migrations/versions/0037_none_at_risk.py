"""The leaderboard divides by the number of attempts at risk only where there are any.

A loser that was not watched counts as none where watched ones stand for it. Where one was cut later than all others, or
all the watched failed, none was left to have a first token, and on Postgres the view failed with a division by zero.
"""

from alembic import op

from gateway.ledger.schema import Changes

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None
only_adds = True


def upgrade() -> None:
    Changes(op.get_bind(), revision).make_views("leaderboard")


def downgrade() -> None:
    """Do nothing: the version before works with this definition as with its own."""
