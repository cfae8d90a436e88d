"""What one process at a time does for the ledger: deletes rows that are too old, and adds up new ones."""

from collections.abc import Callable
from datetime import timedelta

import structlog

from gateway.core.log import StandingFault
from gateway.ledger.clock import SharedClock
from gateway.ledger.errors import DatabaseUnreachableError
from gateway.ledger.folding import FULL
from gateway.ledger.retention import Retention
from gateway.ledger.shipper import Shipper
from gateway.ledger.store import Store

FOLD_INTERVAL_S = 0.5
ADOPT_INTERVAL_S = 15.0

# Deletes rows that are too old, in one of the replicas.


JUMP = timedelta(seconds=60)  # of this machine's clock, ahead of what has passed since the start


class Pruning:
    """Prunes ``store`` by ``retention``; ``shipper`` knows whether the database is available."""

    def __init__(
        self,
        store: Store,
        retention: Retention,
        shipper: Shipper,
        shared: SharedClock,
    ) -> None:
        self._store = store
        self._retention = retention
        self._shipper = shipper
        self._shared = shared
        self._began_at = shared.utc_now() - timedelta(seconds=shared.clock())
        self._fault = StandingFault(shared.clock)

    async def text_gaps(self) -> dict[str, list[float]]:
        """Return the longest gap of the text of each deployment's latest 300 streams, in milliseconds, the latest last.

        Of the last day, or where that had very many streams of the last hour.

        Raises:
            LedgerError: the database is away, or its schema is older.

        """
        return await self._store.text_gaps(self._shared.now())

    async def prune(self) -> None:
        """Delete rows that are too old, and make the next partitions, unless another replica does.

        A failure is logged, and pruning is tried again an hour later; shipping continues.
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
                # Do: Run `holeshot prune` as the tables' owner, for example each night.
                structlog.get_logger().warning(
                    "ledger.not_pruned", cause=str(error), hint="holeshot prune, as the tables' owner"
                )
            return
        self._fault.end()
        if rows and any(rows.values()):
            # Event ledger.pruned: Rows older than the `ledger.keep_…` settings were deleted: how many, by table.
            # Do: Nothing.
            structlog.get_logger().info("ledger.pruned", **rows)


# Adds up new rows, in one of the processes that ship.

REST_S = 0.7  # the age of the oldest new row, for the last process to add up: it has prepared the costliest part
TAKE_OVER_S = 1.0  # for the others, which check half as often: that process seems to have gone
EAGER_S = 10.0  # after rows of its own, a process checks often for this time; else as often as for dead workers
IDLE_LOOKS = 4  # checks without work, after which a process counts among the others


class Folding:
    """Adds up new rows in ``store``, unless another process does; ``shipper`` has the time of the last stored rows."""

    def __init__(self, store: Store, shipper: Shipper, clock: Callable[[], float]) -> None:
        self._store = store
        self._shipper = shipper
        self._clock = clock
        self._since = 0
        self._idle = IDLE_LOOKS  # checks without work; below the limit it was the last to add up
        self._looked_at_s: float | None = None
        self._fault = StandingFault(clock)

    async def fold(self) -> None:
        """Add up new rows if they are due. A failure is logged once an hour; shipping continues."""
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
            self._since = 0  # it may be another server when it is back
            self._say(str(error))
        else:
            self._fault.end()

    async def fold_rest(self) -> None:
        """Add up all new rows, of this process and others, before it ends."""
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

    def _say(self, problem: str) -> None:
        if self._shipper.connected and self._fault.is_due(problem):
            # Event ledger.not_folded: New rows could not be added up (`cause`): figures made of sums stand still. Rows
            # are stored all the same, and count later.
            # Do: Run `holeshot migrate` if the schema is old. Else give the gateway's role the right to insert calls.
            structlog.get_logger().warning(
                "ledger.not_folded", cause=problem, hint="rows are stored, and are added up as soon as it is possible"
            )
