"""What the Postgres role of a query may do besides reading, and the SQL for a role that can only read."""

from typing import Any

from sqlalchemy.engine import URL

READER = "holeshot_reader"

# CREATE in a schema of the search path can shadow functions; a member of a role can become it.
_ASK = """
with me as (select * from pg_catalog.pg_roles where rolname = current_user),
ledger as (
  select oid, relowner from pg_catalog.pg_class
  where relkind in ('r', 'p')
    and relnamespace = (select relnamespace from pg_catalog.pg_class where oid = to_regclass('calls'))
)
select
  current_user::text as role,
  rolsuper as superuser,
  coalesce(
    (select bool_or(has_table_privilege(oid, 'insert, update, delete, truncate') or pg_has_role(relowner, 'member'))
     from ledger),
    false
  ) as writes,
  has_database_privilege(current_database(), 'create')
    or exists(select from unnest(current_schemas(false)) as name where has_schema_privilege(name, 'create')) as creates,
  rolcreaterole as makes_roles,
  array(
    select rolname::text from pg_catalog.pg_roles where rolname = any($1::text[]) and pg_has_role(oid, 'member')
  ) as roles
from me
"""
_PREDEFINED = {
    "pg_write_all_data": "write the ledger",
    "pg_read_server_files": "read the server's files",
    "pg_write_server_files": "write the server's files",
    "pg_execute_server_program": "run programs on the server",
    "pg_signal_backend": "end other sessions",
}


async def powers(driver: Any) -> str | None:
    """Return in words what the role of ``driver`` (asyncpg's connection) may do besides reading; None for nothing."""
    found = await driver.fetchrow(_ASK, list(_PREDEFINED))
    if found["superuser"]:
        return f"the role {found['role']} is a superuser: it may write anything, run programs, read any file"
    may = ["write the ledger"] if found["writes"] else []
    may += ["create tables and functions"] if found["creates"] else []
    may += ["make roles"] if found["makes_roles"] else []
    may += [words for name, words in _PREDEFINED.items() if name in found["roles"] and words not in may]
    return f"the role {found['role']} may {', '.join(may)}" if may else None


def reader_sql(url: URL) -> str:
    """Return the SQL that makes a role which can only read the ledger at ``url``; its owner or a superuser runs it."""
    database, owner = _quoted(url.database or "holeshot"), _quoted(url.username or "holeshot")
    return f"""\
-- A role that can only read the ledger. Run this as {owner} or a superuser, give the role a password
-- (in psql: \\password {READER}), and let its users set
-- HOLESHOT_SQL_URL=postgresql://{READER}:PASSWORD@HOST/{url.database}
create role {READER} login;
alter role {READER} set default_transaction_read_only = on;
grant connect on database {database} to {READER};
grant usage on schema public to {READER};
grant select on all tables in schema public to {READER};
alter default privileges for role {owner} in schema public grant select on tables to {READER};
-- Before PostgreSQL 15 everybody may create in the schema public; then also:
-- grant create on schema public to {owner}; revoke create on schema public from public;
"""  # noqa: S608 - printed for the operator; names are quoted


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
