"""The ledger as the gateway uses it: records are on disk at once, and in SQL about a second later."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import structlog

from gateway.attempt_records import AttemptRecord
from gateway.calls import CallRecord, CallStart, HourlySum, Spent
from gateway.ledger.adoption import adopt
from gateway.ledger.backlog import Backlog
from gateway.ledger.entries import Shippable
from gateway.ledger.errors import LedgerError
from gateway.ledger.folders import folder_name
from gateway.ledger.keeper import Keeper
from gateway.ledger.pruning import Pruning
from gateway.ledger.retention import KEEP_ALL, Retention
from gateway.ledger.shipper import Shipper
from gateway.ledger.spool import Spool
from gateway.ledger.store import SqlStore, Store
from gateway.outage_records import OutageRecord
from gateway.refusal_records import RefusalRecord

SHIP_INTERVAL_S = 1.0  # a batch of any size costs about a millisecond
SYNC_INTERVAL_S = 1.0  # the maximum lost at a power failure
ADOPT_INTERVAL_S = 15.0
BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.5, 5.0  # so a database that is back is noticed soon
PRUNE_INTERVAL_S = 3600.0
CLOSE_TIMEOUT_S = 10.0


def backoff_s(failures: int) -> float:
    """Return the wait after so many failures in a row: 0.5 s, doubled each time, at most 5 s."""
    return min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** (min(failures, 16) - 1))


class Ledger:
    """Stores every call and attempt, and refusals, first in the spool, then in SQL; nothing is lost in between.

    ``call_started``, ``call_finished``, ``attempts_ended``, ``refused`` and ``outage`` cost one ``write(2)`` each, and
    never raise. All else runs in tasks that ``start`` makes and ``close`` ends: shipping, keeping the spool on disk,
    adopting the spools of dead workers, and pruning by ``retention``.
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
            DatabaseUrlError: ``url`` is invalid.
            SpoolError: the spool cannot be written.

        """
        self._store = store or SqlStore(url)
        self._utc_now = utc_now
        self._spool_dir = spool_dir
        self._spool = Spool(spool_dir / folder_name(worker), now_s=clock())
        self._shipper = Shipper(self._store, clock, utc_now, retention)
        self._backlog = Backlog(self._spool, self._shipper, clock)
        self._keeper = Keeper(self._spool, clock, utc_now, self._backlog.taken)
        self._pruner = Pruning(self._store, retention, self._shipper, utc_now)
        self._closing = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._pruning: asyncio.Task[None] | None = None
        self._log = structlog.get_logger()

    @property
    def connected(self) -> bool:
        """Whether the database's last request succeeded, and none is stalled."""
        return self._shipper.connected

    def watch(self) -> None:
        """Ping the database each second for a while, so that ``connected`` is also true for an idle gateway."""
        self._backlog.watch()

    @property
    def last_error(self) -> str | None:
        """Why it is not connected."""
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
        """Seconds since the database last did what it was asked; None if it never has."""
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
    def lost(self) -> int:
        """The number of entries that reached neither disk nor SQL."""
        return self._spool.lost

    @property
    def expired(self) -> int:
        """The number of rows left out because they were too old when they arrived."""
        return self._shipper.expired

    @property
    def rejected(self) -> int:
        """The number of entries set aside because the database rejected them."""
        return self._shipper.rejected

    def call_started(self, start: CallStart) -> None:
        """Record the start of a call, so that it is known if the gateway dies."""
        self._spool.call_started(start)

    def call_finished(self, record: CallRecord) -> None:
        """Record a call and its attempts: on disk when this returns."""
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
        self._pruning = asyncio.create_task(self._repeat(self.prune, PRUNE_INTERVAL_S), name="ledger.prune")

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Ship the rest, for at most ``timeout_s``; what is left stays on disk and is adopted by the next gateway.

        What neither the database nor the disk takes is lost, and the log says how much.
        """
        self._closing.set()
        left = False
        if self._pruning is not None:  # it can continue at any time
            self._pruning.cancel()
            await asyncio.gather(self._pruning, return_exceptions=True)
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*self._tasks)
                await self.flush()
        except (TimeoutError, LedgerError):
            left = True
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._keeper.keep()
            if left:
                lost, folder = self._spool.only_in_memory, str(self._spool.folder)
                self._log.warning(
                    "ledger.closed_with_pending_rows", pending=self.pending - lost, lost=lost, spool=folder
                )
            self._spool.close(remove=self.pending == 0)
            await self._store.aclose()

    async def emptied(self) -> None:
        """Wait until everything recorded so far is in SQL."""
        if self.pending:
            await self._backlog.empty.wait()

    async def flush(self) -> None:
        """Ship everything that is in the spool now.

        Raises:
            DatabaseUnreachableError: the database is away.

        """
        await self._backlog.ship()

    async def adopt(self) -> None:
        """Ship the spools of dead workers; what had not ended there becomes ``interrupted``.

        Raises:
            DatabaseUnreachableError: the database is away; what was not shipped stays.

        """
        await adopt(self._spool_dir, self._shipper)

    async def remembered(self) -> list[HourlySum]:
        """Return the sums of the last day, without the last ten minutes.

        Raises:
            LedgerError: the database is away, or has no sums.

        """
        return await self._store.remembered(self._utc_now())

    async def spent(self) -> list[Spent]:
        """Return what clients have spent today and this month.

        Raises:
            LedgerError: the database is away, or has no sums.

        """
        return await self._store.spent(self._utc_now())

    async def prune(self) -> None:
        """Delete rows that are too old, and make the next partitions, unless another replica does.

        An obstacle is logged once, and pruning is tried again an hour later; shipping continues.
        """
        await self._pruner.prune()

    async def _repeat(self, action: Callable[[], Awaitable[None]], interval_s: float) -> None:
        """Run ``action`` every ``interval_s`` until closing; after failures wait longer each time."""
        failures = 0
        while not self._closing.is_set():
            try:
                await action()
                failures = 0
            except LedgerError:  # the shipper has logged it
                failures += 1
            except Exception:  # noqa: BLE001 - a bug in one round must not stop all later ones
                failures += 1
                self._log.exception("ledger.task_failed", task=getattr(action, "__name__", ""))
            pause_s = backoff_s(failures) if failures else interval_s
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._closing.wait()
