"""What clients, teams, end users and models have used in all; tokens by model; hours for a month of any zone."""

import sqlalchemy as sa
from alembic import op

from gateway.ledger.schema import Changes

revision = "0062"
down_revision = "0059"
branch_labels = None
depends_on = None
only_adds = True

HOURS_KEPT = "update rollup_periods set keep_days = {} where minutes = 60"  # days


def upgrade() -> None:
    names = (sa.Column(name, sa.Text, nullable=False) for name in ("client", "team", "end_user", "model"))
    amounts = (sa.Column(name, sa.Double, nullable=False) for name in ("usd", "tokens"))
    op.create_table(
        "used_totals",
        *names,
        *amounts,
        sa.PrimaryKeyConstraint("client", "team", "end_user", "model", name="used_totals_pkey"),
    )
    op.add_column("rollup_attempts", sa.Column("won_tokens", sa.BigInteger))
    op.execute(HOURS_KEPT.format(32))
    Changes(op.get_bind(), revision).make_sums()


def downgrade() -> None:
    Changes(op.get_bind(), down_revision).make_sums()
    op.execute(HOURS_KEPT.format(31))
    op.drop_column("rollup_attempts", "won_tokens")
    op.drop_table("used_totals")
