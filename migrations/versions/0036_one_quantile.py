"""The views of an hour's and a day's throughput have the quantiles that the others have.

They are the first value at which the share is reached, where they lay between two values before: of few answers up to
half as much again.
"""

from alembic import op

from gateway.ledger.schema import Changes

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None
only_adds = True

VIEWS = ("throughput_1h", "throughput_24h")


def upgrade() -> None:
    Changes(op.get_bind(), revision).make_views(*VIEWS)


def downgrade() -> None:
    Changes(op.get_bind(), down_revision).make_views(*VIEWS)
