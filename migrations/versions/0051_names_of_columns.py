"""Columns of views have one way of names: what, statistic, unit (docs/reference/ledger.md). Old names are aliases.

On Postgres the columns are renamed where they are, so that views of operators that read these stay as they are.
"""

from alembic import op

from gateway.ledger.schema import Changes, renamed, views_of

revision = "0051"
down_revision = "0050"
branch_labels = None
depends_on = None
only_adds = True  # the version before finds its names

CHANGED = tuple(name for name in views_of(revision) if renamed(name, revision))


def upgrade() -> None:
    changes = Changes(op.get_bind(), revision)
    changes.rename_columns(*CHANGED)
    changes.make_views(*CHANGED)


def downgrade() -> None:
    Changes(op.get_bind(), down_revision).make_views_again(*CHANGED)
