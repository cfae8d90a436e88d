"""Alerts: one row for each incident, and one for each message about it."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None
only_adds = True


def upgrade() -> None:
    instant = sa.DateTime(timezone=True)
    identity = sa.Uuid(as_uuid=False).with_variant(sa.CHAR(36), "sqlite")
    json = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
    op.create_table(
        "alerts",
        sa.Column("id", identity, primary_key=True),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("severity", sa.Text, nullable=False),
        sa.Column("summary", sa.Text, nullable=False),
        sa.Column("figures", json, nullable=False),
        sa.Column("sql", sa.Text, nullable=False),
        sa.Column("opened_at", instant, nullable=False),
        sa.Column("seen_at", instant, nullable=False),
        sa.Column("resolved_at", instant),
        sa.Column("replica", sa.Text, nullable=False),
        sa.Column("scope", sa.Text, nullable=False),
    )
    lasting = sa.text("resolved_at is null")
    op.create_index("alerts_open", "alerts", ["key"], unique=True, postgresql_where=lasting, sqlite_where=lasting)
    op.create_index("alerts_opened_at", "alerts", ["opened_at"])
    op.create_table(
        "alert_messages",
        sa.Column("id", identity, primary_key=True),
        sa.Column("alert_id", identity, nullable=False),
        sa.Column("webhook", sa.Text, nullable=False),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("created_at", instant, nullable=False),
        sa.Column("due_at", instant, nullable=False),
        sa.Column("done_at", instant),
        sa.Column("is_sent", sa.Boolean),
        sa.Column("tries", sa.SmallInteger, nullable=False),
        sa.Column("answer", sa.Text),
    )
    waiting = sa.text("done_at is null")
    op.create_index("alert_messages_due", "alert_messages", ["due_at"], postgresql_where=waiting, sqlite_where=waiting)
    op.create_index("alert_messages_alert_id", "alert_messages", ["alert_id"])
    if op.get_bind().dialect.name == "postgresql":
        for table in ("alerts", "alert_messages"):
            _grant_as("calls", table)


def downgrade() -> None:
    op.drop_table("alert_messages")
    op.drop_table("alerts")


def _grant_as(there: str, new: str) -> None:
    """Give everybody the rights to the new table that they have to the one that is there.

    A gateway whose role does not own the tables could not open alerts otherwise. Who may insert rows may also change
    and delete those of alerts.
    """
    found = op.get_bind().execute(
        sa.text(
            "select case when grantee = 0 then 'public' else grantee::regrole::text end as role, privilege_type as may "
            "from pg_class, aclexplode(relacl) where pg_class.oid = to_regclass(:name) and grantee <> relowner"
        ),
        {"name": there},
    )
    for row in found.fetchall():
        op.execute(f"grant {row.may} on {new} to {row.role}")
        if row.may == "INSERT":
            op.execute(f"grant select, update, delete on {new} to {row.role}")
