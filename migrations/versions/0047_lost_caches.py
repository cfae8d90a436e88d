"""What racing added has what it lost in prompt caches, which is in the winner's cost: attempts cost what is billed.

Before, the overtaken attempt's own cost had it too. It also has fallbacks that were asked beside a late model.
"""

from alembic import op

from gateway.ledger.schema import Changes

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None
only_adds = True


def upgrade() -> None:
    Changes(op.get_bind(), revision).make_sums()


def downgrade() -> None:
    Changes(op.get_bind(), down_revision).make_sums()
