"""The reports of a gateway's ledger, as ``gateway.reports`` describes them."""

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import msgspec

from gateway.alerts.sources.slowdowns import Slowdown
from gateway.calls import CallStart
from gateway.ledger.entries import Shippable
from gateway.ledger.reports import alerts, calls, history, slowdowns, sums
from gateway.ledger.reports.kept import KEPT_S, Kept
from gateway.ledger.reports.reader import Reader
from gateway.ledger.reports.replays import Replays
from gateway.ledger.targets import reading
from gateway.reports import (
    By,
    CallsWanted,
    FoundCall,
    Gaps,
    HeatWanted,
    History,
    HistoryWanted,
    ReplayWanted,
    ReportsUnreachable,
    ReportTooSlow,
    SlowdownsWanted,
    Table,
    Window,
)
from gateway.targets.burn import Burn
from gateway.targets.standing import Standing
from gateway.targets.target import Target

GAPS_KEPT = timedelta(minutes=1)
GAPS_PATIENCE_S = 1.0  # the leaderboard is more important than them


class LedgerReports:
    """Answers from the ledger's tables and, of what is not stored yet, from memory."""

    def __init__(
        self,
        reader: Reader,
        *,
        replays: Replays,
        unshipped: Callable[[], Sequence[Shippable]],
        running: Callable[[str], CallStart | None],
        utc_now: Callable[[], datetime],
        clock: Callable[[], float],
        kept_s: float = KEPT_S,
        targets: Callable[[], Sequence[Target]] = tuple,
    ) -> None:
        """``unshipped`` are this process's records without rows, ``running`` the start of a call that has not ended.

        ``targets`` returns those that are configured now.

        Reports that are dear are kept for ``kept_s`` seconds of ``clock``.
        """
        self._reader = reader
        self._replays = replays
        self._unshipped = unshipped
        self._running = running
        self._utc_now = utc_now
        self._targets = targets
        self._kept = Kept(clock=clock, kept_s=kept_s)
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
        now = self._minute()
        return await self._kept.get((wanted, now), lambda: history.history(self._reader, wanted, now))

    async def slowdowns(self, wanted: SlowdownsWanted) -> Table:
        """Return when deployments were slower than usual."""
        return await slowdowns.slowdowns(self._reader, wanted, self._minute())

    async def heat(self, wanted: HeatWanted) -> Table:
        """Return a figure by deployment, weekday and hour."""
        now = self._minute()
        return await self._kept.get((wanted, now), lambda: history.heat(self._reader, wanted, now))

    async def race_value(self, window: Window, by: By) -> Table:
        """Return what racing saved and cost."""
        now = self._minute()
        return await self._kept.get((window, by, now), lambda: sums.race_value(self._reader, window, by, now))

    async def replay(self, wanted: ReplayWanted) -> msgspec.Raw:
        """Return what other settings would have done with a model's calls."""
        return await self._replays.get(wanted)

    async def refusals(self, window: Window) -> tuple[Table, Table]:
        """Return what was refused whom, and who tried keys that nobody has."""
        return await sums.refusals(self._reader, window, self._minute())

    async def usage(self, window: Window) -> Table:
        """Return what clients have used."""
        return await sums.usage(self._reader, window, self._minute())

    async def spent(self) -> Mapping[str | None, tuple[float, float]]:
        """Return what clients have spent today and this month."""
        return await sums.spent(self._reader, self._minute())

    async def alerts(self) -> Table:
        """Return the alerts that are open, and the newest of the others."""
        return await alerts.listed(self._reader)

    async def open_slowdowns(self) -> Sequence[Slowdown]:
        """Return the slowdowns that have not ended."""
        return await slowdowns.open_slowdowns(self._reader)

    async def gaps(self) -> Gaps:
        """Return the gaps between chunks, which are read once a minute; nobody waits for them but the first."""
        if self._reading_gaps is None or (self._reading_gaps.done() and self._utc_now() >= self._gaps_until):
            self._gaps_until = self._utc_now() + GAPS_KEPT
            self._reading_gaps = asyncio.create_task(self._read_gaps(), name="reports.gaps")
        if not self._gaps:
            await asyncio.wait([self._reading_gaps], timeout=GAPS_PATIENCE_S)
        return self._gaps

    async def targets(self) -> Sequence[Standing]:
        """Return where each target stands."""
        targets, now = tuple(self._targets()), self._minute()
        ask = self._reader.run
        return await self._kept.get((targets, now), lambda: reading.standings(ask, self._reader.words, targets, now))

    async def burns(self, windows_s: Sequence[int]) -> Sequence[Burn]:
        """Return how fast the budget of each target was spent."""
        targets, now, windows = tuple(self._targets()), self._minute(), tuple(windows_s)
        ask = self._reader.run
        return await self._kept.get(
            (targets, now, windows), lambda: reading.burns(ask, self._reader.words, targets, windows, now)
        )

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
        await self._kept.aclose()
        await self._replays.aclose()
        await self._reader.aclose()
