"""The views of an hour's and a day's throughput have the quantiles that the others have.

They are the first value at which the share is reached, where they lay between two values before: of few answers up to
half as much again.
"""

from pathlib import Path
from typing import Any

from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None
only_adds = True

TEXT = Path(__file__).resolve().parents[1] / "views" / revision / "throughput.sql"
SPANS = ("1h", "24h")


def upgrade() -> None:
    definition = TEXT.read_text(encoding="utf-8")
    before, rows = _revision("0024"), _revision("0004")
    for span in SPANS:
        since = rows.SINCE[op.get_bind().dialect.name].format(rows.WINDOWS[span])
        name = f"throughput_{span}"
        before._make(name, definition.replace("{view}", name).replace("{since}", since))


def downgrade() -> None:
    before, rows = _revision("0024"), _revision("0004")
    dialect = op.get_bind().dialect.name
    text = rows.file_of("0004", "throughput").read_text(encoding="utf-8")
    for span in SPANS:
        since = rows.SINCE[dialect].format(rows.WINDOWS[span])
        name = f"throughput_{span}"
        of_span = text.replace("create view throughput as", f"create view {name} as")
        before._make(
            name, of_span.replace("-- and attempts.started_at >= :since", f"and attempts.started_at >= {since}")
        )


def _revision(name: str) -> Any:
    """Return the module of a revision."""
    script = op.get_context().script
    if script is None:
        raise RuntimeError("a revision of its own has no others to ask")
    return script.get_revision(name).module
