"""The ledger as the gateway holds it: what it is told is on disk at once, and in SQL about a second later."""

import asyncio
import os
import shutil
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import structlog

from gateway.attempt_records import AttemptRecord
from gateway.calls import CallRecord, CallStart, HourlySum
from gateway.ledger.entries import Entry, Started
from gateway.ledger.errors import DatabaseUnreachableError, LedgerError
from gateway.ledger.folders import folder_name, is_moved, orphaned
from gateway.ledger.keeper import Keeper
from gateway.ledger.reader import Batch, Reader
from gateway.ledger.retention import KEEP_ALL, Retention
from gateway.ledger.shipper import Shipper
from gateway.ledger.spool import Spool
from gateway.ledger.store import SqlStore, Store
from gateway.ledger.unended import Unended

BATCH_MAX_ENTRIES = 1000
SHIP_INTERVAL_S = 1.0  # a batch costs a millisecond, whatever is in it
SYNC_INTERVAL_S = 1.0  # as much as a power loss may take
FREED_AT_ONCE = 32  # entries: some 30 µs
ADOPT_INTERVAL_S = 15.0
BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.5, 5.0  # a database that is back is noticed as soon
WATCHED_S = 60.0  # after somebody asked how the database is, it is asked each second when there is nothing to ship
PRUNE_INTERVAL_S = 3600.0
CLOSE_TIMEOUT_S = 10.0


def backoff_s(failures: int) -> float:
    """Return how long to wait after so many failures in a row: 0.5 s, doubled each time, 5 s at most."""
    return min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** (min(failures, 16) - 1))


