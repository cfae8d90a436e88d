"""The leaderboard on Postgres divides by the number of attempts at risk only where there are any.

A loser that was not watched counts as none where watched ones stand for it. Where one was cut later than all others, or
all the watched failed, none was left to have a first token, and the view failed with a division by zero.
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
