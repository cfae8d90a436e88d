"""The schema's revision, and the table that has it: one of our own, as other programs use Alembic's name, too.

Until 0045 the table was ``alembic_version``, which another program in the same schema (MLflow, Superset, Langflow) may
have. A ledger from then keeps that table in step, so that replicas of the former version can start during an upgrade.
"""

import re

from sqlalchemy import Connection, text

VERSION_TABLE = "holeshot_version"
SHARED_TABLE = "alembic_version"
FIRST_WITH_OWN = "0046"  # the first revision whose code reads ``VERSION_TABLE``

_OURS = re.compile(r"[0-9]{4}")
_READERS = "ledger_readers"  # a table of every ledger and of no other program
# For readers of a SQLite file without SQLAlchemy: the first query that returns a row has the revision.
REVISION_OF_A_FILE = (
    "select version_num from holeshot_version",
    """
select version_num from alembic_version where version_num glob '[0-9][0-9][0-9][0-9]'
and exists (select 1 from sqlite_master where name = 'ledger_readers')
""",
)
# Alembic's own statement.
_MAKE = "create table {table} (version_num varchar(32) not null, constraint {table}_pkc primary key (version_num))"
_GRANTS = """
select format('grant %s on {to} to %s%s', acl.privilege_type,
  case when acl.grantee = 0 then 'public' else acl.grantee::regrole::text end,
  case when acl.is_grantable then ' with grant option' else '' end)
from pg_class as of_before cross join lateral aclexplode(of_before.relacl) as acl
where of_before.oid = to_regclass('{of}') and acl.grantee <> of_before.relowner
"""


def revision_of(connection: Connection) -> str | None:
    """Return the schema's revision; None if there is no ledger, even if there are tables of another program."""
    if _has(connection, VERSION_TABLE):
        return _said(connection, VERSION_TABLE)
    return _shared(connection)


def carry_over(connection: Connection) -> None:
    """Give a ledger from before ``FIRST_WITH_OWN`` its own table, with the grants of the other. Needs the turn."""
    if not _has(connection, VERSION_TABLE) and (revision := _shared(connection)) is not None:
        _make(connection, VERSION_TABLE, revision, SHARED_TABLE)


def keep_in_step(connection: Connection, before: str | None) -> None:
    """Write the new revision also where the former version reads it, unless that table is another program's.

    ``before``: the revision before the change. If ``alembic_version`` is ours, it has that revision.
    """
    now = _said(connection, VERSION_TABLE)
    there = _said(connection, SHARED_TABLE) if _has(connection, SHARED_TABLE) else None
    is_ours = there is not None and there == before
    if is_ours and now is not None:
        connection.execute(text("update alembic_version set version_num = :now"), {"now": now})
    elif is_ours:
        connection.execute(text(f"drop table {SHARED_TABLE}"))
    if now is None:
        connection.execute(text(f"drop table {VERSION_TABLE}"))
    elif now < FIRST_WITH_OWN and (is_ours or not _has(connection, SHARED_TABLE)):
        if not is_ours:
            _make(connection, SHARED_TABLE, now, VERSION_TABLE)
        connection.execute(text(f"drop table {VERSION_TABLE}"))  # an older version would not update it


def _shared(connection: Connection) -> str | None:
    """Return the revision of an old ledger from the shared table; None if the table is not ours."""
    if not (_has(connection, SHARED_TABLE) and _has(connection, _READERS)):
        return None
    revision = _said(connection, SHARED_TABLE)
    return revision if revision is not None and _OURS.fullmatch(revision) else None


def _said(connection: Connection, table: str) -> str | None:
    revision: str | None = connection.scalar(text(f"select version_num from {table}"))  # noqa: S608 - one of two names
    return revision


def _has(connection: Connection, table: str) -> bool:
    return connection.dialect.has_table(connection, table)


def _make(connection: Connection, table: str, revision: str, like: str) -> None:
    connection.exec_driver_sql(_MAKE.format(table=table))
    connection.execute(text(f"insert into {table} values (:revision)"), {"revision": revision})  # noqa: S608 - likewise
    if connection.dialect.name == "postgresql":
        for grant in list(connection.scalars(text(_GRANTS.format(to=table, of=like)))):
            connection.exec_driver_sql(grant)
