"""Which model a request was refused for; and no figure of what racing saved for a few calls."""

import sqlalchemy as sa
from alembic import op

from gateway.ledger.schema import VIEWS, Changes, views_of

revision = "0056"
down_revision = "0055"
branch_labels = None
depends_on = None
only_adds = True

CHANGED = "refusals_24h"
VALUES = tuple(name for name in views_of(revision) if VIEWS[name][0] == "race_value")


def upgrade() -> None:
    op.add_column("refusals", sa.Column("model", sa.Text))
    Changes(op.get_bind(), revision).make_views(CHANGED, *VALUES)


def downgrade() -> None:
    before = Changes(op.get_bind(), down_revision)
    before.make_views_again(CHANGED)
    before.make_views(*VALUES)
    op.drop_column("refusals", "model")
