"""What a change of the schema waits for: told while it waits, and given up after a while, with nothing changed."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from sqlalchemy import Row, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.core.tasks import end_if_cancelled
from gateway.core.terminal_text import visible
from gateway.ledger.errors import LedgerError
from gateway.ledger.turns import MIGRATE

WAIT_S = 600.0  # longer than a report takes, and than a dump of most ledgers
TOLD_AFTER_S, TOLD_EVERY_S = 2.0, 10.0
LOOK_S = 1.0
_LONGEST_NAME = 60  # characters of what other programs call themselves
_KINDS = frozenset(["ALTER", "COPY", "CREATE", "DELETE", "INSERT", "LOCK", "SELECT", "UPDATE", "VACUUM", "WITH"])

# What our process waits for. Between two tries to lock all tables it sleeps.
_WANTED = """
select coalesce(wait_event_type = 'Lock' or wait_event = 'PgSleep', false) as waits,
  coalesce(lock.relation::regclass::text, '') as relation,
  coalesce(lock.locktype = 'advisory', false) as is_turn,
  coalesce(lock.locktype = 'advisory' and lock.objid::bigint = hashtext(:turn)::bigint & 4294967295, false) as is_ours
from pg_stat_activity left join pg_locks as lock on lock.pid = pg_stat_activity.pid and not lock.granted
where pg_stat_activity.pid = :pid limit 1
"""
# Who has it, or is before us in the queue. Of the statement only its kind: the rest may have what is secret. What
# another role does is seen by members of pg_read_all_stats; without that, ``state`` and the times are null.
_HOLDERS = """
select holder.pid, coalesce(nullif(application_name, ''), backend_type, '') as program, coalesce(usename, '') as role,
  coalesce(state, '') as state, extract(epoch from clock_timestamp() - xact_start)::float8 as age_s,
  coalesce(to_char(xact_start at time zone 'UTC', 'HH24:MI:SS'), '') as since,
  coalesce(upper(substring(query from '^[[:space:]]*([a-zA-Z]+)')), '') as kind
