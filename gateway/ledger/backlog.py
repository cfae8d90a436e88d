"""The backlog: what a running spool has and SQL has not, how old it is, and how it is shipped."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gateway.ledger.entries import NO_ROWS, Shippable
from gateway.ledger.reader import Batch, Reader
from gateway.ledger.shipper import BATCH_MAX_ENTRIES, Shipper
from gateway.ledger.spool import Spool

PINGED_AFTER_S = 0.5  # half of the shipping interval; time without an answer, while the database is watched
WATCHED_S = 60.0  # after a health check the database is pinged each second if there is nothing to ship
FREED_AT_ONCE = 32  # entries: about 30 µs


class Backlog:
    """Ships the entries of ``spool``. ``empty`` is set when all are in SQL; spooling a record clears it."""

    def __init__(self, spool: Spool, shipper: Shipper, clock: Callable[[], float]) -> None:
        self.empty = asyncio.Event()
        self._spool = spool
        self._shipper = shipper
        self._clock = clock
        self._reader = Reader(spool.folder)
        self._shipped_up_to_s = clock()  # what was spooled before then is in SQL
        self._watched_until_s = 0.0
        self._batch: Batch | None = None  # on its way to SQL, or tried without success
        self._unspooled: list[Shippable] = []  # on their way to SQL, of those that the disk refused
        self._shipped_spooled = 0
        self._shipped_unspooled = 0
        self._shipping = asyncio.Lock()

    def watch(self) -> None:
        """Ping the database each second for a while, so that ``connected`` is also true for an idle gateway."""
        self._watched_until_s = self._clock() + WATCHED_S

    @property
    def pending(self) -> int:
        """Entries (calls, late attempts, and minutes of refusals) that are not in SQL yet."""
        return self._spool.appended - self._spool.lost - self._shipped_spooled - self._shipped_unspooled

    @property
    def oldest_s(self) -> float | None:
        """The maximum age of pending entries, in seconds; None if there are none."""
        return self._clock() - self._shipped_up_to_s if self.pending else None

    def unshipped(self) -> list[Shippable]:
        """Return the entries in memory that SQL may not have yet: nearly always all that wait for it."""
        taken = [] if self._batch is None else _shippable(self._batch)
        return [*taken, *self._unspooled, *self._spool.waiting(self._shipped_spooled)]

    def taken(self) -> int:
        """Return how many of the spooled entries are in SQL, or in memory on their way there."""
        return self._shipped_spooled + (0 if self._batch is None else len(_shippable(self._batch)))

    async def ship(self) -> None:
        """Ship everything that is in the spool now.

        Raises:
            DatabaseUnreachableError: the database is away.

        """
        async with self._shipping:
            begun_s = self._clock()
            if self._is_to_be_asked(begun_s):
                await self._shipper.ping()
            await self._ship_spool()
            await self._ship_memory()
            self._shipped_up_to_s = begun_s
            if self.pending == 0:
                self.empty.set()

    def _is_to_be_asked(self, now_s: float) -> bool:
        """Whether to ping the database: it was away, or it is watched and there is nothing to ship."""
        if not self._shipper.connected:
            return True
        silent_s = self._shipper.answered_s_ago or 0.0
        return now_s < self._watched_until_s and not self.pending and silent_s >= PINGED_AFTER_S

    async def _ship_spool(self) -> None:
        more = True
        while more:
            if self._batch is None:
                self._batch = await self._next_batch()
            batch = self._batch
            more = len(batch.entries) == BATCH_MAX_ENTRIES
            entries = _shippable(batch)
            if entries:
                await self._shipper.ship(entries, self._reader.set_aside)
                self._shipped_spooled += len(entries)
            self._batch = None
            shipped = self._spool.files.release(batch.segment)
            if shipped or batch.corrupt:  # file operations must not block the event loop
                await asyncio.to_thread(self._advance, batch, shipped)
            else:
                self._reader.advance(batch)
            batch.entries.clear()
            while entries:  # freeing thousands of records at once takes milliseconds
                del entries[-FREED_AT_ONCE:]
                await asyncio.sleep(0)

    async def _next_batch(self) -> Batch:
        batch = self._spool.take_latest(self._shipped_spooled, BATCH_MAX_ENTRIES)
        if batch is not None:
            return batch
        self._reader.folder = self._spool.folder  # it may have been made again elsewhere
        held = self._spool.files.open_from(self._reader.segment)
        return await asyncio.to_thread(self._reader.read, BATCH_MAX_ENTRIES, held)

    def _advance(self, batch: Batch, shipped: list[Path]) -> None:
        self._reader.advance(batch)
        for path in shipped:
            with suppress(OSError):  # the folder may be gone or read-only: entries shipped twice are stored once
                path.unlink()

    async def _ship_memory(self) -> None:
        while entries := self._spool.take_memory(BATCH_MAX_ENTRIES):
            self._unspooled = entries
            try:
                await self._shipper.ship(entries, self._reader.set_aside)
            except BaseException:
                self._spool.give_back(entries)
                raise
            finally:
                self._unspooled = []
            self._shipped_unspooled += len(entries)


def _shippable(batch: Batch) -> list[Shippable]:
    return [entry for entry in batch.entries if not isinstance(entry, NO_ROWS)]
