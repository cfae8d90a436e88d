"""When an answer was known to be valid, and whether the one that began first was not: for ``win_on: valid``."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None
only_adds = True


def upgrade() -> None:
    op.add_column("attempts", sa.Column("valid_ms", sa.Double))
    op.add_column("calls", sa.Column("first_was_invalid", sa.Boolean))
    speech = _revision("0018")
    speech.make_samples(speech.NOW.replace("else", "when 'valid' then attempts.valid_ms else"))


def downgrade() -> None:
    speech = _revision("0018")
    speech.make_samples(speech.NOW)
    op.drop_column("calls", "first_was_invalid")
    op.drop_column("attempts", "valid_ms")


def _revision(name: str) -> Any:
    """Return the module of a revision."""
    script = op.get_context().script
    if script is None:
        raise RuntimeError("a revision of its own has no others to ask")
    return script.get_revision(name).module
