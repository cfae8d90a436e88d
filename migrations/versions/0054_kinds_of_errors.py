"""An API that a deployment lacks, and an answer that a client's API has no place for, are errors of none.

Sums and views counted them differently: one attempt was an error in ``throughput`` and none in ``leaderboard``.
"""

from alembic import op

from gateway.ledger.schema import Changes

revision = "0054"
down_revision = "0053"
branch_labels = None
depends_on = None
only_adds = True

CHANGED = ("samples", "throughput_1h", "throughput_24h")


def upgrade() -> None:
    changes = Changes(op.get_bind(), revision)
    changes.make_sums()
    changes.make_views(*CHANGED)


def downgrade() -> None:
    changes = Changes(op.get_bind(), down_revision)
    changes.make_sums()
    changes.make_views(*CHANGED)
