"""Clients' keys in the database, and who changed them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None
only_adds = True


def upgrade() -> None:
    instant = sa.DateTime(timezone=True)
    identity = sa.Uuid(as_uuid=False).with_variant(sa.CHAR(36), "sqlite")
    json = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
    active = {"postgresql_where": sa.text("revoked_at is null"), "sqlite_where": sa.text("revoked_at is null")}
    op.create_table(
        "client_keys",
        sa.Column("id", identity, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("sha256", sa.CHAR(64), nullable=False),
        sa.Column("hint", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("settings", json, nullable=False),
        sa.Column("expires_at", instant),
        sa.Column("retires_at", instant),
        sa.Column("created_at", instant, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("revoked_at", instant),
        sa.Column("last_used_at", instant),
        sa.Column("change_id", sa.BigInteger, nullable=False),
    )
    op.create_index("client_keys_sha256", "client_keys", ["sha256"], unique=True)
    op.create_index("client_keys_name", "client_keys", ["name"], **active)  # type: ignore[arg-type] # for a dialect each
    op.create_index("client_keys_change_id", "client_keys", ["change_id"])
    op.create_table(
        "key_changes",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("at", instant, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("before", json),
        sa.Column("after", json),
    )


def downgrade() -> None:
    op.drop_table("key_changes")
    op.drop_table("client_keys")
