"""The views of speed add up slot after slot, as histories do: the same figures in half to two thirds of the time."""

from alembic import op

from gateway.ledger.schema import VIEWS, Changes

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None
only_adds = True

CHANGED = tuple(name for name, (text, _) in VIEWS.items() if text == "speed")


def upgrade() -> None:
    Changes(op.get_bind(), revision).make_views(*CHANGED)


def downgrade() -> None:
    Changes(op.get_bind(), down_revision).make_views(*CHANGED)
