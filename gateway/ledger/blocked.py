"""A change of the schema that has to wait: says what for, and gives up after a while with nothing changed."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from sqlalchemy import Row, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.core.tasks import end_if_cancelled
from gateway.core.terminal_text import visible
from gateway.ledger.errors import LedgerError
from gateway.ledger.turns import MIGRATE

WAIT_S = 600.0  # longer than a report, or a dump of most ledgers, takes
TOLD_AFTER_S, TOLD_EVERY_S = 2.0, 10.0
LOOK_S = 1.0
_LONGEST_NAME = 60  # characters of the name that another program gives itself
_KINDS = frozenset(["ALTER", "COPY", "CREATE", "DELETE", "INSERT", "LOCK", "SELECT", "UPDATE", "VACUUM", "WITH"])

# What our process waits for: a lock, or the pause between two tries to lock all tables. ``wait_event_type`` would still
# say Lock of a process that has the lock by now and did not run yet: the wait would seem to be for another lock.
_WANTED = """
select coalesce(lock.pid is not null or wait_event = 'PgSleep', false) as waits,
  coalesce(lock.relation::regclass::text, '') as relation,
  coalesce(lock.locktype = 'advisory', false) as is_turn,
  coalesce(lock.locktype = 'advisory' and lock.objid::bigint = hashtext(:turn)::bigint & 4294967295, false) as is_ours
from pg_stat_activity left join pg_locks as lock on lock.pid = pg_stat_activity.pid and not lock.granted
where pg_stat_activity.pid = :pid limit 1
"""
# The processes that hold the lock, or are before ours in the queue. Of the statement only the kind is read, as the rest
# may have secrets. Members of pg_read_all_stats see what other roles do; without that right ``state`` and the times are
# null.
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
    """How long a change of the schema waits for others; ``tell`` is called with messages about the wait."""

    wait_s: float = WAIT_S
    tell: Callable[[str], None] = lambda _: None
    told_after_s: float = TOLD_AFTER_S
    told_every_s: float = TOLD_EVERY_S
    look_s: float = LOOK_S

    @asynccontextmanager
    async def watching(self, engine: AsyncEngine, connection: AsyncConnection) -> AsyncIterator[None]:
        """Watch within the block what ``connection`` waits for, over another connection of ``engine``.

        In SQLite only ``begin`` waits.

        Raises:
            SchemaBlockedError: the wait was longer than ``wait_s``; the transaction must be rolled back.

        """
        if connection.dialect.name == "sqlite":  # only ``begin`` waits, and has ended
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
            SchemaBlockedError: another connection has written for longer than ``wait_s``.

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
    """Looks at one process of Postgres over another connection."""

    def __init__(self, patience: Patience, pid: int) -> None:
        self._patience = patience
        self._pid = pid
        self._since_s: float | None = None  # None: no wait now
        self._is_ours = False  # it waits for another migration
        self._told_s = 0.0
        self._waited_s = 0.0
        self._words = ""
        self._holders: tuple[int, ...] = ()

    async def run(self, engine: AsyncEngine, limit: asyncio.Timeout) -> None:
        """Look until the task is cancelled; end ``limit`` when the process has waited for too long."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._patience.look_s)
            is_limited = False
            # Perhaps there are too many connections: the next look may succeed.
            with suppress(DBAPIError, OSError, TimeoutError):
                async with engine.connect() as connection:
                    is_limited = await self._look(connection, loop.time())
            end_if_cancelled()
            if is_limited and self._waited_s >= self._patience.wait_s:
                limit.reschedule(loop.time())
                return

    def gave_up(self) -> str:
        """Return the message of SchemaBlockedError: why, and what to do."""
        end = " or ".join(f"select pg_terminate_backend({pid})" for pid in self._holders)
        return (
            f"gave up after {self._waited_s:.0f} s, with nothing changed: {self._words}. End that"
            f"{f' ({end})' if end else ''}, or wait for longer with --wait SECONDS, and run it again"
        )

    async def _look(self, connection: AsyncConnection, now_s: float) -> bool:
        """Look once, and report if a report is due. Return whether the wait has a limit."""
        holder = (await connection.execute(text(_WANTED), {"pid": self._pid, "turn": MIGRATE.name})).one_or_none()
        if holder is None or not holder.waits:
            self._since_s, self._waited_s, self._words = None, 0.0, ""
            return False
        if self._since_s is None or (self._is_ours and not holder.is_ours):  # only the latter wait has a limit
            self._since_s, self._told_s = now_s - self._patience.look_s / 2, -self._patience.told_every_s
        self._waited_s, self._is_ours = now_s - self._since_s, holder.is_ours
        holders = (await connection.execute(text(_HOLDERS), {"pid": self._pid})).all()
        if holders:  # else the process sleeps, or has the lock by now
            self._holders = tuple(each.pid for each in holders)
            what = "another migration" if holder.is_ours else "the gateways' sums" if holder.is_turn else ""
            what = what or visible(holder.relation) or "a row"
            self._words = f"{what} is held by {' and '.join(map(_named, holders))}"
        is_due = self._waited_s >= self._patience.told_after_s
        if is_due and self._words and self._waited_s >= self._told_s + self._patience.told_every_s:
            self._told_s = self._waited_s
            self._patience.tell(f"waiting for {self._waited_s:.0f} s: {self._words}")
        return not holder.is_ours  # another migration has a limit of its own, and ends


def _named(holder: Row[Any]) -> str:
    """Return the words for a process: ``process 7 (psql, role ann, active since 10:00:00 UTC, 12 s, a SELECT)``."""
    if holder.pid == 0:
        return "a prepared transaction (see pg_prepared_xacts)"
    parts = [
        visible(holder.program)[:_LONGEST_NAME],
        f"role {visible(holder.role)[:_LONGEST_NAME]}" if holder.role else "",
        f"{holder.state or 'in a transaction'} since {holder.since} UTC, {holder.age_s:.0f} s" if holder.since else "",
        f"a {holder.kind}" if holder.kind in _KINDS else "",
    ]
    return f"process {holder.pid} ({', '.join(each for each in parts if each)})"
