"""What a gateway learns from its ledger at the start: figures of the last day, and what was spent."""

import asyncio
from collections.abc import Callable

import structlog

from gateway.ledger.errors import LedgerError
from gateway.ledger.writer import Ledger
from gateway.limits.leases import Leases
from gateway.limits.recollected import spent_by_quota
from gateway.steering.steering import Steering

_SUMS_AT_ONCE = 2000  # take some milliseconds of the event loop
_SPENT_EVERY_S = 10.0  # it is tried to learn what was spent
_SPENT_WITHIN_S = 3.0  # of the start; a database that is away must not hold it up
_SUMS_AFTER_S = (0.0, 10.0, 60.0)  # the database may start together with the gateway

_log = structlog.get_logger(__name__)


class Recollection:
    """Loads from ``ledger`` what steering and limits knew before a restart. The database may be away."""

    def __init__(self, ledger: Ledger, steering: Steering, leases: Leases, *, unix_clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._steering = steering
        self._leases = leases
        self._unix_clock = unix_clock

    async def of_figures(self) -> None:
        """Load the ledger's sums of the last day into steering. No call waits for this."""
        for wait_s in _SUMS_AFTER_S:
            await asyncio.sleep(wait_s)
            try:
                sums = await self._ledger.remembered()
                for start in range(0, len(sums), _SUMS_AT_ONCE):
                    self._steering.recollect(sums[start : start + _SUMS_AT_ONCE])
                    await asyncio.sleep(0)
            except LedgerError as error:
                _log.info("steering.not_recollected", error=str(error))
            else:
                _log.debug("steering.recollected", models=len({each.model for each in sums}))
                return

    async def of_spending(self) -> bool:
        """Load what was spent today and this month, so that a restart does not begin the limits from zero.

        Return whether the database answered.
        """
        try:
            async with asyncio.timeout(_SPENT_WITHIN_S):
                rows = await self._ledger.spent()
        except (LedgerError, TimeoutError) as error:
            _log.warning(
                "limits.not_recollected",
                error=str(error) or type(error).__name__,
                hint="what was spent before the start is not counted yet, unless Redis knows it",
            )
            return False
        self._leases.recollect(spent_by_quota(rows, self._unix_clock()))
        return True

    async def of_spending_later(self) -> None:
        """Try again until the database answers."""
        while True:
            await asyncio.sleep(_SPENT_EVERY_S)
            if await self.of_spending():
                return
