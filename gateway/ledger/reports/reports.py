"""The reports of a gateway's ledger, as ``gateway.reports`` describes them."""

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from gateway.calls import CallStart
from gateway.ledger.entries import Shippable
from gateway.ledger.reports import calls, history, sums
from gateway.ledger.reports.reader import Reader
from gateway.reports import (
    By,
    CallsWanted,
    FoundCall,
    Gaps,
    HeatWanted,
    History,
    HistoryWanted,
    ReportsUnreachable,
    ReportTooSlow,
    Table,
    Window,
)

GAPS_KEPT = timedelta(minutes=1)
GAPS_PATIENCE_S = 1.0  # the leaderboard is more important than them


class LedgerReports:
    """Answers from the ledger's tables and, of what is not stored yet, from memory."""

    def __init__(
        self,
        reader: Reader,
        *,
        unshipped: Callable[[], Sequence[Shippable]],
        running: Callable[[str], CallStart | None],
        utc_now: Callable[[], datetime],
    ) -> None:
        """``unshipped`` are this process's records without rows, ``running`` the start of a call that has not ended."""
        self._reader = reader
        self._unshipped = unshipped
        self._running = running
        self._utc_now = utc_now
        self._has_calls = False
        self._gaps: Gaps = {}
        self._gaps_until = datetime.min.replace(tzinfo=UTC)
        self._reading_gaps: asyncio.Task[None] | None = None

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

    async def has_calls(self) -> bool | None:
        """Return whether there has ever been a call."""
        if not self._has_calls:
            try:
                self._has_calls = await calls.exist(self._reader, self._unshipped())
            except (ReportsUnreachable, ReportTooSlow):  # logged
                return None
        return self._has_calls

    async def history(self, wanted: HistoryWanted) -> History:
        """Return figures of deployments over time."""
        return await history.history(self._reader, wanted, self._minute())

    async def heat(self, wanted: HeatWanted) -> Table:
        """Return a figure by deployment, weekday and hour."""
        return await history.heat(self._reader, wanted, self._minute())

    async def race_value(self, window: Window, by: By) -> Table:
        """Return what racing saved and cost."""
        return await sums.race_value(self._reader, window, by, self._minute())

    async def refusals(self, window: Window) -> tuple[Table, Table]:
        """Return what was refused whom, and who tried keys that nobody has."""
        return await sums.refusals(self._reader, window, self._minute())

    async def usage(self, window: Window) -> Table:
        """Return what clients have used."""
        return await sums.usage(self._reader, window, self._minute())

    async def spent(self) -> Mapping[str | None, tuple[float, float]]:
        """Return what clients have spent today and this month."""
        return await sums.spent(self._reader, self._minute())

    async def gaps(self) -> Gaps:
        """Return the gaps between chunks, which are read once a minute; nobody waits for them but the first."""
        if self._reading_gaps is None or (self._reading_gaps.done() and self._utc_now() >= self._gaps_until):
            self._gaps_until = self._utc_now() + GAPS_KEPT
            self._reading_gaps = asyncio.create_task(self._read_gaps(), name="reports.gaps")
        if not self._gaps:
            await asyncio.wait([self._reading_gaps], timeout=GAPS_PATIENCE_S)
        return self._gaps

    async def _read_gaps(self) -> None:
        with suppress(ReportsUnreachable, ReportTooSlow):  # logged; the last ones are better than none
            self._gaps = await sums.gaps(self._reader)

    def _minute(self) -> datetime:
        """Return when this minute began: within it the same question has the same answer, and the same ETag."""
        return self._utc_now().replace(second=0, microsecond=0)

    async def aclose(self) -> None:
        """Close the connections."""
        if self._reading_gaps is not None:
            self._reading_gaps.cancel()
            await asyncio.gather(self._reading_gaps, return_exceptions=True)
        await self._reader.aclose()
