"""What lies at providers, by hashes of its names: a restart without Redis forgets none of it."""

import sqlalchemy as sa
from alembic import op

revision = "0055"
down_revision = "0054"
branch_labels = None
depends_on = None
only_adds = True

# On Postgres whoever stores outages, and does not own the tables, stores these too, or no row of a batch would arrive.
_GRANTS = """
do $grants$ declare grantee text; begin
  for grantee in
    select distinct case when acl.grantee = 0 then 'public' else acl.grantee::regrole::text end
    from pg_class cross join lateral aclexplode(relacl) as acl
    where oid = to_regclass('outages') and acl.grantee <> relowner and acl.privilege_type = 'INSERT'
  loop
    execute format('grant select, insert, update on stored_names to %s', grantee);
  end loop;
end $grants$
"""


def upgrade() -> None:
    is_postgres = op.get_bind().dialect.name == "postgresql"
    op.create_table(
        "stored_names",
        sa.Column("id", sa.Uuid(as_uuid=False) if is_postgres else sa.CHAR(36), primary_key=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("client", sa.Text),
        sa.Column("known", sa.Text, nullable=False),
    )
    op.create_index("stored_names_expires_at", "stored_names", ["expires_at"])
    if is_postgres:
        op.execute(_GRANTS)


def downgrade() -> None:
    op.drop_table("stored_names")
