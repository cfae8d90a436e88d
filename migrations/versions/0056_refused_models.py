"""Which model was asked for by requests that were refused for its name, also in the view."""

import sqlalchemy as sa
from alembic import op

from gateway.ledger.schema import Changes

revision = "0056"
down_revision = "0055"
branch_labels = None
depends_on = None
only_adds = True

CHANGED = "refusals_24h"


def upgrade() -> None:
    op.add_column("refusals", sa.Column("model", sa.Text))
    Changes(op.get_bind(), revision).make_views(CHANGED)


def downgrade() -> None:
    Changes(op.get_bind(), down_revision).make_views_again(CHANGED)
    op.drop_column("refusals", "model")
