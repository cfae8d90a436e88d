"""A few read-only connections for reports, each statement with a time limit; the ledger's own are never used."""

import asyncio
import sqlite3
from collections.abc import Sequence
from typing import Any

import asyncpg
import msgspec
import structlog
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.ledger.database import (
    DATABASE_ERRORS,
    check_file,
    create_engine,
    dispose,
    is_sqlite,
    parse_url,
    unreachable,
)
from gateway.ledger.reports.words import Words
from gateway.reports import RETRY_S, ReportsUnreachable, ReportTooSlow

CONNECTIONS = 3  # of a process; one more is made while they are busy
TIMEOUT_S = 8.0  # of one statement, and the wait for a connection
CLOSE_TIMEOUT_S = 3.0
_NO_SUCH = (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError, asyncpg.InsufficientPrivilegeError)
_AWAY = "the database does not answer, so there is no report now; calls go on, and the gateway's log says why"
_LACKING = "the ledger lacks a table, or a right to read it: run `holeshot migrate`; the gateway's log says more"


class Answer(msgspec.Struct, frozen=True):
    """The names of columns, and rows with the driver's values."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]


class Reader:
    """Runs statements of reports. It connects when first used."""

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        """Read from the ledger at ``url``.

        Raises:
            DatabaseUrlError: ``url`` is invalid.

        """
        self.words = Words(is_postgres=not is_sqlite(parse_url(url)))
        self._url = url
        self._timeout_s = timeout_s
        self._engine: AsyncEngine | None = None
        self._log = structlog.get_logger()

    async def run(self, sql: str) -> Answer:
        """Run one statement that reads.

        Raises:
            ReportsUnreachable: the database cannot be asked, or lacks a table.
            ReportTooSlow: it took too long, and was stopped.

        """
        engine = self._engine = self._engine or self._connecting()
        run = _run_postgres if self.words.is_postgres else _run_sqlite
        try:
            async with asyncio.timeout(self._timeout_s), engine.connect() as connection:
                return await run(connection, sql, self._timeout_s)
        except (TimeoutError, asyncpg.QueryCanceledError) as error:
            self._log.warning("report.too_slow", limit_s=self._timeout_s, sql=sql)
            raise ReportTooSlow(
                f"the database took longer than {self._timeout_s:g} s for this: ask for a shorter window, or for less"
            ) from error
        except DATABASE_ERRORS as error:
            if _is_our_fault(error):
                raise
            self._log.warning("report.failed", cause=str(unreachable(engine.url, error)))
            words = _LACKING if _lacks(error) else _AWAY
            raise ReportsUnreachable(words, headers={"retry-after": str(RETRY_S)}) from error

    async def aclose(self) -> None:
        """Close the connections; a server that hangs does not delay this for long."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await dispose(engine, CLOSE_TIMEOUT_S)

    def _connecting(self) -> AsyncEngine:
        engine = create_engine(self._url, pool_size=CONNECTIONS)
        if not self.words.is_postgres:

            @event.listens_for(engine.sync_engine, "connect")
            def _only_read(connection: Any, _record: Any) -> None:
                cursor = connection.cursor()
                cursor.execute("pragma query_only = on")
                cursor.close()

        return engine


async def _run_postgres(connection: AsyncConnection, sql: str, timeout_s: float) -> Answer:
    raw = await connection.get_raw_connection()
    driver: Any = raw.driver_connection
    transaction = driver.transaction(readonly=True)  # not as a context: it would wait for a server that hangs
    usable = False
    try:
        await transaction.start()
        # JIT compilation takes longer than these statements. The server's limit is for a gateway that is gone.
        await driver.execute(f"set local statement_timeout = {int(timeout_s * 1000)};set local jit = off")
        statement = await driver.prepare(sql)
        rows = await statement.fetch()
        columns = tuple(attribute.name for attribute in statement.get_attributes())
        await transaction.rollback()
        usable = True
        return Answer(columns, rows)
    finally:
        if not usable:
            driver.terminate()
            await connection.invalidate()


async def _run_sqlite(connection: AsyncConnection, sql: str, _timeout_s: float) -> Answer:
    raw = await connection.get_raw_connection()
    driver: Any = raw.driver_connection
    try:
        check_file(connection)
        async with driver.execute(sql) as cursor:
            rows = await cursor.fetchall()
            return Answer(tuple(column[0] for column in cursor.description), rows)
    except asyncio.CancelledError:
        await driver.interrupt()  # its thread would go on
        raise
    except OSError:
        await connection.invalidate()
        raise


def _is_our_fault(error: Exception) -> bool:
    """Whether a statement is wrong: a defect of the gateway, which its log shall show."""
    wrong = isinstance(error, asyncpg.SyntaxOrAccessError | asyncpg.DataError) and not isinstance(error, _NO_SUCH)
    return wrong or (isinstance(error, sqlite3.OperationalError) and "syntax error" in str(error))


def _lacks(error: Exception) -> bool:
    return isinstance(error, _NO_SUCH) or (isinstance(error, sqlite3.OperationalError) and "no such" in str(error))
