"""Sums of upper bounds say beside them of how many attempts the upper bound is unknown.

A sum leaves out what is unknown, so without that it looked like a bound that it is not. Of windows whose rows are
deleted the numbers are 0: their sums still look like bounds.
"""

import sqlalchemy as sa
from alembic import op

from gateway.ledger.schema import VIEWS, Changes

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None
only_adds = True

SUMS = {"n_unpriced": "rollup_calls", "n_wasted_unpriced": "rollup_attempts"}
CHANGED = tuple(name for name, (text, _) in VIEWS.items() if text in {"client_usage", "race_value", "waste"})


def upgrade() -> None:
    changes = Changes(op.get_bind(), revision)
    changes.add_up_what_is_new()
    for name, table in SUMS.items():
        op.add_column(table, sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
    changes.add_sums_of_rows(*SUMS)
    changes.make_sums()
    changes.make_views(*CHANGED)


def downgrade() -> None:
    before = Changes(op.get_bind(), down_revision)
    before.make_views_again(*CHANGED)
    before.make_sums()
    for name, table in SUMS.items():
        op.drop_column(table, name)