from (select distinct unnest(pg_blocking_pids(:pid)) as pid) as holder
left join pg_stat_activity on pg_stat_activity.pid = holder.pid
order by xact_start limit 3
"""


class SchemaBlockedError(LedgerError):
    """Another transaction has kept a change of the schema waiting for too long; nothing was changed."""


class Patience(msgspec.Struct, frozen=True):
    """How long a change of the schema waits for others, and who is told of it."""

    wait_s: float = WAIT_S
    tell: Callable[[str], None] = lambda _: None
    told_after_s: float = TOLD_AFTER_S
    told_every_s: float = TOLD_EVERY_S
    look_s: float = LOOK_S

    @asynccontextmanager
    async def watching(self, engine: AsyncEngine, connection: AsyncConnection) -> AsyncIterator[None]:
        """Watch what ``connection`` waits for within the block, over one of ``engine``'s own.

        In SQLite only its beginning waits.

        Raises:
            SchemaBlockedError: it has waited for longer than ``wait_s``; its transaction must be rolled back.

        """
        if connection.dialect.name == "sqlite":  # ``begin`` has waited
            yield
            return
        pid = await connection.scalar(text("select pg_backend_pid()"))
        watch = _Watch(self, int(pid or 0))
        limit = asyncio.timeout(None)
        try:
            async with limit:
                task = asyncio.create_task(watch.run(engine, limit), name="ledger.blocked")
                try:
                    yield
                finally:
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
        except TimeoutError:
            if not limit.expired():
                raise
            raise SchemaBlockedError(watch.gave_up()) from None

    async def begin(self, connection: AsyncConnection) -> None:
        """Begin a transaction of SQLite in which no other connection writes.

        Raises:
            SchemaBlockedError: another one has written for longer than ``wait_s``.

        """
        loop = asyncio.get_running_loop()
        began_s, told_s = loop.time(), 0.0
        file = connection.engine.url.database
        who = f"another process writes to {file}: a gateway, or a program with an open transaction (fuser {file})"
        while True:
            rest_s = self.wait_s - (loop.time() - began_s)
            step_s = max(0.0, min(rest_s, self.told_after_s if told_s == 0.0 else self.told_every_s))
            await connection.exec_driver_sql(f"pragma busy_timeout = {int(step_s * 1000)}")
            try:
                await connection.exec_driver_sql("begin immediate")
            except DBAPIError as error:
                if getattr(error.orig, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
            else:
                return
            told_s = loop.time() - began_s
            if told_s >= self.wait_s:
                raise SchemaBlockedError(
                    f"gave up after {told_s:.0f} s, with nothing changed: {who}. Stop it, or wait for longer with "
                    "--wait SECONDS, and run it again"
                )
            self.tell(f"waiting for {told_s:.0f} s: {who}")


PATIENCE = Patience()


class _Watch:
    """Looks at one process of Postgres from another one."""

    def __init__(self, patience: Patience, pid: int) -> None:
        self._patience = patience
        self._pid = pid
        self._since_s: float | None = None  # None: it does not wait
        self._told_s = 0.0
        self._waited_s = 0.0
        self._words = ""
        self._holders: tuple[int, ...] = ()

    async def run(self, engine: AsyncEngine, limit: asyncio.Timeout) -> None:
        """Look until the task is cancelled; end ``limit`` when the process has waited for too long."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._patience.look_s)
            try:
                async with engine.connect() as connection:
                    is_limited = await self._look(connection, loop.time())
            except (DBAPIError, OSError, TimeoutError):  # it may be short of connections: the next look may succeed
                end_if_cancelled()
                continue
            if is_limited and self._waited_s >= self._patience.wait_s:
                limit.reschedule(loop.time())
                return

    def gave_up(self) -> str:
        """Return why it was given up, and what to do."""
        end = " or ".join(f"select pg_terminate_backend({pid})" for pid in self._holders)
        return (
            f"gave up after {self._waited_s:.0f} s, with nothing changed: {self._words}. End that"
            f"{f' ({end})' if end else ''}, or wait for longer with --wait SECONDS, and run it again"
        )

    async def _look(self, connection: AsyncConnection, now_s: float) -> bool:
        """Look once, and tell what is to be told. Return whether the wait has a limit."""
        wanted = (await connection.execute(text(_WANTED), {"pid": self._pid, "turn": MIGRATE.name})).one_or_none()
        if wanted is None or not wanted.waits:
            self._since_s, self._waited_s, self._words = None, 0.0, ""
            return False
        if self._since_s is None:
            self._since_s, self._told_s = now_s - self._patience.look_s / 2, -self._patience.told_every_s
        self._waited_s = now_s - self._since_s
        holders = (await connection.execute(text(_HOLDERS), {"pid": self._pid})).all()
        if holders:  # else it sleeps, or has it by now
            self._holders = tuple(each.pid for each in holders)
            what = "another migration" if wanted.is_ours else "the gateways' sums" if wanted.is_turn else ""
            what = what or visible(wanted.relation) or "a row"
            self._words = f"{what} is held by {' and '.join(map(_named, holders))}"
        is_due = self._waited_s >= self._patience.told_after_s
        if is_due and self._words and self._waited_s >= self._told_s + self._patience.told_every_s:
            self._told_s = self._waited_s
            self._patience.tell(f"waiting for {self._waited_s:.0f} s: {self._words}")
        return not wanted.is_ours  # that has a limit of its own, and ends


def _named(holder: Row[Any]) -> str:
    """Return a process in words."""
    if holder.pid == 0:
        return "a prepared transaction (see pg_prepared_xacts)"
    said = [
        visible(holder.program)[:_LONGEST_NAME],
        f"role {visible(holder.role)[:_LONGEST_NAME]}" if holder.role else "",
        f"{holder.state or 'in a transaction'} since {holder.since} UTC, {holder.age_s:.0f} s" if holder.since else "",
        f"a {holder.kind}" if holder.kind in _KINDS else "",
    ]
    return f"process {holder.pid} ({', '.join(each for each in said if each)})"
