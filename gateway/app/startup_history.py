"""Loads the ledger's figures at the start: those of the last day, and the use of limits in their windows."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from datetime import datetime

import structlog

from gateway.api import InBackground
from gateway.core.calls import LimitUse
from gateway.core.tasks import end_if_cancelled
from gateway.ledger import Ledger, LedgerError
from gateway.limits import Leases, Zones, began_s, spent_by_owners, used_by_quota
from gateway.racing import PausesByDeployment
from gateway.steering import Spending, Steering

_SUMS_PER_SLICE = 2000  # in some milliseconds of the event loop
_SPENDING_RETRY_S = 10.0
_SPENDING_TIMEOUT_S = 3.0  # a database that is away must not delay the start
SPOOL_WITHIN_S = 3.0  # the longest wait of a start for rows on disk: half a GB
FIGURES_WITHIN_S = 1.0  # the longest wait of a start for figures; then the first calls go on without them
_FIGURES_AFTER_S = (0.0, 10.0, 60.0)  # the database may start together with the gateway
_PAYERS_AGAIN_S = 60.0  # payers have many rows: a database that took too long is asked less often

_log = structlog.get_logger(__name__)


class StartupHistory:
    """Loads from ``ledger`` the facts for steering and limits from before a restart. The database may be away."""

    def __init__(
        self,
        ledger: Ledger,
        steering: Steering,
        leases: Leases,
        spending: Spending,
        *,
        teams: Callable[[], Mapping[str, str]],
        payer_of: Callable[[], Callable[[str], str]],
        unix_clock: Callable[[], float],
        zones: Callable[[], Zones] = Zones,
        board_is_shared: bool = False,
        has_answered: Callable[[], Callable[..., None]] = lambda: lambda *_: None,
    ) -> None:
        """``teams`` returns the team of each client, by the client's name; ``payer_of`` that method of the fleet.

        ``zones`` returns the zones of the limits' windows.

        ``has_answered`` returns the fleet's method of this name, for the names in the ledger. ``board_is_shared``: the
        last minutes are on a board in Redis, by other replicas or an earlier process of this one.
        """
        self._board_is_shared = board_is_shared
        self._tried = asyncio.Event()
        self._payers_tried = asyncio.Event()
        self._payers_tried.set()  # no task has asked
        self._by_quota: Mapping[str, float] = {}
        self._of_payers: Mapping[str, float] = {}
        self._added: Mapping[str, float] = {}  # of ``_by_quota``, for limits set at run time
        self._added_payers: Mapping[str, float] = {}  # of ``_of_payers``
        self._handed_over: Mapping[str, float] = {}  # the least use of limits that were set again
        self._in_background: Mapping[str, float] = {}
        self._adding = asyncio.Lock()
        self._is_told = False  # whether the database has told the use by clients
        self._zones = zones
        self._attempts: int | None = None
        self._teams = teams
        self._payer_of = payer_of
        self._has_answered = has_answered
        self._spending = spending
        self._ledger = ledger
        self._steering = steering
        self._leases = leases
        self._unix_clock = unix_clock

    async def load_figures(self) -> None:
        """Load the figures of the last day into steering: without a shared board also those of the last minutes."""
        for wait_s in _FIGURES_AFTER_S:
            await asyncio.sleep(wait_s)
            try:
                sums = await self._ledger.remembered()
                lately = {} if self._board_is_shared else await self._ledger.lately()
                self._has_answered()(*dict.fromkeys(each.model for each in sums))
            except LedgerError as error:
                # Event steering.not_recollected: The last day's figures could not be read at the start. Steering learns
                # from new calls, and tries again.
                # Do: Nothing.
                _log.info("steering.not_recollected", error=str(error))
                self._tried.set()
            else:
                for start in range(0, len(sums), _SUMS_PER_SLICE):
                    self._steering.recollect(sums[start : start + _SUMS_PER_SLICE])
                    await asyncio.sleep(0)
                self._attempts = round(sum(each.n for each in sums if each.metric == "n"))
                self._attempts += self._steering.recall(lately)
                self._tried.set()
                # Event steering.recollected: The last day's figures were read at the start: of so many `attempts` at
                # deployments of so many `models`. Without Redis, those of the last ten minutes are among them.
                # Do: Nothing.
                models = {each.model for each in sums} | lately.keys()
                _log.info("steering.recollected", attempts=self._attempts, models=len(models))
                return

    async def tried(self, most_s: float = FIGURES_WITHIN_S) -> None:
        """Wait until the figures are read, or could not be read; at most so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                await self._tried.wait()
                await self._payers_tried.wait()

    @property
    def attempts(self) -> int | None:
        """The attempts before the start that steering knows; None while they are not read."""
        return self._attempts

    async def load_pauses(self, pauses: PausesByDeployment) -> None:
        """Load the pauses in the text of each deployment's latest streams. No call waits for this."""
        with suppress(LedgerError):  # then pauses are learnt again
            pauses.refill(await self._ledger.text_gaps())

    async def load_spending(self) -> bool:
        """Load the use in the running windows of limits, so that a restart does not reset the limits.

        Return whether the database answered.
        """
        unix_s, zones = self._unix_clock(), self._zones()  # before the answer, which may be of a day that ends
        try:
            async with asyncio.timeout(_SPENDING_TIMEOUT_S):
                rows = await self._ledger.spent()
                used = await self._ledger.used(began_s(zones, unix_s))
        except (LedgerError, TimeoutError) as error:
            # Event limits.not_recollected: What was spent before the start could not be read yet, so limits in dollars
            # may allow too much: of it only what rows in the spool have cost is counted.
            # Do: Make the database reachable.
            _log.warning(
                "limits.not_recollected",
                error=str(error) or type(error).__name__,
                hint="of what was spent before the start only rows that wait on this disk count, or what Redis knows",
            )
            return False
        payer_of = self._payer_of()
        self._is_told = True
        self._by_quota = {**used_by_quota(used, unix_s, self._teams(), payer_of, zones), **self._added}
        self._count()
        self._spending.recollect(rows, unix_s, payer_of)
        return True

    async def count_spooled(self) -> None:
        """Count the rows on disk in the limits. The database's later answer includes them, and replaces the counts."""
        unix_s, zones = self._unix_clock(), self._zones()
        waiting = await self._ledger.spooled(began_s(zones, unix_s))
        teams, payer_of = self._teams(), self._payer_of()
        used: list[list[LimitUse]] = [[], []]
        for each in waiting.used:
            used[each.team is not None or each.end_user is not None].append(each)
        self._of_payers = self._of_payers or used_by_quota(used[True], unix_s, teams, payer_of, zones)
        if not self._is_told:
            self._by_quota = used_by_quota(used[False], unix_s, teams, payer_of, zones)
            self._spending.recollect(waiting.spent, unix_s, payer_of)
        self._count()

    def _count(self) -> None:
        """Count everything known to be spent in the limits."""
        total = dict(self._of_payers)
        for more in (self._by_quota, self._in_background):
            for key, usd in more.items():
                total[key] = total.get(key, 0.0) + usd
        for key, usd in self._handed_over.items():
            total[key] = max(total.get(key, 0.0), usd)
        self._leases.recollect(total)

    def count_background(self, calls: Iterable[tuple[InBackground, float]]) -> None:
        """Count in the limits so many US dollars for each response that ran in the background at the start."""
        each = [(begun.owners, begun.ran_as, usd, begun.since_s) for begun, usd in calls]
        self._in_background = spent_by_owners(each, self._unix_clock(), self._payer_of(), self._zones())
        self._count()

    async def load_payers(self, names: Collection[str]) -> None:
        """Load the use by teams and end users, until the database answers. Reading the rows may take seconds.

        ``names``: the limits that a team or an end user has.
        """
        self._payers_tried.clear()
        after_s = _SPENDING_RETRY_S
        while True:
            unix_s, zones = self._unix_clock(), self._zones()
            try:
                rows = await self._ledger.used_by_payers(began_s(zones, unix_s, names))
            except LedgerError as error:
                # Event limits.payers_not_recollected: What teams and end users had spent before the start could not be
                # read yet, so their limits in dollars may allow too much. It is tried again.
                # Do: Make the database reachable. If its answer takes longer than 10 seconds, give it more memory, or
                # keep fewer rows.
                _log.warning("limits.payers_not_recollected", error=str(error))
            else:
                self._of_payers = {**used_by_quota(rows, unix_s, self._teams(), zones=zones), **self._added_payers}
                self._count()
                return
            finally:
                self._payers_tried.set()
            end_if_cancelled()
            await asyncio.sleep(after_s)
            after_s = _PAYERS_AGAIN_S

    def hand_over(self, used: Mapping[str, float]) -> None:
        """Let the quotas of these keys go on from their use here, until ``count_added`` reads a higher use.

        The ledger's use is lower if a day in another zone began later: the use on the former zone's date still counts.
        """
        if used:
            self._handed_over = {**self._handed_over, **used}
            self._count()

    async def count_added(self, counted: Collection[str], names: Collection[str], until: datetime) -> None:
        """Count the earlier use in the windows of limits that are set or changed at run time.

        Running calls count in the limits that were set when they began. ``counted``: the keys of the quotas that count
        since the start, to which nothing is added. ``names``: the limits of teams and end users, if any of these are
        new. ``until``: when the limits were set: calls that began later are counted by the limits themselves.
        """
        unix_s, payers_used = self._unix_clock(), list[LimitUse]()
        async with self._adding:  # a limit set later includes this use
            while True:
                try:
                    zones = self._zones()
                    used = await self._ledger.used(began_s(zones, unix_s), until)
                    if names:
                        payers_used = await self._ledger.used_by_payers(began_s(zones, unix_s, names), until)
                    spent = None if self._is_told else await self._ledger.spent()  # None: there was a limit before
                except LedgerError as error:
                    # Event limits.not_counted_before: A limit was set at run time, and what was used before in its
                    # window could not be read yet, so that it may allow too much. It is tried again.
                    # Do: Make the database reachable.
                    _log.warning("limits.not_counted_before", error=str(error))
                else:
                    teams, payer_of = self._teams(), self._payer_of()
                    by_quota = used_by_quota(used, unix_s, teams, payer_of, zones)
                    if spent is not None and not self._is_told:
                        self._spending.recollect(spent, unix_s, payer_of)
                        self._is_told = True
                    self._by_quota = _with(self._by_quota, by_quota, counted)
                    if names:
                        by_quota = used_by_quota(payers_used, unix_s, teams, zones=zones)
                        self._of_payers = _with(self._of_payers, by_quota, counted)
                    # Until the database answers, the start's own reading has a lower use of these limits.
                    self._added = _kept(self._added, self._by_quota, counted)
                    if names:
                        self._added_payers = _kept(self._added_payers, self._of_payers, counted)
                    self._count()
                    return
                end_if_cancelled()
                await asyncio.sleep(_SPENDING_RETRY_S)

    async def retry_spending(self, after_s: float = _SPENDING_RETRY_S) -> None:
        """Try in ``after_s`` seconds, and again until the database answers."""
        while True:
            await asyncio.sleep(after_s)
            if await self.load_spending():
                return
            end_if_cancelled()
            after_s = _SPENDING_RETRY_S


def _with(before: Mapping[str, float], found: Mapping[str, float], counted: Collection[str]) -> dict[str, float]:
    """Return the use by the key of the quota: ``before`` for keys that count already, ``found`` for others."""
    return {
        **{key: amount for key, amount in found.items() if key not in counted},
        **{key: amount for key, amount in before.items() if key in counted},
    }


def _kept(before: Mapping[str, float], now: Mapping[str, float], counted: Collection[str]) -> dict[str, float]:
    return {**before, **{key: amount for key, amount in now.items() if key not in counted}}
