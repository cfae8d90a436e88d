"""Racing's worth: intervals that hold where waits have long tails, and that know of the buckets of quantiles."""

from typing import Any

from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None
only_adds = True


def upgrade() -> None:
    _make(revision)


def downgrade() -> None:
    _make("0024")


def _make(of_revision: str) -> None:
    before, sums = _revision("0024"), _revision("0007")
    text = before._file(of_revision, "race_value")  # noqa: SLF001 - of the same views
    for span in ("", *before.LATELY):
        name, windows = (f"race_value_{span}", sums.windows(span)) if span else ("race_value", before.ALL_TIME)
        before._make(name, sums.defined(text, name, windows, ""))


def _revision(name: str) -> Any:
    """Return the module of a revision."""
    script = op.get_context().script
    if script is None:
        raise RuntimeError("a revision of its own has no others to ask")
    return script.get_revision(name).module
