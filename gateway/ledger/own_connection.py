"""A connection of a store's own to the ledger's database: the ledger may be busy shipping."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from sqlalchemy import TextClause
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.ledger.database import DATABASE_ERRORS, check_file, create_engine, dispose, is_sqlite, unreachable


class OwnConnection:
    """One connection for some seconds at a time; it connects when first used."""

    def __init__(self, url: str, away: Callable[[str], Exception]) -> None:
        """``away`` makes the store's own error of a reason.

        Raises:
            DatabaseUrlError: ``url`` is invalid.

        """
        self._engine: AsyncEngine = create_engine(url, pool_size=1)
        self._away = away
        self.is_sqlite = is_sqlite(self._engine.url)

    @asynccontextmanager
    async def open(
        self, within_s: float, *, writes: bool = False, lock: TextClause | None = None
    ) -> AsyncIterator[AsyncConnection]:
        """Yield it; what is not committed is rolled back.

        ``writes``: in SQLite nobody else writes meanwhile, in Postgres nobody else who takes ``lock``.

        Raises:
            Exception: what ``away`` makes: the database does not answer in time, or has no such table.

        """
        try:
            async with asyncio.timeout(within_s), self._engine.connect() as connection:
                if self.is_sqlite:
                    await _check_file(connection)
                if writes:
                    await self._begin(connection, within_s, lock)
                yield connection
        except TimeoutError as error:
            raise self._away(f"the database did not answer within {within_s:g} s") from error
        except DATABASE_ERRORS as error:
            raise self._away(str(unreachable(self._engine.url, error))) from error

    async def aclose(self, within_s: float) -> None:
        """Close it, also if the server hangs."""
        await dispose(self._engine, within_s)

    def instant(self, instant: datetime) -> datetime:
        """Return an instant as the database takes it: SQLite has no time zones, and UTC is meant."""
        return instant.astimezone(UTC).replace(tzinfo=None) if self.is_sqlite else instant

    async def _begin(self, connection: AsyncConnection, within_s: float, lock: TextClause | None) -> None:
        if self.is_sqlite:
            await connection.exec_driver_sql("begin immediate")
            return
        # On the server too: what a client that is gone has begun would block the next one.
        limit_ms = int(within_s * 1000)
        await connection.exec_driver_sql(f"set local statement_timeout = {limit_ms}")
        await connection.exec_driver_sql(f"set local idle_in_transaction_session_timeout = {limit_ms}")
        if lock is not None:
            await connection.execute(lock)


async def _check_file(connection: AsyncConnection) -> None:
    try:
        check_file(connection)
    except OSError:
        await connection.invalidate()
        raise
