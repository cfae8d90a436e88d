"""What prompt caches saved, what a client calls its request, and who answered it for which model and without what."""

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

VIEWS_FOLDER = Path(__file__).resolve().parents[1] / "views"

# All of them may be null, so that no database rewrites its rows for them.
CALLS = ("request_id", "answered_model", "dropped", "cache_write_tokens", "cache_saved_usd")
ATTEMPTS = ("cache_write_tokens", "cache_saved_usd", "model")


def upgrade() -> None:
    types: dict[str, sa.types.TypeEngine[Any]] = {
        "request_id": sa.Text(),
        "answered_model": sa.Text(),
        "dropped": sa.JSON().with_variant(postgresql.JSONB(), "postgresql"),
        "cache_write_tokens": sa.Integer(),
        "cache_saved_usd": sa.Double(),
        "model": sa.Text(),
    }
    for table, names in (("calls", CALLS), ("attempts", ATTEMPTS)):
        for name in names:
            op.add_column(table, sa.Column(name, types[name]))
    _drop("leaderboard", "samples", "slo")
    _create(revision, "samples")
    _create(revision, "slo")
    _create("0002", "leaderboard")
    _create(revision, "cache_value")


def downgrade() -> None:
    _drop("cache_value", "leaderboard", "samples", "slo")
    for table, names in (("attempts", ATTEMPTS), ("calls", CALLS)):
        for name in reversed(names):
            op.drop_column(table, name)
    for of_revision, view in (("0002", "samples"), ("0002", "leaderboard"), ("0001", "slo")):
        _create(of_revision, view)


def _drop(*views: str) -> None:
    for view in views:
        op.execute(f"drop view {view}")


def _create(of_revision: str, view: str) -> None:
    definition = VIEWS_FOLDER / of_revision / op.get_bind().dialect.name / f"{view}.sql"
    op.get_bind().exec_driver_sql(definition.read_text(encoding="utf-8"))
