"""What teams have paid has all attempts, also those that end after their call; views by calendar month.

Quantiles of what racing saved are told from thirty calls on.
"""

import sqlalchemy as sa
from alembic import op

from gateway.ledger.schema import SINCE, VIEWS, Changes, views_of

revision = "0053"
down_revision = "0052"
branch_labels = None
depends_on = None
only_adds = True

NEW = tuple(name for name, first in SINCE.items() if first == revision)
CHANGED = tuple(name for name in views_of(revision) if VIEWS[name][0] in {"race_value", "tag_values"})


def upgrade() -> None:
    op.add_column("rollup_tags", sa.Column("all_cost_usd", sa.Double))
    changes = Changes(op.get_bind(), revision)
    changes.make_sums()
    changes.make_views(*NEW, *CHANGED)


def downgrade() -> None:
    before = Changes(op.get_bind(), down_revision)
    before.drop_views(*NEW)
    before.make_views(*CHANGED)
    before.make_sums()
    op.drop_column("rollup_tags", "all_cost_usd")
