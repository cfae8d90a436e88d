"""On Postgres the leaderboard divides by nobody no more.

A loser whose place the watched take counts as none. Where one was cut later than all others, or all the watched failed,
nobody was left to have a first token, and whoever asked for the view was told of a division by zero.
"""

from pathlib import Path

from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None
only_adds = True

LEADERBOARD = Path(__file__).resolve().parents[1] / "views" / revision / "postgresql" / "leaderboard.sql"


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":  # SQLite's quotient by zero is null
        definition = LEADERBOARD.read_text(encoding="utf-8").replace("create view", "create or replace view", 1)
        op.get_bind().exec_driver_sql(definition)


def downgrade() -> None:
    """Do nothing: the version before works with this definition as with its own."""
