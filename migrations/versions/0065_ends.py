"""The row of an end in the background is kept until it is a call's; a view of what end users have spent by month."""

import sqlalchemy as sa
from alembic import op

from gateway.ledger.schema import SINCE, Changes

revision = "0065"
down_revision = "0064"
branch_labels = None
depends_on = None
only_adds = True

NEW = tuple(name for name, first in SINCE.items() if first == revision)


def upgrade() -> None:
    op.add_column("stored_names", sa.Column("ended", sa.Text))
    kept = sa.text("ended is not null")
    op.create_index("stored_names_ended", "stored_names", ["id"], postgresql_where=kept, sqlite_where=kept)
    Changes(op.get_bind(), revision).make_views(*NEW)


def downgrade() -> None:
    Changes(op.get_bind(), down_revision).drop_views(*NEW)
    op.drop_index("stored_names_ended", "stored_names")
    op.drop_column("stored_names", "ended")
