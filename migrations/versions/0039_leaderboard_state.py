"""The leaderboard says which deployments are out, since when, and ranks them last.

One is out if an outage without an end began within a day, and nothing has had a first token there since.
"""

from pathlib import Path

from alembic import op

revision = "0039"
down_revision = "0037"
branch_labels = None
depends_on = None
only_adds = True

TEXTS = Path(__file__).resolve().parents[1] / "views" / revision
BEFORE = TEXTS.parent / "0037" / "postgresql" / "leaderboard.sql"


def upgrade() -> None:
    dialect = op.get_bind().dialect.name
    definition = (TEXTS / dialect / "leaderboard.sql").read_text(encoding="utf-8")
    if dialect == "postgresql":  # new columns at the end; grants stay
        definition = definition.replace("create view", "create or replace view", 1)
    else:
        op.get_bind().exec_driver_sql("drop view leaderboard")
    op.get_bind().exec_driver_sql(definition)


def downgrade() -> None:
    """Remove the columns on Postgres, where earlier definitions could not replace a view that has more."""
    if op.get_bind().dialect.name == "postgresql":
        op.get_bind().exec_driver_sql("drop view leaderboard")
        op.get_bind().exec_driver_sql(BEFORE.read_text(encoding="utf-8"))
