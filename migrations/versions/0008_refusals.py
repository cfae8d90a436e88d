"""Requests that the gateway refused: by minute, reason, client and address."""

from pathlib import Path

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None
only_adds = True

VIEWS_FOLDER = Path(__file__).resolve().parents[1] / "views"
VIEWS = ("refusals", "wrong_keys")  # each of the last hour, day and month
WINDOWS = {"1h": "1 hour", "24h": "24 hours", "30d": "30 days"}
SINCE = {"postgresql": "now() - interval '{}'", "sqlite": "datetime('now', '-{}')"}


def upgrade() -> None:
    op.create_table(
        "refusals",
        sa.Column("id", sa.Uuid(as_uuid=False).with_variant(sa.CHAR(36), "sqlite"), primary_key=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("status_code", sa.SmallInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("client", sa.Text()),
        sa.Column("address", sa.Text()),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("replica", sa.Text(), nullable=False),
    )
    op.create_index("refusals_started_at", "refusals", ["started_at"])
    if op.get_bind().dialect.name == "postgresql":
        _grant_as("calls", "refusals")
    since = SINCE[op.get_bind().dialect.name]
    for view in VIEWS:
        definition = (VIEWS_FOLDER / revision / f"{view}.sql").read_text(encoding="utf-8")
        for window, words in WINDOWS.items():
            named = definition.replace("{view}", f"{view}_{window}").replace("{since}", since.format(words))
            op.get_bind().exec_driver_sql(named)


def downgrade() -> None:
    for view in VIEWS:
        for window in WINDOWS:
            op.execute(f"drop view {view}_{window}")
    op.drop_table("refusals")


def _grant_as(there: str, new: str) -> None:
    """Give everybody the rights to the new table that they have to the one that is there.

    A gateway whose role does not own the tables could not ship its rows otherwise.
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
