"""Slowdowns: when a deployment was slower than usual; and the ages at which attempts were cut, as histograms.

``ttft_cut`` among the sums counts, in the buckets of ``ttft``, attempts without a first token by the age at which they
were cut: "more than this". It is counted from now on: of earlier windows only their number is known.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None
only_adds = True

CUT = ("ttft_cut", "f.censored_at_ms", "f.ttft_ms is null and f.censored_at_ms is not null")


def upgrade() -> None:
    instant = sa.DateTime(timezone=True)
    op.create_table(
        "slowdowns",
        sa.Column("id", sa.Uuid(as_uuid=False).with_variant(sa.CHAR(36), "sqlite"), primary_key=True),
        sa.Column("deployment", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("began_at", instant, nullable=False),
        sa.Column("noticed_at", instant, nullable=False),
        sa.Column("ended_at", instant),
        sa.Column("ending", sa.Text()),
        sa.Column("ratio", sa.Double(), nullable=False),
        sa.Column("low", sa.Double(), nullable=False),
        sa.Column("high", sa.Double(), nullable=False),
        sa.Column("n", sa.BigInteger(), nullable=False),
        sa.Column("evidence_sql", sa.Text(), nullable=False),
    )
    op.create_index("slowdowns_began_at", "slowdowns", ["began_at"])
    is_open = sa.text("ended_at is null")
    op.create_index(
        "slowdowns_open",
        "slowdowns",
        ["model", "deployment", "metric"],
        unique=True,
        postgresql_where=is_open,
        sqlite_where=is_open,
    )
    op.create_table(
        "detector",
        sa.Column("id", sa.SmallInteger(), primary_key=True, autoincrement=False),
        sa.Column("holder", sa.Text()),
        sa.Column("until_at", instant),
    )
    op.execute("insert into detector (id) values (1)")
    _count([CUT])
    if op.get_bind().dialect.name == "postgresql":
        _grant()


def downgrade() -> None:
    op.drop_table("detector")
    op.drop_table("slowdowns")
    _count([])
    op.execute("delete from rollup_histograms where metric = 'ttft_cut'")


def _count(more: list[tuple[str, str, str]]) -> None:
    """Make what adds up attempts again, with ``more`` histograms: names, values and conditions."""
    rollups = _revision("0006")
    dialect = rollups.Dialect(op.get_bind().dialect.name)
    if dialect.is_postgres:
        function = rollups._postgres_trigger(dialect, "attempts", more)[0]  # noqa: SLF001 - of the same tables
        op.get_bind().exec_driver_sql(function.replace("create function", "create or replace function"))
    else:
        op.execute("drop trigger roll_up")
        op.get_bind().exec_driver_sql(rollups._triggers(dialect, more)[-1])  # noqa: SLF001 - likewise


def _revision(name: str) -> Any:
    """Return the module of a revision."""
    script = op.get_context().script
    if script is None:
        raise RuntimeError("a revision of its own has no others to ask")
    return script.get_revision(name).module


def _grant() -> None:
    """Give everybody the rights to the new tables that they have to ``calls``; who inserts there also stores ends."""
    found = op.get_bind().execute(
        sa.text(
            "select case when grantee = 0 then 'public' else grantee::regrole::text end as role, privilege_type as may "
            "from pg_class, aclexplode(relacl) where pg_class.oid = to_regclass('calls') and grantee <> relowner"
        )
    )
    for row in found.fetchall():
        op.execute(f"grant {row.may} on slowdowns, detector to {row.role}")
        if row.may == "INSERT":
            op.execute(f"grant select, update (ended_at, ending) on slowdowns to {row.role}")
            op.execute(f"grant select, update (holder, until_at) on detector to {row.role}")
