"""Every table of Postgres says which row is which: where a publication has them, others cannot be changed.

Since then the revision is in ``holeshot_version`` (``gateway/ledger/revision.py``).
"""

from alembic import op

from gateway.ledger.schema import Changes

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None
only_adds = True


def upgrade() -> None:
    Changes(op.get_bind(), revision).identify_rows()


def downgrade() -> None:
    """Leave them: the version before has no use for tables that a publication makes read-only."""