class Ledger:
    """Every call and attempt, first in the spool, then in SQL; nothing is lost in between.

    ``call_started``, ``call_finished`` and ``attempts_ended`` cost one ``write(2)`` each and never raise. Everything
    else happens in tasks that ``start`` makes and ``close`` ends: one ships, one keeps the disk, one adopts the spools
    of dead workers, and one takes away what is older than ``retention`` and makes the coming partitions.
    """

    def __init__(
        self,
        url: str,
        spool_dir: Path,
        worker: str,
        *,
        retention: Retention = KEEP_ALL,
        clock: Callable[[], float] = time.monotonic,
        utc_now: Callable[[], datetime] = lambda: datetime.now(UTC),
        store: Store | None = None,
    ) -> None:
        """Make ``spool_dir/worker``; no other process may ever use the same name. Nothing is connected yet.

        ``store`` is used instead of the database at ``url``.

        Raises:
            DatabaseUrlError: ``url`` is none.
            SpoolError: the spool cannot be written.

        """
        self._store = store or SqlStore(url)
        self._clock = clock
        self._utc_now = utc_now
        self._spool_dir = spool_dir
        self._spool = Spool(spool_dir / folder_name(worker), now_s=clock())
        self._reader = Reader(self._spool.folder)
        self._shipper = Shipper(self._store, clock, utc_now, retention)
        self._flushed_up_to_s = clock()  # what was told before then is in SQL
        self._watched_until_s = 0.0
        self._batch: Batch | None = None  # on its way to SQL, or tried in vain
        self._shipped_spooled = 0
        self._shipped_unspooled = 0
        self._keeper = Keeper(self._spool, clock, self._taken)
        self._retention = retention
        self._shipping = asyncio.Lock()
        self._closing = asyncio.Event()
        self._empty = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._pruning: asyncio.Task[None] | None = None
        self._prune_problem: str | None = None
        self._log = structlog.get_logger()

    @property
    def connected(self) -> bool:
        """Whether the database did the last thing it was asked, and is not stuck in the next one."""
        return self._shipper.connected

    def watch(self) -> None:
        """Have the database asked each second for a while, so that ``connected`` is true also of an idle gateway."""
        self._watched_until_s = self._clock() + WATCHED_S

    @property
    def last_error(self) -> str | None:
        """Why it did not."""
        return self._shipper.last_error

    @property
    def pending(self) -> int:
        """Entries (calls, and late attempts) that are not in SQL yet."""
        return self._spool.appended - self._spool.lost - self._shipped_spooled - self._shipped_unspooled

    @property
    def oldest_pending_s(self) -> float | None:
        """How long the oldest of them may have been waiting, in seconds; None when there are none."""
        return self._clock() - self._flushed_up_to_s if self.pending else None

    @property
    def answered_s_ago(self) -> float | None:
        """How many seconds ago the database last did what it was asked; None when it never has."""
        answered_at_s = self._shipper.answered_at_s
        return None if answered_at_s is None else self._clock() - answered_at_s

    @property
    def unspooled(self) -> int:
        """Entries the disk did not take, so far."""
        return self._spool.unspooled

    @property
    def spool_problem(self) -> str | None:
        """What keeps rows from outliving this process: the spool is ``missing`` or ``unwritable``; None is well."""
        return self._keeper.problem

    @property
    def lost(self) -> int:
        """Entries that reached neither the disk nor SQL, so far."""
        return self._spool.lost

    @property
    def expired(self) -> int:
        """Rows left out because they were already older than they are to be kept, so far."""
        return self._shipper.expired

    @property
    def rejected(self) -> int:
        """Entries set aside because the database would not have them, so far."""
        return self._shipper.rejected

    def call_started(self, start: CallStart) -> None:
        """Remember a call as begun, so that it is known of if the gateway dies."""
        self._spool.call_started(start)

    def call_finished(self, record: CallRecord) -> None:
        """Remember a call and its attempts: on disk when this returns."""
        self._empty.clear()
        self._spool.call_finished(record)

    def attempts_ended(self, call_id: str, attempts: tuple[AttemptRecord, ...]) -> None:
        """Remember attempts that were watched beyond the end of their call."""
        self._empty.clear()
        self._spool.attempts_ended(call_id, attempts)

    async def start(self) -> None:
        """Begin to ship; spools of dead workers are adopted first thing. The database may be away."""
        self._tasks = [
            asyncio.create_task(self._repeat(self.flush, SHIP_INTERVAL_S), name="ledger.ship"),
            asyncio.create_task(self._repeat(self._keeper.keep, SYNC_INTERVAL_S), name="ledger.disk"),
            asyncio.create_task(self._repeat(self.adopt, ADOPT_INTERVAL_S), name="ledger.adopt"),
        ]
        self._pruning = asyncio.create_task(self._repeat(self.prune, PRUNE_INTERVAL_S), name="ledger.prune")

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Ship what is left, for ``timeout_s`` at most; the rest stays on disk for the next gateway to adopt."""
        self._closing.set()
        if self._pruning is not None:  # it can go on at any time
            self._pruning.cancel()
            await asyncio.gather(self._pruning, return_exceptions=True)
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*self._tasks)
                await self.flush()
        except (TimeoutError, LedgerError):
            self._log.warning("ledger.closed_with_pending_rows", pending=self.pending, spool=str(self._spool.folder))
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._keeper.keep()
            self._spool.close(remove=self.pending == 0)
            await self._store.aclose()

    async def emptied(self) -> None:
        """Wait until all that was told so far is in SQL."""
        if self.pending:
            await self._empty.wait()

    async def flush(self) -> None:
        """Ship all that is in the spool now.

        Raises:
            DatabaseUnreachableError: the database is away.

        """
        async with self._shipping:
            begun_s = self._clock()
            if self._is_to_be_asked(begun_s):
                await self._shipper.ping()
            await self._ship_spool()
            await self._ship_memory()
            self._flushed_up_to_s = begun_s
            if self.pending == 0:
                self._empty.set()

    async def adopt(self) -> None:
        """Ship the spools whose workers are dead; what of theirs never ended becomes ``interrupted``.

        Raises:
            DatabaseUnreachableError: the database is away; what was not shipped stays.

        """
        for folder, lock in orphaned(self._spool_dir):
            try:
                await self._adopt_folder(folder, was_moved=is_moved(lock))
            finally:
                os.close(lock)

    async def remembered(self) -> list[HourlySum]:
        """Return the sums of the last day, as far as they are older than ten minutes.

        Raises:
            LedgerError: the database is away, or has none.

        """
        return await self._store.remembered(self._utc_now())

    async def prune(self) -> None:
        """Take away what is older than it is to be kept, and make the coming partitions, unless another replica does.

        What hinders it is said once, and it is tried again an hour later: it keeps nobody from shipping.
        """
        try:
            rows = await self._store.prune(self._retention, self._utc_now())
        except DatabaseUnreachableError as error:
            if self._shipper.connected and str(error) != self._prune_problem:
                self._log.warning("ledger.not_pruned", cause=str(error), hint="holeshot prune, as the tables' owner")
            self._prune_problem = str(error)
            return
        self._prune_problem = None
        if rows and any(rows.values()):
            self._log.info("ledger.pruned", **rows)

    def _is_to_be_asked(self, now_s: float) -> bool:
        """Whether to ask the database how it is: when it was away, or is watched and has nothing else to do."""
        if not self._shipper.connected:
            return True
        silent_s = self.answered_s_ago or 0.0
        return now_s < self._watched_until_s and not self.pending and silent_s >= SHIP_INTERVAL_S / 2

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
            if shipped or batch.corrupt:  # files are deleted and written off the loop
                await asyncio.to_thread(self._advance, batch, shipped)
            else:
                self._reader.advance(batch)
            batch.entries.clear()
            while entries:  # to free thousands of records at a stretch takes milliseconds
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
            with suppress(OSError):  # the folder may be gone, or read-only: what is shipped twice is stored once
                path.unlink()

    def _taken(self) -> int:
        """Return how many of the spooled entries are in SQL, or in memory on their way there."""
        return self._shipped_spooled + (0 if self._batch is None else len(_shippable(self._batch)))

    async def _ship_memory(self) -> None:
        while entries := self._spool.take_memory(BATCH_MAX_ENTRIES):
            try:
                await self._shipper.ship(entries, self._reader.set_aside)
            except BaseException:
                self._spool.give_back(entries)
                raise
            self._shipped_unspooled += len(entries)

    async def _adopt_folder(self, folder: Path, *, was_moved: bool) -> None:
        reader = Reader(folder)
        unended = Unended()
        adopted, more = 0, True
        while more:
            batch = await asyncio.to_thread(reader.read, BATCH_MAX_ENTRIES)
            for entry in batch.entries:
                unended.note(entry)
            ended = [entry for entry in batch.entries if not isinstance(entry, Started)]
            if ended:
                await self._shipper.ship(ended, reader.set_aside)
            # Nothing is deleted before all is shipped: if we die now, the next one must still find the starts.
            await asyncio.to_thread(reader.advance, batch)
            adopted += len(ended)
            more = len(batch.entries) == BATCH_MAX_ENTRIES
        if was_moved:  # its owner went on elsewhere, and what was under way here ended there
            unended = Unended()
        calls, attempts = unended.calls(), unended.attempts()
        rest: list[Entry] = [*calls, *attempts]
        for first in range(0, len(rest), BATCH_MAX_ENTRIES):
            await self._shipper.ship(rest[first : first + BATCH_MAX_ENTRIES], reader.set_aside)
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        self._log.info(
            "ledger.spool_adopted",
            spool=folder.name,
            entries=adopted,
            interrupted=len(calls),
            interrupted_audits=len(attempts),
        )

    async def _repeat(self, action: Callable[[], Awaitable[None]], interval_s: float) -> None:
        """Do ``action`` every ``interval_s`` until closing; when it fails, wait longer each time."""
        failures = 0
        while not self._closing.is_set():
            try:
                await action()
                failures = 0
            except LedgerError:  # the shipper has said so
                failures += 1
            except Exception:  # noqa: BLE001 - a bug in one round must not end the shipping of all later ones
                failures += 1
                self._log.exception("ledger.task_failed", task=getattr(action, "__name__", ""))
            pause_s = backoff_s(failures) if failures else interval_s
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._closing.wait()


def _shippable(batch: Batch) -> list[Entry]:
    return [entry for entry in batch.entries if not isinstance(entry, Started)]
