"""The leaderboard's own arithmetic in SQL: its buckets, every attempt as it counts it, and its published figures."""

from pathlib import Path

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

VIEWS_FOLDER = Path(__file__).resolve().parents[1] / "views"

# Eight buckets per octave, from 10 ms to 163.84 s.
BUCKETS = [
    {"bucket": bucket, "from_ms": 10.0 * 2 ** (bucket / 8), "to_ms": 10.0 * 2 ** ((bucket + 1) / 8)}
    for bucket in range(112)
]


def upgrade() -> None:
    op.add_column("calls", sa.Column("win_on", sa.Text, nullable=False, server_default="any"))
    buckets = op.create_table(
        "buckets",
        sa.Column("bucket", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("from_ms", sa.Double, nullable=False),
        sa.Column("to_ms", sa.Double, nullable=False),
    )
    op.create_index("buckets_from_ms", "buckets", ["from_ms"])
    op.bulk_insert(buckets, BUCKETS)
    op.execute("drop view leaderboard")
    for view in ("samples", "leaderboard"):
        _create(revision, view)


def downgrade() -> None:
    for view in ("leaderboard", "samples"):
        op.execute(f"drop view {view}")
    op.drop_table("buckets")
    op.drop_column("calls", "win_on")
    _create("0001", "leaderboard")


def _create(of_revision: str, view: str) -> None:
    definition = VIEWS_FOLDER / of_revision / op.get_bind().dialect.name / f"{view}.sql"
    op.get_bind().exec_driver_sql(definition.read_text(encoding="utf-8"))
