"""Ships entries to SQL, tracks the database's state, sets rejected rows aside, and prunes."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

import structlog

from gateway.core.log import OutageCauses, StandingFault
from gateway.ledger import inserts
from gateway.ledger.entries import NO_ROWS, Entry, Shippable, Unfinished, encode
from gateway.ledger.errors import DatabaseUnreachableError
from gateway.ledger.folders import orphaned, warn_of_skipped
from gateway.ledger.retention import KEEP_ALL, Retention
from gateway.ledger.spool import Batch, Spool, SpoolReader
from gateway.ledger.store import Store
from gateway.ledger.turns import SharedClock

BATCH_MAX_ENTRIES = 1000
PING_TIMEOUT_S = 3.0
STALLED_S = 2.0  # longer than a batch should take; health checks report it

SetAside = Callable[[bytes, str], None]


class Shipper:
    """Stores entries, and tracks the state of the database.

    ``last_error``: of the last batch. ``rejected``: entries set aside for good. ``expired``: rows that were too old to
    be kept when they arrived.
    """

    def __init__(
        self,
        store: Store,
        clock: Callable[[], float],
        utc_now: Callable[[], datetime],
        retention: Retention = KEEP_ALL,
    ) -> None:
        self._answered_at_s: float | None = None
        self.stored_at_s: float | None = None  # by ``clock``: when rows were last stored
        self.last_error: str | None = None
        self.rejected = 0
        self.expired = 0
        self._store = store
        self._clock = clock
        self._utc_now = utc_now
        self._retention = retention
        self._connected = False
        self._waiting_since_s: dict[object, float] = {}  # of running requests
        self._failing_since_s: float | None = None
        self._causes = OutageCauses()
        self._log = structlog.get_logger()

    @property
    def connected(self) -> bool:
        """Whether the database's last request succeeded, and no request is stalled."""
        return self._connected and not self.stalled

    @property
    def answered_s_ago(self) -> float | None:
        """Seconds since the database last carried out a request; None if it never has."""
        return None if self._answered_at_s is None else self._clock() - self._answered_at_s

    @property
    def stalled(self) -> bool:
        """Whether a request has been running for longer than ``STALLED_S``."""
        return any(self._clock() - since_s > STALLED_S for since_s in self._waiting_since_s.values())

    async def ship(self, entries: Sequence[Entry], set_aside: SetAside) -> None:
        """Store all ``entries``, each once; ``set_aside`` is called for each entry whose rows the database rejects.

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
            self.stored_at_s = self._clock()

    async def ping(self) -> None:
        """Check that the database answers.

        Raises:
            DatabaseUnreachableError: no answer in time.

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
            self._causes.end()
            # Event ledger.database_recovered: Rows are written again, after `outage_s` seconds.
            # Do: Nothing.
            self._log.info("ledger.database_recovered", outage_s=outage_s)

    def _note_failure(self, error: DatabaseUnreachableError) -> None:
        self._connected = False
        self.last_error = str(error)
        if self._failing_since_s is None:
            self._failing_since_s = self._clock()
        if self._causes.is_new(str(error)):
            # Event ledger.database_unreachable: The database does not answer. Calls go on, and their rows wait on disk.
            # Do: Make the database reachable. Nothing is lost.
            self._log.warning(
                "ledger.database_unreachable", cause=str(error), hint="calls go on, rows wait in the spool"
            )


# Deletes rows that are too old, in one of the replicas.


JUMP = timedelta(seconds=60)  # of this machine's clock, beyond the time that has passed since the start


class Pruning:
    """Prunes ``store`` by ``retention``, while ``shipper`` says that the database is available."""

    def __init__(self, store: Store, retention: Retention, shipper: Shipper, shared: SharedClock) -> None:
        self._store = store
        self._retention = retention
        self._shipper = shipper
        self._shared = shared
        self._began_at = shared.utc_now() - timedelta(seconds=shared.clock())
        self._fault = StandingFault(shared.clock)

    async def text_gaps(self) -> dict[str, list[float]]:
        """Return the longest gaps of text of each deployment's latest 300 streams, in milliseconds, the latest last.

        Streams of the last day; of the last hour only, if that had very many.

        Raises:
            LedgerError: the database cannot be reached, or its schema is older.

        """
        return await self._store.text_gaps(self._shared.now())

    async def prune(self) -> None:
        """Delete rows that are too old, and make the next partitions, unless another replica does this.

        A failure is logged, and pruning is tried again after an hour; shipping continues.
        """
        if self._shared.leaves_turns:
            return
        jumped = self._shared.utc_now() - timedelta(seconds=self._shared.clock()) - self._began_at
        try:
            rows = await self._store.prune(self._retention, jumped=jumped > JUMP)
        except DatabaseUnreachableError as error:
            if self._shipper.connected and self._fault.is_due(str(error)):
                # Event ledger.not_pruned: Old rows could not be deleted, mostly because this role does not own the
                # tables.
                # Do: Run `holeshot prune` as their owner, for example each night.
                structlog.get_logger().warning(
                    "ledger.not_pruned", cause=str(error), hint="holeshot prune, as the tables' owner"
                )
            return
        self._fault.end()
        if rows and any(rows.values()):
            # Event ledger.pruned: Rows older than the `ledger.keep_…` settings were deleted: how many, by table.
            # Do: Nothing.
            structlog.get_logger().info("ledger.pruned", **rows)


# The backlog: the entries of a running spool that are not in SQL, their age, and how they are shipped.

