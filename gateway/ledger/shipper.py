"""Shipping entries to SQL: what the database is like at the moment, and what becomes of rows it will not have."""

import asyncio
from collections.abc import Callable, Sequence

import structlog
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.ledger.database import DATABASE_ERRORS, unreachable
from gateway.ledger.entries import Entry, encode
from gateway.ledger.errors import DatabaseUnreachableError
from gateway.ledger.inserts import RowsRejectedError, insert

INSERT_TIMEOUT_S = 60.0

SetAside = Callable[[bytes, str], None]


class Shipper:
    """Stores entries, and knows how the database is.

    ``connected`` and ``last_error`` are as of the last batch; ``rejected`` counts entries set aside for good.
    """

    def __init__(self, engine: AsyncEngine, clock: Callable[[], float]) -> None:
        self.connected = False
        self.last_error: str | None = None
        self.rejected = 0
        self._engine = engine
        self._clock = clock
        self._failing_since_s: float | None = None
        self._log = structlog.get_logger()

    async def ship(self, entries: Sequence[Entry], set_aside: SetAside) -> None:
        """Store all ``entries``, each once; ``set_aside`` takes those whose rows the database rejects.

        Raises:
            DatabaseUnreachableError: the database is in no state to take any; try again later.

        """
        try:
            async with asyncio.timeout(INSERT_TIMEOUT_S):
                await insert(self._engine, entries)
        except RowsRejectedError as rejection:
            self._note_success()
            if len(entries) == 1:
                self.rejected += 1
                set_aside(encode(entries[0]), str(rejection))
                return
            middle = len(entries) // 2
            await self.ship(entries[:middle], set_aside)
            await self.ship(entries[middle:], set_aside)
        except DatabaseUnreachableError as error:
            self._note_failure(error)
            raise
        except TimeoutError as error:
            failure = DatabaseUnreachableError(f"the database took longer than {INSERT_TIMEOUT_S:g} s for a batch")
            self._note_failure(failure)
            raise failure from error
        else:
            self._note_success()

    async def ping(self) -> None:
        """Find out whether the database answers.

        Raises:
            DatabaseUnreachableError: it does not.

        """
        try:
            async with self._engine.connect() as connection:
                await connection.execute(text("select 1"))
        except DATABASE_ERRORS as error:
            failure = unreachable(self._engine.url, error)
            self._note_failure(failure)
            raise failure from error
        self._note_success()

    def _note_success(self) -> None:
        self.connected = True
        self.last_error = None
        if self._failing_since_s is not None:
            outage_s = round(self._clock() - self._failing_since_s, 1)
            self._failing_since_s = None
            self._log.info("ledger.database_recovered", outage_s=outage_s)

    def _note_failure(self, error: DatabaseUnreachableError) -> None:
        self.connected = False
        self.last_error = str(error)
        if self._failing_since_s is None:  # once an outage
            self._failing_since_s = self._clock()
            self._log.warning(
                "ledger.database_unreachable", cause=str(error), hint="calls go on, rows wait in the spool"
            )
