"""Which attempts ran beside another one of their call, and how many; and how long an answer's text paused.

``launched - 1`` counts what replaced a failed attempt too. Sums and views have ``extras`` from now on, and that of rows
of older versions, which is unknown. The verdict on racing's worth is 'saved' only where it surely saved something.
"""

import sqlalchemy as sa
from alembic import op

from gateway.ledger.schema import Changes

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None
only_adds = True

VIEWS = ("race_value", "race_value_1h", "race_value_24h", "race_value_30d")


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":  # in the order in which rows are stored: else both would wait
        op.execute("lock table calls, attempts in access exclusive mode")
    op.add_column("calls", sa.Column("extras", sa.SmallInteger))
    op.add_column("attempts", sa.Column("is_extra", sa.Boolean))
    op.add_column("attempts", sa.Column("text_gap_max_ms", sa.Double))
    changes = Changes(op.get_bind(), revision)
    changes.make_sums()
    changes.make_views(*VIEWS)


def downgrade() -> None:
    before = Changes(op.get_bind(), down_revision)
    before.make_views(*VIEWS)
    if op.get_bind().dialect.name == "postgresql":  # likewise
        op.execute("lock table calls, attempts in access exclusive mode")
    before.make_sums()
    op.drop_column("attempts", "text_gap_max_ms")
    op.drop_column("attempts", "is_extra")
    op.drop_column("calls", "extras")
