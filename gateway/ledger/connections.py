"""The connections of a process to the ledger's database: one shared pool, and connections of single stores.

An idle process holds one connection to Postgres; others are opened only while they are needed.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import cached_property
from time import monotonic
from typing import Any, TypeAlias

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.pool import AsyncAdaptedQueuePool, ConnectionPoolEntry
from sqlalchemy.util import greenlet_spawn
from sqlalchemy.util.queue import Empty

from gateway.core.addresses import Address, text_of
from gateway.ledger.database import (
    CLOSE_TIMEOUT_S,
    DATABASE_ERRORS,
    check_file,
    create_engine,
    dispose,
    sqlstate_of,
    unreachable,
)
from gateway.ledger.errors import is_sqlite, parse_url
from gateway.ledger.turns import Turn

GIVEN_BACK_S = 10.0  # connections unused for so long are closed
LOOK_INTERVAL_S = 2.0
_NONE_LEFT = "53300"  # too_many_connections


# A server's last connections, a fifth of all, are for processes that have none.
_CROWDED = """
select count(*) > 0.8 * current_setting('max_connections')::int
from pg_stat_activity where backend_type = 'client backend'
"""
FIRST_WITHIN_S, AGAIN_S = 5.0, 0.1  # until then other processes, which have taken too many, return some
MORE_AGAIN_S = 2.0  # after which a process with a connection tries to open another


class ServerCrowdedError(OSError):
    """The server has few connections left, and this process has one."""


class FrugalPool(AsyncAdaptedQueuePool):
    """Waits for one of its own connections when the server has few left; ``shrink`` closes idle connections."""

    asking = 0  # connections that only ``shrink`` uses, for its query

    def _do_get(self) -> ConnectionPoolEntry:
        waited_s = 0.0
        while True:
            try:
                return super()._do_get()
            except Exception as error:
                is_full = isinstance(error, ServerCrowdedError) or sqlstate_of(error) == _NONE_LEFT
                has_one = self.checkedout() > 0  # or another task is opening one, and may fail
                if not is_full or waited_s >= (self._timeout if has_one else FIRST_WITHIN_S):
                    raise
            again_s = MORE_AGAIN_S if has_one else AGAIN_S
            with suppress(Empty):
                return self._pool.get(True, again_s)
            waited_s += again_s

    def _create_connection(self) -> ConnectionPoolEntry:
        record = super()._create_connection()
        if self.checkedout() > 1:
            try:
                _check_room(record)
            except BaseException:
                record.close()
                raise
        return record

    def shrink(self, most: int) -> None:
        """Close idle connections until at most ``most`` are open; one, if the server has few left.

        The connection used last stays longest.
        """
        if most > 1 and self.checkedin() and self._is_crowded():
            most = 1
        idle = [self._pool.get(False) for _ in range(self.checkedin())]
        idle_kept = max(0, most - self.checkedout() + len(idle))
        for record in reversed(idle[:idle_kept]):
            self._pool.put(record, False)  # noqa: FBT003 - likewise
        for record in idle[idle_kept:]:
            self._dec_overflow()
            record.close()  # waits

    def _is_crowded(self) -> bool:
        """Ask the server over an idle connection."""
        record = self._pool.get(False)
        self.asking = 1
        try:
            return record.dbapi_connection is not None and _is_crowded(record)
        except Exception:  # noqa: BLE001 - if the connection is broken, its next user learns why
            return False
        finally:
            self.asking = 0
            self._pool.put(record, False)  # noqa: FBT003 - likewise


def _check_room(record: ConnectionPoolEntry) -> None:
    if _is_crowded(record):
        raise ServerCrowdedError("the server has few connections left, and this process has one")


def _is_crowded(record: ConnectionPoolEntry) -> bool:
    connection = record.dbapi_connection
    assert connection is not None
    cursor = connection.cursor()
    cursor.execute(_CROWDED)
    row = cursor.fetchone()
    cursor.close()
    connection.rollback()
    return row is not None and bool(row[0])


CONNECTIONS = 4  # of a process
REPORTS_AT_ONCE = 2


class LedgerPool:
    """The connections of a process to Postgres, shared by everything that uses the ledger.

    One stays open. Others are opened while several are needed, and closed ten seconds after they were last needed.
    Reports and long work never take all: one connection is left for short statements.
    """

    def __init__(self, url: str | Address, size: int = CONNECTIONS, time: Callable[[], float] = monotonic) -> None:
        """``size``: at least 2.

        Raises:
            DatabaseUrlError: ``url`` is invalid.

        """
        self._address = url
        self.engine = create_engine(url, pool_size=size, spare=0, pool=FrugalPool)
        self._time = time
        self._needed_at_s: dict[int, float] = {}  # by number of connections: when so many were last in use
        self._look: asyncio.TimerHandle | None = None
        self._shrinking: asyncio.Task[None] | None = None
        event.listen(self.engine.sync_engine, "checkout", self._note_use)
        event.listen(self.engine.sync_engine, "checkin", self._note_use)
        self._slow = asyncio.Semaphore(size - 1)
        self._reports = asyncio.Semaphore(REPORTS_AT_ONCE)
        self._long = asyncio.Semaphore(1)

    @property
    def url(self) -> str:
        """The database's URL, with the login of new connections."""
        return text_of(self._address)

    @asynccontextmanager
    async def for_a_report(self) -> AsyncIterator[None]:
        """Hold one of the slots of reports for the block."""
        async with self._reports, self._slow:
            yield

    @asynccontextmanager
    async def for_long(self) -> AsyncIterator[None]:
        """Hold the only slot of long work for the block."""
        async with self._long, self._slow:
            yield

    async def aclose(self) -> None:
        """Close the connections; a server that hangs delays this only briefly."""
        if self._look is not None:
            self._look.cancel()
        if self._shrinking is not None:
            self._shrinking.cancel()
            await asyncio.gather(self._shrinking, return_exceptions=True)
        await dispose(self.engine, CLOSE_TIMEOUT_S)

    def _note_use(self, *_: Any) -> None:
        """Note how many connections are in use, when one is taken and before one is returned."""
        used = self._pool.checkedout() - self._pool.asking
        if used > 1:
            self._needed_at_s[used] = self._time()
            self._look_later()

    def _look_later(self) -> None:
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(LOOK_INTERVAL_S, self._look_at_use)

    def _look_at_use(self) -> None:
        """Close connections that were not needed for ten seconds."""
        self._look = None
        since_s = self._time() - GIVEN_BACK_S
        needed = max([1, *(number for number, at_s in self._needed_at_s.items() if at_s > since_s)])
        is_closing = self._shrinking is not None and not self._shrinking.done()
        if needed > 1 or is_closing:
            self._look_later()
        if not is_closing:  # two tasks at the same time would close twice as many
            self._shrinking = asyncio.get_running_loop().create_task(self._shrink(needed), name="ledger.pool")

    async def _shrink(self, most: int) -> None:
        with suppress(*DATABASE_ERRORS):
            await greenlet_spawn(self._pool.shrink, most)

    @property
    def _pool(self) -> FrugalPool:
        pool = self.engine.pool
        assert isinstance(pool, FrugalPool)
        return pool


