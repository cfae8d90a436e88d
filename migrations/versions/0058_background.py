"""What runs in the background is asked for after a restart, by one of all replicas; a ledger has an id."""

from uuid import uuid4

import sqlalchemy as sa
from alembic import op

revision = "0058"
down_revision = "0057"
branch_labels = None
depends_on = None
only_adds = True


def upgrade() -> None:
    is_postgres = op.get_bind().dialect.name == "postgresql"
    op.add_column("stored_names", sa.Column("ask_at", sa.DateTime(timezone=True)))
    op.add_column("stored_names", sa.Column("sealed", sa.Text))
    runs = sa.text("sealed is not null")
    op.create_index("stored_names_running", "stored_names", ["expires_at"], postgresql_where=runs, sqlite_where=runs)
    kind = sa.Uuid(as_uuid=False) if is_postgres else sa.CHAR(36)
    op.add_column("ledger_readers", sa.Column("ledger_id", kind))
    op.get_bind().execute(
        sa.text("update ledger_readers set ledger_id = :id").bindparams(sa.bindparam("id", str(uuid4()), kind))
    )


def downgrade() -> None:
    op.drop_column("ledger_readers", "ledger_id")
    op.drop_index("stored_names_running", "stored_names")
    op.drop_column("stored_names", "sealed")
    op.drop_column("stored_names", "ask_at")
