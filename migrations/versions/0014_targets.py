"""Targets: counts of their calls by window, and the profile of each call."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0012"
branch_labels = None
depends_on = None
only_adds = True

TABLE = "target_counts"
COUNTED = ("seen", "seen_speeds", "calls", "bad", "failed", "late", "slow", "halting")


def upgrade() -> None:
    op.add_column("calls", sa.Column("profile", sa.Text()))
    op.create_table(
        TABLE,
        sa.Column("definition", sa.CHAR(32), nullable=False),
        sa.Column("minutes", sa.SmallInteger(), nullable=False),
        sa.Column("window_start", sa.DateTime(timezone=True), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in COUNTED),
        sa.PrimaryKeyConstraint("definition", "minutes", "window_start", name=f"{TABLE}_pkey"),
    )
    if op.get_bind().dialect.name == "postgresql":
        _grant_as("calls")


def downgrade() -> None:
    op.drop_table(TABLE)
    op.drop_column("calls", "profile")


def _grant_as(there: str) -> None:
    """Let everybody read the counts who may read calls, and everybody store them who may store calls."""
    found = op.get_bind().execute(
        sa.text(
            "select case when grantee = 0 then 'public' else grantee::regrole::text end as role, privilege_type as may "
            "from pg_class, aclexplode(relacl) where pg_class.oid = to_regclass(:name) and grantee <> relowner"
        ),
        {"name": there},
    )
    for row in found.fetchall():
        if row.may == "SELECT":
            op.execute(f"grant select on {TABLE} to {row.role}")
        if row.may == "INSERT":
            op.execute(f"grant select, insert, update, delete on {TABLE} to {row.role}")
            op.execute(f"grant select on rollup_calls to {row.role}")