Database: TypeAlias = str | Address | LedgerPool  # a URL, for separate connections, or a shared pool


def engine_of(database: Database, *, pool_size: int, spare: int = 1) -> AsyncEngine:
    """Return the shared engine, or a new one; to be passed to ``release`` afterwards."""
    if isinstance(database, LedgerPool):
        return database.engine
    return create_engine(database, pool_size=pool_size, spare=spare)


async def release(database: Database, engine: AsyncEngine, within_s: float = CLOSE_TIMEOUT_S) -> None:
    """Close the connections, unless others share them."""
    if not isinstance(database, LedgerPool):
        await dispose(engine, within_s)


def report_turn(database: Database) -> AbstractAsyncContextManager[None]:
    """Return the context in which a report uses a connection; it does nothing without a shared pool."""
    return database.for_a_report() if isinstance(database, LedgerPool) else nullcontext()


def long_turn(database: Database) -> AbstractAsyncContextManager[None]:
    """Return the context for long work; it does nothing without a shared pool."""
    return database.for_long() if isinstance(database, LedgerPool) else nullcontext()


def url_of(database: Database) -> str:
    """Return the database's URL."""
    return database.url if isinstance(database, LedgerPool) else text_of(database)


# A connection to the ledger's database for a store that needs one only sometimes.


class OwnConnection:
    """One connection for some seconds at a time, opened for this store or taken from a shared pool."""

    def __init__(self, database: Database, away: Callable[[str], Exception]) -> None:
        """``away``: makes the store's own error from a reason.

        Raises:
            DatabaseUrlError: the URL is invalid.

        """
        self._database = database
        self._away = away
        self.is_sqlite = is_sqlite(parse_url(url_of(database)))

    @cached_property
    def _engine(self) -> AsyncEngine:
        """Made when first needed: most gateways need few of their stores."""
        return engine_of(self._database, pool_size=1, spare=0)

    @asynccontextmanager
    async def open(
        self, within_s: float, *, writes: bool = False, turn: Turn | None = None
    ) -> AsyncIterator[AsyncConnection]:
        """Yield the connection; uncommitted changes are rolled back.

        ``writes``: meanwhile no other connection writes in SQLite, and none with the same ``turn`` in Postgres.

        Raises:
            Exception: made by ``away``: the database does not answer in time, or has no such table.

        """
        try:
            async with asyncio.timeout(within_s), self._engine.connect() as connection:
                if self.is_sqlite:
                    await _check_file(connection)
                if writes:
                    await self._begin(connection, within_s, turn)
                yield connection
        except TimeoutError as error:
            raise self._away(f"the database did not answer within {within_s:g} s") from error
        except DATABASE_ERRORS as error:
            raise self._away(str(unreachable(self._engine.url, error))) from error

    async def aclose(self, within_s: float) -> None:
        """Close the connection, even if the server hangs."""
        if "_engine" in vars(self):
            await release(self._database, self._engine, within_s)

    def instant(self, instant: datetime) -> datetime:
        """Return an instant in the form of the database: SQLite has no time zones, and takes UTC."""
        return instant.astimezone(UTC).replace(tzinfo=None) if self.is_sqlite else instant

    async def _begin(self, connection: AsyncConnection, within_s: float, turn: Turn | None) -> None:
        if self.is_sqlite:
            await connection.exec_driver_sql("begin immediate")
            return
        # Also on the server: a transaction that a dead client left open would block the next one.
        limit_ms = int(within_s * 1000)
        await connection.exec_driver_sql(f"set local statement_timeout = {limit_ms}")
        await connection.exec_driver_sql(f"set local idle_in_transaction_session_timeout = {limit_ms}")
        if turn is not None:
            await turn.wait(connection)


async def _check_file(connection: AsyncConnection) -> None:
    try:
        check_file(connection)
    except OSError:
        await connection.invalidate()
        raise
