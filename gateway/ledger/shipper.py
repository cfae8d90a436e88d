"""Ships entries to SQL, tracks the state of the database, and sets aside rows that it rejects."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

import structlog

from gateway.ledger import inserts
from gateway.ledger.entries import Entry, encode
from gateway.ledger.errors import DatabaseUnreachableError
from gateway.ledger.retention import KEEP_ALL, Retention
from gateway.ledger.store import Store

BATCH_MAX_ENTRIES = 1000
PING_TIMEOUT_S = 3.0
STALLED_S = 2.0  # longer than any batch should take; health checks report it

SetAside = Callable[[bytes, str], None]


class Shipper:
    """Stores entries, and tracks the state of the database.

    ``last_error`` is that of the last batch; ``rejected`` counts entries set aside permanently, ``expired`` rows that
    were already too old to be kept.
    """

    def __init__(
        self,
        store: Store,
        clock: Callable[[], float],
        utc_now: Callable[[], datetime],
        retention: Retention = KEEP_ALL,
    ) -> None:
        self._answered_at_s: float | None = None
        self.last_error: str | None = None
        self.rejected = 0
        self.expired = 0
        self._store = store
        self._clock = clock
        self._utc_now = utc_now
        self._retention = retention
        self._connected = False
        self._waiting_since_s: dict[object, float] = {}  # for the requests that are running now
        self._failing_since_s: float | None = None
        self._log = structlog.get_logger()

    @property
    def connected(self) -> bool:
        """Whether the database's last request succeeded, and none is stalled."""
        return self._connected and not self.stalled

    @property
    def answered_s_ago(self) -> float | None:
        """How many seconds ago the database last did what it was asked; None when it never has."""
        return None if self._answered_at_s is None else self._clock() - self._answered_at_s

    @property
    def stalled(self) -> bool:
        """Whether a request has been running for longer than ``STALLED_S``."""
        return any(self._clock() - since_s > STALLED_S for since_s in self._waiting_since_s.values())

    async def ship(self, entries: Sequence[Entry], set_aside: SetAside) -> None:
        """Store all ``entries``, each once; ``set_aside`` is called for those whose rows the database rejects.

        Raises:
            DatabaseUnreachableError: the database is not available; try again later.

        """
        try:
            async with self._asking(inserts.INSERT_TIMEOUT_S):
                kept_since = self._retention.cutoffs(self._utc_now())
                self.expired += await self._store.insert(entries, kept_since)
        except inserts.RowsRejectedError as rejection:
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
        else:
            self._note_success()

    async def ping(self) -> None:
        """Check that the database answers.

        Raises:
            DatabaseUnreachableError: it does not.

        """
        try:
            async with self._asking(PING_TIMEOUT_S):
                await self._store.ping()
        except DatabaseUnreachableError as error:
            self._note_failure(error)
            raise
        self._note_success()

    @asynccontextmanager
    async def _asking(self, timeout_s: float) -> AsyncIterator[None]:
        """Limit the time of a request, and make it visible to ``stalled``."""
        question = object()
        self._waiting_since_s[question] = self._clock()
        try:
            async with asyncio.timeout(timeout_s):
                yield
        except TimeoutError as error:
            raise DatabaseUnreachableError(f"the database did not answer within {timeout_s:g} s") from error
        finally:
            del self._waiting_since_s[question]

    def _note_success(self) -> None:
        self._connected = True
        self._answered_at_s = self._clock()
        self.last_error = None
        if self._failing_since_s is not None:
            outage_s = round(self._clock() - self._failing_since_s, 1)
            self._failing_since_s = None
            self._log.info("ledger.database_recovered", outage_s=outage_s)

    def _note_failure(self, error: DatabaseUnreachableError) -> None:
        self._connected = False
        self.last_error = str(error)
        if self._failing_since_s is None:  # once per outage
            self._failing_since_s = self._clock()
            self._log.warning(
                "ledger.database_unreachable", cause=str(error), hint="calls go on, rows wait in the spool"
            )
