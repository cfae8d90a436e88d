"""Outages: when the breaker of a deployment was open, by process."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None
only_adds = True


def upgrade() -> None:
    instant = sa.DateTime(timezone=True)
    op.create_table(
        "outages",
        sa.Column("id", sa.Uuid(as_uuid=False).with_variant(sa.CHAR(36), "sqlite"), primary_key=True),
        sa.Column("deployment", sa.Text(), nullable=False),
        sa.Column("model", sa.Text()),
        sa.Column("began_at", instant, nullable=False),
        sa.Column("ended_at", instant),
        sa.Column("reason", sa.Text()),
        sa.Column("replica", sa.Text(), nullable=False),
    )
    op.create_index("outages_began_at", "outages", ["began_at"])
    if op.get_bind().dialect.name == "postgresql":
        _grant_as("calls", "outages")


def downgrade() -> None:
    op.drop_table("outages")


def _grant_as(there: str, new: str) -> None:
    """Give everybody the rights to the new table that they have to the one that is there.

    A gateway whose role does not own the tables could not ship its rows otherwise. Who may insert rows may also store
    the end of an outage.
    """
    found = op.get_bind().execute(
        sa.text(
            "select case when grantee = 0 then 'public' else grantee::regrole::text end as role, privilege_type as may "
            "from pg_class, aclexplode(relacl) where pg_class.oid = to_regclass(:name) and grantee <> relowner"
        ),
        {"name": there},
    )
    for row in found.fetchall():
        op.execute(f"grant {row.may} on {new} to {row.role}")
        if row.may == "INSERT":
            op.execute(f"grant select, update (ended_at) on {new} to {row.role}")
