"""The gateway's interface to the ledger: records are on disk at once, and in SQL about a second later."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from gateway.core.attempts import AttemptRecord
from gateway.core.calls import CallRecord, CallStart, HourlySum, LimitUse, Spent
from gateway.core.log import StandingFault
from gateway.core.records import OutageRecord, RefusalRecord, StoredName
from gateway.core.tasks import pause
from gateway.ledger.connections import Database
from gateway.ledger.ends import AFTER
from gateway.ledger.entries import Shippable
from gateway.ledger.errors import DatabaseUnreachableError, LedgerError
from gateway.ledger.folders import LOCK_NAME, folder_name, segment_path
from gateway.ledger.folding import FULL
from gateway.ledger.retention import KEEP_ALL, Retention
from gateway.ledger.shipper import PING_TIMEOUT_S, Backlog, Pruning, Shipper, adopt
from gateway.ledger.spool import Spool, sync_files
from gateway.ledger.spooled import SpoolSums, spooled
from gateway.ledger.store import SqlStore, Store
from gateway.ledger.turns import MEASURE_INTERVAL_S, SharedClock
from gateway.ledger.used import OwnRows

if TYPE_CHECKING:
    from gateway.ledger.clickhouse.sink import ClickHouseSink

# Adds up new rows, in one of the processes that ship.

REST_S = 0.7  # age of the oldest new row, for the last process to add up: the costliest part is prepared
TAKE_OVER_S = 1.0  # the same for the other processes, which check half as often: the former process seems to have gone
EAGER_S = 10.0  # after its own rows a process checks often for so long; then as rarely as for dead workers
HELD_S = 60.0  # by processes that add up one after the other; each takes some tenths of a second
IDLE_LOOKS = 4  # checks without work, after which a process is one of the others again


class Folding:
    """Adds up new rows in ``store``, unless another process does; ``shipper`` knows when rows were last stored."""

    def __init__(self, store: Store, shipper: Shipper, clock: Callable[[], float]) -> None:
        self._store = store
        self._shipper = shipper
        self._clock = clock
        self._since = 0
        self._idle = IDLE_LOOKS  # checks without work; below the limit this process was the last to add up
        self._looked_at_s: float | None = None
        self._fault = StandingFault(clock)
        self._failing_since_s: float | None = None
        self._left_since_s: float | None = None  # since when another process has had the turn, without a break
        self._problem = ""

    @property
    def stands_still_s(self) -> float | None:
        """For how many seconds new rows could not be added up although the database answers; None: no problem."""
        since_s = self._failing_since_s
        return None if since_s is None or not self._shipper.connected else self._clock() - since_s

    @property
    def problem(self) -> str:
        """Why new rows cannot be added up."""
        return self._problem

    async def fold(self) -> None:
        """Add up new rows if due. A failure is logged once an hour; shipping continues."""
        if not self._is_due():
            return
        rest_s = REST_S if self._leads else TAKE_OVER_S
        try:
            while (folded := await self._store.fold(self._since, rest_s)).taken:
                self._since, self._idle, rest_s = folded.until, 0, 0.0
                if folded.taken < FULL:
                    break
            else:
                self._idle = IDLE_LOOKS if folded.taken is None else self._idle + 1
        except DatabaseUnreachableError as error:
            self._since = 0  # another server may answer next time
            self._say(str(error))
        else:
            self._note(left_to_another=folded.taken is None)

    async def fold_rest(self) -> None:
        """Add up all new rows, of this process and others, before this process ends."""
        if self._shipper.stored_at_s is not None:
            try:
                await self._store.fold_all()
            except DatabaseUnreachableError as error:
                self._say(str(error))

    @property
    def _leads(self) -> bool:
        """Whether this process was the last to add up, as far as it knows."""
        return self._idle < IDLE_LOOKS

    def _is_due(self) -> bool:
        now_s, stored_at_s = self._clock(), self._shipper.stored_at_s
        is_eager = stored_at_s is not None and now_s - stored_at_s < EAGER_S
        pause_s = 0.0 if self._leads else 1.5 * FOLD_INTERVAL_S if is_eager else ADOPT_INTERVAL_S
        if self._looked_at_s is not None and now_s - self._looked_at_s < pause_s:
            return False
        self._looked_at_s = now_s
        return True

    def _note(self, *, left_to_another: bool) -> None:
        """Note that new rows are added up, here or elsewhere, unless another process has had the turn for too long."""
        now_s = self._clock()
        self._left_since_s = (now_s if self._left_since_s is None else self._left_since_s) if left_to_another else None
        if self._left_since_s is not None and now_s - self._left_since_s >= HELD_S:
            self._say("another session of the database has had the turn to add up rows (holeshot.fold) for too long")
            return
        self._fault.end()
        if self._failing_since_s is not None:
            # Event ledger.folded_again: New rows are added up again, also those that came meanwhile.
            # Do: Nothing.
            structlog.get_logger().info("ledger.folded_again", after_s=round(now_s - self._failing_since_s, 1))
        self._failing_since_s = None

    def _say(self, problem: str) -> None:
        if not self._shipper.connected:
            return
        self._problem = problem
        if self._failing_since_s is None:
            self._failing_since_s = self._clock()
        if self._fault.is_due(problem):
            # Event ledger.not_folded: New rows could not be added up (`cause`): sums stand still. Rows are stored, and
            # count later.
            # Do: Run `holeshot migrate` if the schema is old, or let the gateway's role insert calls.
            structlog.get_logger().warning(
                "ledger.not_folded", cause=problem, hint="rows are stored, and are added up as soon as it is possible"
            )


# Checks a running spool every second: begins a new one if files were deleted, resumes refused writes, and syncs.

REMIND_S = 10.0  # between log lines about a lasting problem
RESUMED_AT_ONCE = 32  # entries: about 300 µs


class Keeper:
    """Reports that a spool's files were moved or deleted, and begins new ones; ``keep`` must be called every second.

    ``problem``: None, ``missing`` (rows that wait for SQL are in no file that the next gateway would find) or
    ``unwritable``.
    """

    def __init__(
        self, spool: Spool, clock: Callable[[], float], utc_now: Callable[[], datetime], taken: Callable[[], int]
    ) -> None:
        """``taken``: returns how many of the spooled entries are in SQL, or in memory on their way there."""
        self._spool = spool
        self._clock = clock
        self._utc_now = utc_now
        self._taken = taken
        self._missing = False
        self._said_at_s: float | None = None
        self._log = structlog.get_logger()

    @property
    def problem(self) -> str | None:
        """Why the spool would be lost with this process; None: no problem."""
        return "missing" if self._missing else "unwritable" if self._is_refused() else None

    async def keep(self) -> None:
        """Check that all spooled data are on disk where the next gateway looks for them. Never raises OSError."""
        self._look()
        if not self._spool.files.newest_is_missing():
            await self._resume()
            if not self._is_refused():
                self._spool.note_lasting(self._clock(), self._utc_now())
                self._spool.rotate_if_due(self._clock())
            await self._sync()
        if self.problem is None:
            self._said_at_s = None

    def _look(self) -> None:
        """Report missing files. If the next gateway would not find new entries, begin a new segment."""
        files = self._spool.files
        names = [LOCK_NAME] if files.lock_is_missing() else []
        names += [segment_path(files.folder, number).name for number in files.missing()]
        if not names:
            if self._missing:  # all entries of deleted files are in SQL, or the folder was moved back
                self._missing = False
                # Event ledger.spool_recovered: All rows that wait for the database are on disk again.
                # Do: Nothing.
                self._say(logging.INFO, "ledger.spool_recovered", folder=str(files.folder))
            return
        self._missing = True
        lost, cause = self._spool.drop_lost(self._taken()), None
        if files.newest_is_missing():
            try:
                files.lock_again()
                if files.newest_is_missing():
                    self._spool.rotate(self._clock())
            except OSError as error:
                cause = error.strerror or str(error)
        if self._is_time_to_say():
            # Event ledger.spool_missing: Files of waiting rows were deleted while the gateway ran. This process can
            # still read these rows, but they are lost if it ends now. New rows go to a new file, unless `cause` says
            # why not; `lost` rows are gone.
            # Do: Keep the gateway running until `ledger.spool_recovered`, and find out who deletes there. With a
            # `cause`, make `spool_dir` writable now.
            self._say(
                logging.ERROR,
                "ledger.spool_missing",
                folder=str(files.folder),
                missing=names,
                cause=cause,
                lost=lost,
                hint="rows not yet in SQL would be lost with this process; calls go on",
            )

    async def _resume(self) -> None:
        if not self._is_refused():
            return
        more = True
        while more:
            more = self._spool.resume(RESUMED_AT_ONCE, self._clock())
            await asyncio.sleep(0)
        if not self._is_refused():
            self._say(
                logging.INFO, "ledger.spool_recovered", folder=str(self._spool.folder), unspooled=self._spool.unspooled
            )
        elif self._is_time_to_say(first=False):
            self._spool.say_refused()

    def _is_refused(self) -> bool:
        return self._spool.refusal is not None

    async def _sync(self) -> None:
        unsynced = self._spool.files.take_unsynced()
        if unsynced:
            try:
                await asyncio.to_thread(sync_files, unsynced)
            except OSError as error:
                # Event ledger.sync_failed: The disk did not confirm the spool. The rows are lost only if the machine
                # itself stops.
                # Do: Check the disk.
                self._say(logging.ERROR, "ledger.sync_failed", folder=str(self._spool.folder), cause=error.strerror)

    def _say(self, level: int, event: str, **facts: object) -> None:
        with suppress(OSError):  # the log may be on the same full disk
            self._log.log(level, event, **facts)

    def _is_time_to_say(self, *, first: bool = True) -> bool:
        """Whether to log a problem now; ``first``: also if the problem has just begun."""
        now_s = self._clock()
        if self._said_at_s is None:
            self._said_at_s = now_s
            return first
        if now_s - self._said_at_s < REMIND_S:
            return False
        self._said_at_s = now_s
        return True


SHIP_INTERVAL_S = 1.0  # a batch of any size costs about a millisecond
FOLD_INTERVAL_S = 0.5
SYNC_INTERVAL_S = 1.0  # the maximum lost at a power failure
ADOPT_INTERVAL_S = 15.0
BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.5, 5.0  # short, so that a database that is back is noticed soon
PRUNE_INTERVAL_S = 3600.0
CLOSE_TIMEOUT_S = 10.0


def backoff_s(failures: int) -> float:
    """Return the wait after so many failures in a row: 0.5 s, doubled each time, at most 5 s."""
    return min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** (min(failures, 16) - 1))


class Ledger:
    """Stores every call, attempt and refusal, first in the spool, then in SQL; nothing is lost in between.

    ``call_started``, ``call_finished``, ``attempts_ended``, ``refused``, ``outage`` and ``named`` cost one ``write(2)``
    each, and never raise. All other work runs in tasks that ``start`` makes and ``close`` ends: shipping, keeping the
    spool on disk, adopting the spools of dead workers, adding up new rows, and pruning by ``retention``.
    """

    def __init__(
        self,
        database: Database,
        spool_dir: Path,
        worker: str,
        *,
        replica: str = "",
        retention: Retention = KEEP_ALL,
        prune_after_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        utc_now: Callable[[], datetime] = lambda: datetime.now(UTC),
        store: Store | None = None,
        clickhouse: "ClickHouseSink | None" = None,
    ) -> None:
        """Make ``spool_dir/worker``; no other process may ever use the same name. Does not connect yet.

        ``replica``: the name in the rows. ``prune_after_s``: from the start to the first pruning. ``store``: replaces
        the database. ``clickhouse``: also gets calls and attempts, independently.

        Raises:
            DatabaseUrlError: the URL is invalid.
            SpoolError: the spool cannot be written.

        """
        self._store = store or SqlStore(database)
        self.clock = SharedClock(utc_now, clock)
        self._began_s = clock()
        self._replica = replica
        self._spool_dir = spool_dir
        self.clickhouse = clickhouse
        completed = None if clickhouse is None else clickhouse.queue.add
        self._spool = Spool(spool_dir / folder_name(worker), now_s=clock(), completed=completed)
        self._shipper = Shipper(self._store, clock, self.clock.now, retention)
        self._backlog = Backlog(self._spool, self._shipper, clock)
        self._keeper = Keeper(self._spool, clock, utc_now, self._backlog.taken)
        self._folding = Folding(self._store, self._shipper, clock)
        self._prune_after_s = prune_after_s
        self._pruner = Pruning(self._store, retention, self._shipper, self.clock)
        self._closing = asyncio.Event()
        self._adopted = asyncio.Event()  # set when the spools of dead workers are in SQL
        self._tasks: list[asyncio.Task[None]] = []
        self._pruning: asyncio.Task[None] | None = None
        self._adding_up: asyncio.Task[None] | None = None
        self._measuring: asyncio.Task[None] | None = None
        self._unreadable_ends = 0  # in the last log line
        self._log = structlog.get_logger()

    @property
    def connected(self) -> bool:
        """Whether the database's last request succeeded, and no request is stalled."""
        return self._shipper.connected

    def watch(self) -> None:
        """Ping the database each second for a while, so that ``connected`` is also right for an idle gateway."""
        self._backlog.watch()

    @property
    def last_error(self) -> str | None:
        """Why the ledger is not connected; None: it is, or there was no request yet."""
        return self._shipper.last_error

    @property
    def pending(self) -> int:
        """Entries (calls, late attempts, and minutes of refusals) that are not in SQL yet."""
        return self._backlog.pending

    @property
    def oldest_pending_s(self) -> float | None:
        """The maximum age of pending entries, in seconds; None if there are none."""
        return self._backlog.oldest_s

    @property
    def answered_s_ago(self) -> float | None:
        """Seconds since the database last carried out a request; None if it never has."""
        return self._shipper.answered_s_ago

    @property
    def unspooled(self) -> int:
        """The number of entries that the disk refused."""
        return self._spool.unspooled

    @property
    def spool_problem(self) -> str | None:
        """Why rows would be lost with this process: the spool is ``missing`` or ``unwritable``; None: no problem."""
        return self._keeper.problem

    @property
    def is_away(self) -> bool:
        """Whether the database was asked and does not answer."""
        return not self._shipper.connected and (self._shipper.last_error is not None or self._shipper.stalled)

    @property
    def is_unrecorded(self) -> bool:
        """Whether neither the disk nor the database takes entries, so that a killed process loses those in memory."""
        return self._keeper.problem is not None and not self._shipper.connected

    @property
    def sums_stand_still_s(self) -> float | None:
        """For how many seconds new rows could not be added up although the database answers; None: no problem."""
        return self._folding.stands_still_s

    @property
    def sums_problem(self) -> str:
        """Why new rows cannot be added up."""
        return self._folding.problem

    @property
    def lost(self) -> int:
        """The number of entries that reached neither disk nor SQL."""
        return self._spool.lost

    @property
    def expired(self) -> int:
        """The number of rows that were left out, as they were too old when they arrived."""
        return self._shipper.expired

    @property
    def rejected(self) -> int:
        """The number of entries that were set aside, as the database rejected them."""
        return self._shipper.rejected

    def call_started(self, start: CallStart) -> None:
        """Record the start of a call, so that the call is known if the gateway dies."""
        self._spool.call_started(start)

    def call_finished(self, record: CallRecord) -> None:
        """Record a call and its attempts; all are on disk when this returns."""
        self._backlog.empty.clear()
        self._spool.call_finished(record)

    def attempts_ended(self, call_id: str, attempts: tuple[AttemptRecord, ...]) -> None:
        """Record attempts that were watched longer than their call."""
        self._backlog.empty.clear()
        self._spool.attempts_ended(call_id, attempts)

    def refused(self, refusals: tuple[RefusalRecord, ...]) -> None:
        """Record the refusals of a minute."""
        self._backlog.empty.clear()
        self._spool.refused(refusals)

    def outage(self, outage: OutageRecord) -> None:
        """Record that an outage has begun or ended."""
        self._backlog.empty.clear()
        self._spool.outage(outage)

    def named(self, names: tuple[StoredName, ...]) -> None:
        """Record names of resources at a provider; all are on disk when this returns."""
        self._backlog.empty.clear()
        self._spool.named(names)

    def unshipped(self) -> list[Shippable]:
        """Return the entries in memory that SQL may not have yet."""
        return self._backlog.unshipped()

    def open_call(self, call_id: str) -> CallStart | None:
        """Return the start of a call of this process that has not ended."""
        return self._spool.open_call(call_id)

    async def start(self) -> None:
        """Start shipping; dead workers' spools are adopted first. The database may be away."""
        self._tasks = [
            asyncio.create_task(self._repeat(self.flush, SHIP_INTERVAL_S), name="ledger.ship"),
            asyncio.create_task(self._repeat(self._keeper.keep, SYNC_INTERVAL_S), name="ledger.disk"),
            asyncio.create_task(self._repeat(self.adopt, ADOPT_INTERVAL_S), name="ledger.adopt"),
        ]
        self._adding_up = asyncio.create_task(self._repeat(self._folding.fold, FOLD_INTERVAL_S), name="ledger.fold")
        pruning = self._repeat(self.prune, PRUNE_INTERVAL_S, after_s=self._prune_after_s)
        self._pruning = asyncio.create_task(pruning, name="ledger.prune")
        self._measuring = asyncio.create_task(self._repeat(self.measure_clock, MEASURE_INTERVAL_S), name="ledger.clock")
        if self.clickhouse is not None:
            self.clickhouse.start()

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Ship the rest, for at most ``timeout_s``; entries that are left stay on disk for the next gateway.

        Entries that neither the database nor the disk takes are lost, and the log says how many.
        """
        self._closing.set()
        is_cancelled = False
        interrupted = [task for task in (self._pruning, self._adding_up, self._measuring) if task]
        for task in interrupted:  # each can continue at any time
            task.cancel()
        await asyncio.gather(*interrupted, return_exceptions=True)
        try:
            # With nothing to ship, a database that is away is not waited for: a request to it may hang.
            is_away = self._shipper.last_error is not None or self._shipper.stalled
            async with asyncio.timeout(0.0 if is_away and not self.pending else timeout_s):
                await asyncio.gather(*self._tasks)
                await self.flush()
                with suppress(TimeoutError):
                    async with asyncio.timeout(timeout_s / 2):
                        await self._folding.fold_rest()
        except (TimeoutError, LedgerError):
            is_cancelled = True
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._keeper.keep()
            if is_cancelled and self.pending:
                lost, folder = self._spool.only_in_memory, str(self._spool.folder)
                # Event ledger.closed_with_pending_rows: The process ended before all rows were in the database.
                # `pending` are in `spool`; `lost` are nowhere, as the disk refused them too.
                # Do: Start a gateway with the same `spool_dir`: it writes them. While a disk is full, free space before
                # you stop a gateway.
                self._log.warning(
                    "ledger.closed_with_pending_rows", pending=self.pending - lost, lost=lost, spool=folder
                )
            self._spool.close(remove=self.pending == 0)
            await self._store.aclose()
            if self.clickhouse is not None:
                await self.clickhouse.close()

    async def emptied(self) -> None:
        """Wait until everything recorded so far is in SQL."""
        if self.pending:
            await self._backlog.empty.wait()

    async def flush(self) -> None:
        """Ship everything that is in the spool now.

        Raises:
            DatabaseUnreachableError: the database cannot be reached.

        """
        await self._backlog.ship()

    async def adopt(self) -> None:
        """Ship the spools of dead workers; unfinished calls and attempts become ``interrupted``.

        Raises:
            DatabaseUnreachableError: the database cannot be reached; entries that were not shipped stay.

        """
        await adopt(self._spool_dir, self._shipper, None if self.clickhouse is None else self.clickhouse.queue)
        await self._write_ends()
        self._adopted.set()

    async def _write_ends(self) -> None:
        """Write the kept rows of ends whose processes were killed; forget the rows that are written.

        At a start write all of them, so that limits go on from their cost: a row that is written twice is stored once.
        """
        ends, written, unreadable = await self._store.kept_ends()
        if unreadable > self._unreadable_ends:
            # Event ledger.unreadable_ends: Rows of background responses that ended while their process was killed
            # cannot be read (`rows` of them): a later version of Holeshot has kept them. The others are written.
            # Do: Start a gateway of that version once: it writes them, within `response_ids_ttl_s`.
            self._log.warning("ledger.unreadable_ends", rows=unreadable)
        self._unreadable_ends = unreadable
        before = self.clock.now() - AFTER
        for name, row in ends.items():
            if not self._adopted.is_set() or row.started_at < before:
                self.call_finished(row)
                written.append(name)
        if written:
            await self.flush()
            await self._store.forget_ends(written)

    async def adopted(self) -> None:
        """Wait until the spools of dead workers are in SQL; a ledger that was not started does not wait."""
        if self._tasks:
            await self._adopted.wait()

    async def unended(self) -> list[StoredName]:
        """Return what ``ends.unended`` returns, over the connection that a start has opened already.

        Raises:
            DatabaseUnreachableError: the database cannot be reached.

        """
        return await self._store.unended(self.clock.now())

    async def fold(self) -> None:
        """Add up all rows in SQL now, for views that read sums; without this it takes about a second.

        Raises:
            DatabaseUnreachableError: the database cannot be reached.

        """
        await self._store.fold_all()

    async def remembered(self) -> list[HourlySum]:
        """Return the sums of the last day, without the last ten minutes.

        Raises:
            LedgerError: the database cannot be reached, or has no sums.

        """
        return await self._store.remembered(self.clock.now())

    async def lately(self) -> dict[str, dict[int, dict[str, float]]]:
        """Return the board's counts of the ten minutes before this process began: model → slot → field → amount.

        The spools of dead workers count, as for ``spent``.

        Raises:
            LedgerError: the database cannot be reached, or its schema is older.

        """
        await self.adopted()
        now = self.clock.now()
        return await self._store.lately(now, self._began(now))

    async def text_gaps(self) -> dict[str, list[float]]:
        """Return what ``Pruning.text_gaps`` returns.

        Raises:
            LedgerError: the database cannot be reached, or its schema is older.

        """
        return await self._pruner.text_gaps()

    async def spent(self) -> list[Spent]:
        """Return the dollars that racing had added today when this process began.

        The spools of dead workers count: a started ledger waits until they are in SQL.

        Raises:
            LedgerError: the database cannot be reached, or has no sums.

        """
        await self.adopted()
        now = self.clock.now()
        return await self._store.spent(now, self._began(now))

    async def used(self, since_s: Sequence[float], until: datetime | None = None) -> list[LimitUse]:
        """Return the usage of clients and models since each of ``since_s``, when this process began; as for ``spent``.

        ``until``: another end, by this machine's clock, which rows have, too. Waiting rows are stored before.

        Raises:
            LedgerError: the database cannot be reached, or its schema is older.

        """
        await self.adopted()
        until = await self._stored(until)
        return await self._store.used(since_s, self._shared(until), OwnRows(self._replica, until))

    async def used_by_payers(self, since_s: Sequence[float], until: datetime | None = None) -> list[LimitUse]:
        """Return the usage of teams and end users since each of ``since_s``, when this process began; as for ``spent``.

        ``until``: as for ``used``.

        Raises:
            LedgerError: the database cannot be reached, or its schema is older.

        """
        await self.adopted()
        return await self._store.used_by_payers(since_s, self._shared(await self._stored(until)))

    async def _stored(self, until: datetime | None) -> datetime:
        """Return ``until``, after the rows of ended calls are stored; None: this process's start, by its clock."""
        if until is None:
            return self._began(self.clock.utc_now())
        await self.flush()
        return until

    def _shared(self, at: datetime) -> datetime:
        """Convert an instant of this machine's clock to the clock that all replicas share."""
        return at + (self.clock.now() - self.clock.utc_now())

    async def spooled(self, since_s: Sequence[float]) -> SpoolSums:
        """Return the usage in rows that other processes left on this disk, including some that SQL has already."""
        return await asyncio.to_thread(spooled, self._spool_dir, self._spool.folder, self.clock.now(), since_s)

    def _began(self, now: datetime) -> datetime:
        """Return the start of this process, by the clock that shows ``now``."""
        return now - timedelta(seconds=self.clock.clock() - self._began_s)

    async def prune(self) -> None:
        """Delete rows that are too old, and make the next partitions, unless another replica does this.

        A failure is logged, and pruning is tried again after an hour; shipping continues.
        """
        if self.clock.ahead_s is None:
            await self.measure_clock()
        await self._pruner.prune()

    async def measure_clock(self) -> None:
        """Compare this process's clock with the database's, by which all shared work goes.

        Raises:
            DatabaseUnreachableError: the database cannot be reached.

        """
        asked_s = self.clock.clock()
        try:
            async with asyncio.timeout(PING_TIMEOUT_S):
                there = await self._store.now()
                if there is not None:
                    self.clock.note(there, asked_s)
                    self.clock.others_are_right = self.clock.is_far_off and await self._store.others_are_right(
                        self._replica
                    )
        except TimeoutError as error:
            raise DatabaseUnreachableError(f"the database did not tell its time within {PING_TIMEOUT_S:g} s") from error

    async def _repeat(self, action: Callable[[], Awaitable[None]], interval_s: float, *, after_s: float = 0.0) -> None:
        """Run ``action`` every ``interval_s``, first after ``after_s``, until closing; after failures wait longer."""
        failures, fault = 0, StandingFault(self.clock.clock)
        if after_s > 0.0:
            await pause(after_s, self._closing)
        while not self._closing.is_set():
            try:
                await action()
                failures = 0
                fault.end()
            except LedgerError:  # the shipper has logged it
                failures += 1
            except Exception as error:  # noqa: BLE001 - a bug in one round must not stop all later ones
                failures += 1
                if fault.is_due(type(error).__name__):
                    # Event ledger.task_failed: A round of the ledger's work failed. It is repeated.
                    # Do: It is a bug: report it with the trace.
                    self._log.exception("ledger.task_failed", task=getattr(action, "__name__", ""))
            await pause(backoff_s(failures) if failures else interval_s, self._closing)
