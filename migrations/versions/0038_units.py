"""Which tier of service an attempt asked for and which served it, and what was billed besides tokens of text."""

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None
only_adds = True

COLUMNS = {"tier_asked": sa.Text, "tier_served": sa.Text, "units_cost_usd": sa.Double, "units": sa.JSON}


def upgrade() -> None:
    for name, kind in COLUMNS.items():
        op.add_column("attempts", sa.Column(name, kind))


def downgrade() -> None:
    for name in COLUMNS:
        op.drop_column("attempts", name)
