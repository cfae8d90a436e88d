"""Alembic's way in: runs migrations on the connection the ledger hands it, and writes Postgres's comments."""

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from alembic import context
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import DBAPIError

from gateway.ledger import metadata, sqlstate_of
from gateway.ledger.revision import VERSION_TABLE, carry_over, keep_in_step, revision_of
from gateway.ledger.schema import Changes
from gateway.ledger.turns import FOLD

DROPS_COLUMN = re.compile(r"\s*alter table \S+ drop column", re.IGNORECASE)
COMMENTS = Path(__file__).with_name("comments.json")  # made of ledger.md, SUMS.md: python -m tools.documentation
_THERE = """
select relname as name, coalesce(attname, '') as column, relkind = 'v' as is_view, coalesce(description, '') as said
from pg_class
cross join lateral (
  select 0 as attnum, null as attname
  union all
  select attnum, attname from pg_attribute where attrelid = pg_class.oid and attnum > 0 and not attisdropped
) as columns
left join pg_description on objoid = pg_class.oid and classoid = 'pg_class'::regclass and objsubid = columns.attnum
where relnamespace = current_schema()::regnamespace and relkind in ('r', 'p', 'v')
"""


# Reports lock views before tables, and rows are stored into calls before their ids are noted.
_LOCKED = r"""
select relname from pg_class
where relnamespace = current_schema()::regnamespace and not relispartition and pg_has_role(relowner, 'usage')
and (relkind = 'v' or relkind in ('r', 'p') and (relname = any(:known) or relname like 'rollup\_%'))
order by relkind <> 'v' or relname = 'rollup_pending', relname <> 'calls', relname <> 'attempts', relname
"""
ADDED_UP = ("calls", "attempts")  # an upgrade adds up their rows again: meanwhile clients' keys are looked up, as ever
# At first less than ``deadlock_timeout``, after which Postgres ends one of two that wait for each other.
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 16.0
_AGAIN = frozenset({"57014", "40P01"})  # query_canceled, deadlock_detected

SPANS = {"1h": "Of the last hour.", "24h": "Of the last 24 hours.", "30d": "Of the last 30 days."}


def of_name(comments: dict[str, dict[str, str]], name: str) -> dict[str, str]:
    """Return the comments of a table or view; a view of a window has those of the view of all time."""
    whole, _, span = name.rpartition("_")
    if name in comments or span not in SPANS:
        return comments.get(name, {})
    found = comments.get(whole, {})
    return {**found, "": f"{found[''].removesuffix('.')}. {SPANS[span]}"} if found else {}


def comment() -> None:
    """Write the comments of tables, views and columns that are not as they should be."""
    connection, wanted = context.get_bind(), json.loads(COMMENTS.read_text(encoding="utf-8"))
    statements = []
    for name, column, is_view, said in connection.execute(text(_THERE)):
        new = of_name(wanted, name).get(column, said)
        if new != said:
            kind = "column" if column else "view" if is_view else "table"
            place = f'"{name}"."{column}"' if column else f'"{name}"'
            quoted = "'" + new.replace("'", "''") + "'"
            statements.append(f"comment on {kind} {place} is {quoted};")
    if statements:
        connection.exec_driver_sql(f"do $comments$ begin {' '.join(statements)} end $comments$")


def note_oldest(before: str | None, now: str) -> None:
    """Write the oldest revision whose code may use the schema, where the migrations that ran have changed it."""
    oldest = oldest_of(now)
    if before is None or oldest_of(before) != oldest:
        context.get_bind().execute(text("update ledger_readers set oldest = :oldest"), {"oldest": oldest})


def oldest_of(revision: str) -> str:
    """Return the last revision up to this one which does not only add.

    Each migration says so in ``only_adds``: the code of the version before may then go on, and start again.
    """
    newest_first = context.script.iterate_revisions(revision, "base")
    return next(each.revision for each in newest_first if not each.module.only_adds)


def lock_all(connection: Connection, tables: Collection[str]) -> None:
    """Lock all views, the sums and these tables before anything is changed, after the fold that runs.

    If others have locks for longer, this gives up those it has, lets the others go on, and tries again, for longer.
    """
    names = list(connection.scalars(text(_LOCKED), {"known": list(tables)}))
    if not names:
        return
    wanted = ", ".join(f'"{name}"' for name in names)
    limit = connection.scalar(text("select current_setting('statement_timeout')"))
    wait_s = FIRST_WAIT_S
    while True:
        try:
            with connection.begin_nested():
                connection.exec_driver_sql(FOLD.sql)
                connection.exec_driver_sql(f"set local statement_timeout = '{wait_s}s'")
                connection.exec_driver_sql(f"lock table {wanted} in access exclusive mode")
                connection.exec_driver_sql(f"set local statement_timeout = '{limit}'")
        except DBAPIError as error:
            if sqlstate_of(error) not in _AGAIN:
                raise
            connection.exec_driver_sql(f"select pg_sleep({FIRST_WAIT_S})")
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)
        else:
            return


def set_views_aside(connection: Connection) -> None:
    """Have SQLite drop columns without its views and triggers: for each column it would resolve all, in 1.4 s."""
    aside: list[tuple[str, str, str]] = []

    @event.listens_for(connection, "before_cursor_execute")
    def _take_away(_: Connection, cursor: Any, statement: str, *__: Any) -> None:
        if DROPS_COLUMN.match(statement):
            cursor.execute("select type, name, sql from sqlite_master where type in ('trigger', 'view') order by type")
            aside[:] = cursor.fetchall()  # triggers first: a view takes its own with it
            for kind, name, _sql in aside:
                cursor.execute(f'drop {kind} "{name}"')

    @event.listens_for(connection, "after_cursor_execute")
    def _put_back(_: Connection, cursor: Any, statement: str, *__: Any) -> None:
        if DROPS_COLUMN.match(statement):
            for _kind, _name, sql in reversed(aside):
                cursor.execute(sql)


if context.config.attributes["connection"].dialect.name == "sqlite":
    set_views_aside(context.config.attributes["connection"])
carry_over(context.config.attributes["connection"])
context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, version_table=VERSION_TABLE
)

with context.begin_transaction():
    goes_back = context.config.attributes["goes_back"]
    before = revision_of(context.get_bind())
    is_current = before == context.get_head_revision()
    if (goes_back or not is_current) and context.get_bind().dialect.name == "postgresql":
        lock_all(context.get_bind(), metadata.tables if goes_back else ADDED_UP)
        Changes(context.get_bind(), before or "").identify_rows()  # what is new is added up before what changes sums
    context.run_migrations()
    keep_in_step(context.get_bind(), before)
    current = revision_of(context.get_bind())
    if current is not None:
        note_oldest(before, current)
    if current == context.get_head_revision() and context.get_bind().dialect.name == "postgresql":
        comment()