PINGED_AFTER_S = 0.5  # half of the shipping interval; silence after which a watched database is pinged
WATCHED_S = 60.0  # after a health check: so long the database is pinged each second if there is nothing to ship
FREED_AT_ONCE = 32  # entries: about 30 µs


class Backlog:
    """Ships the entries of ``spool``. ``empty`` is set when all are in SQL, and cleared by a new record."""

    def __init__(self, spool: Spool, shipper: Shipper, clock: Callable[[], float]) -> None:
        self.empty = asyncio.Event()
        self._spool = spool
        self._shipper = shipper
        self._clock = clock
        self._reader = SpoolReader(spool.folder)
        self._shipped_up_to_s = clock()  # entries spooled before this time are in SQL
        self._watched_until_s = 0.0
        self._batch: Batch | None = None  # on its way to SQL, perhaps after a failed try
        self._unspooled: list[Shippable] = []  # on their way to SQL, after the disk refused them
        self._shipped_spooled = 0
        self._shipped_unspooled = 0
        self._shipping = asyncio.Lock()

    def watch(self) -> None:
        """Ping the database each second for a while, so that ``connected`` is also right for an idle gateway."""
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
        """Return the entries in memory that SQL may not have yet: nearly always all entries that wait for SQL."""
        batch = [] if self._batch is None else _shippable(self._batch)
        return [*batch, *self._unspooled, *self._spool.waiting(self._shipped_spooled)]

    def taken(self) -> int:
        """Return how many of the spooled entries are in SQL, or in memory on their way there."""
        return self._shipped_spooled + (0 if self._batch is None else len(_shippable(self._batch)))

    async def ship(self) -> None:
        """Ship everything that is in the spool now.

        Raises:
            DatabaseUnreachableError: the database cannot be reached.

        """
        async with self._shipping:
            begun_s = self._clock()
            if not self.pending:
                self._shipped_up_to_s = begun_s  # also while the database is away, as entries from then on are new
            if self._is_to_be_asked(begun_s):
                await self._shipper.ping()
            await self._ship_spool()
            await self._ship_memory()
            self._shipped_up_to_s = begun_s
            if self.pending == 0:
                self.empty.set()

    def _is_to_be_asked(self, now_s: float) -> bool:
        """Whether to ping the database: it was unreachable, or it is watched and there is nothing to ship."""
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
        self._reader.folder = self._spool.folder  # the folder may have been made again elsewhere
        held = self._spool.files.open_from(self._reader.segment)
        return await asyncio.to_thread(self._reader.read, BATCH_MAX_ENTRIES, held)

    def _advance(self, batch: Batch, shipped: list[Path]) -> None:
        self._reader.advance(batch)
        for path in shipped:
            with suppress(OSError):  # the folder may be missing or read-only: an entry shipped twice is stored once
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


# Adopts the spools of dead workers: ships their entries, and ends calls, attempts and outages without an end.


class AdoptionListener(Protocol):
    """A second store that also takes the spools of dead workers. The methods block, and never raise."""

    def adopt(self, folder: Path) -> None:
        """Keep the segments of a dead worker's spool; afterwards they are deleted."""

    def add_ended(self, folder: Path, entries: Iterable[Entry]) -> None:
        """Keep the unfinished entries of this spool."""


async def adopt(spool_dir: Path, shipper: Shipper, also: AdoptionListener | None = None) -> None:
    """Ship the spools of dead workers; unfinished calls and attempts become ``interrupted``.

    Raises:
        DatabaseUnreachableError: the database cannot be reached; entries that were not shipped stay.

    """
    for folder, lock in orphaned(spool_dir):
        try:
            await _adopt_folder(folder, shipper, also)
        except OSError as error:  # nothing in the folder was deleted
            warn_of_skipped(folder, error)
        finally:
            os.close(lock)


async def _adopt_folder(folder: Path, shipper: Shipper, also: AdoptionListener | None) -> None:
    if also is not None:
        await asyncio.to_thread(also.adopt, folder)
    reader = SpoolReader(folder)
    unfinished = Unfinished()
    adopted, more = 0, True
    while more:
        batch = await asyncio.to_thread(reader.read, BATCH_MAX_ENTRIES)
        for entry in batch.entries:
            unfinished.note(entry)
        ended = [entry for entry in batch.entries if not isinstance(entry, NO_ROWS)]
        if ended:
            await shipper.ship(ended, reader.set_aside)
        # Nothing is deleted before everything is shipped: if this process dies now, the next one must find the starts.
        await asyncio.to_thread(reader.advance, batch)
        adopted += len(ended)
        more = len(batch.entries) == BATCH_MAX_ENTRIES
    calls, attempts, outages = unfinished.calls(), unfinished.attempts(), unfinished.outages()
    rest: list[Entry] = [*calls, *attempts, *outages]
    if also is not None and rest:
        await asyncio.to_thread(also.add_ended, folder, rest)
    for first in range(0, len(rest), BATCH_MAX_ENTRIES):
        await shipper.ship(rest[first : first + BATCH_MAX_ENTRIES], reader.set_aside)
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    # Event ledger.spool_adopted: The rows of a process that died were found and written; `interrupted` of its calls
    # ran.
    # Do: If you do not know why it died: see `worker.died`, or the kernel's log.
    structlog.get_logger().info(
        "ledger.spool_adopted",
        spool=folder.name,
        entries=adopted,
        interrupted=len(calls),
        interrupted_audits=len(attempts),
        interrupted_outages=len(outages),
    )
