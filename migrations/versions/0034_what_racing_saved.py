"""Racing's worth has an interval as soon as it can be told, of the calls and not only of audits, and a verdict.

For that the sums have two more columns: of what was seen, squares beside the values. Of windows whose rows are deleted
they are 0, so intervals that reach back to these are a little too narrow.
"""

import sqlalchemy as sa
from alembic import op

from gateway.ledger.schema import Changes

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None
only_adds = True

SUMS = ("saved_seen_squared", "explored_seen_squared")
VIEWS = ("race_value", "race_value_1h", "race_value_24h", "race_value_30d")


def upgrade() -> None:
    changes = Changes(op.get_bind(), revision)
    changes.add_up_what_is_new()
    for name in SUMS:
        op.add_column("rollup_calls", sa.Column(name, sa.Double, nullable=False, server_default="0"))
    changes.add_sums_of_rows(*SUMS)
    changes.make_sums()
    changes.make_views(*VIEWS)


def downgrade() -> None:
    before = Changes(op.get_bind(), down_revision)
    before.make_views_again(*VIEWS)
    before.make_sums()
    for name in SUMS:
        op.drop_column("rollup_calls", name)
