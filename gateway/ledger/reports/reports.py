"""The reports of a gateway's ledger, as ``gateway.reports`` describes them."""

import uuid
from collections.abc import Callable, Iterable
from datetime import datetime

from gateway.calls import CallStart
from gateway.ledger.entries import Shippable
from gateway.ledger.reports import calls, history
from gateway.ledger.reports.reader import Reader
from gateway.reports import CallsWanted, FoundCall, HeatWanted, History, HistoryWanted, Table


class LedgerReports:
    """Answers from the ledger's tables and, of what is not stored yet, from memory."""

    def __init__(
        self,
        reader: Reader,
        *,
        unshipped: Callable[[], Iterable[Shippable]],
        running: Callable[[str], CallStart | None],
        utc_now: Callable[[], datetime],
    ) -> None:
        """``unshipped`` are this process's records without rows, ``running`` the start of a call that has not ended."""
        self._reader = reader
        self._unshipped = unshipped
        self._running = running
        self._utc_now = utc_now

    async def calls(self, wanted: CallsWanted) -> Table:
        """Return a page of calls."""
        since = None if wanted.window is None else self._minute() - wanted.window.length
        return await calls.listed(self._reader, self._unshipped(), wanted, since)

    async def call(self, call_id: str) -> FoundCall | None:
        """Return one call."""
        try:
            call_id = str(uuid.UUID(call_id))
        except ValueError:
            return None
        return await calls.found(self._reader, self._unshipped(), self._running(call_id), call_id)

    async def history(self, wanted: HistoryWanted) -> History:
        """Return figures of deployments over time."""
        return await history.history(self._reader, wanted, self._minute())

    async def heat(self, wanted: HeatWanted) -> Table:
        """Return a figure by deployment, weekday and hour."""
        return await history.heat(self._reader, wanted, self._minute())

    def _minute(self) -> datetime:
        """Return when this minute began: within it the same question has the same answer, and the same ETag."""
        return self._utc_now().replace(second=0, microsecond=0)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._reader.aclose()
