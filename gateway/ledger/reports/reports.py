"""The reports of a gateway's ledger, with the interface of ``gateway.core.reports``."""

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, TypeVar

import msgspec
import structlog

from gateway.alerts import ModelHour, OpenSlowdown, StatedModel
from gateway.core import processes
from gateway.core.addresses import Address, text_of
from gateway.core.calls import CallStart
from gateway.core.reports import (
    RETRY_S,
    By,
    CallsFilter,
    DeploymentHistory,
    FoundCall,
    Gaps,
    HeatFilter,
    HistoryFilter,
    ReplayWanted,
    ReportsUnreachable,
    ReportTooSlow,
    SlowdownsWanted,
    SoleUser,
    Table,
    Window,
)
from gateway.core.targets import Burn, Standing, Target
from gateway.ledger.entries import Shippable
from gateway.ledger.reports import calls, history, incidents
from gateway.ledger.reports.reader import Reader
from gateway.ledger.targets import counting

# Results of reports, shared by all viewers of a page: each report is queried once, and kept for some seconds.

KEPT_S = 5.0  # the page asks every 15 or 30 seconds
MOST_KEPT = 64  # results, of a few hundred kB at most
T = TypeVar("T")


class TtlCache:
    """A cache of report results by query.

    Concurrent requests with one key share a query; if one caller is cancelled, the query goes on for the others.
    """

    def __init__(self, *, clock: Callable[[], float], kept_s: float = KEPT_S, times: float | None = None) -> None:
        """``clock``: monotonic seconds. A result is kept for ``kept_s``, or ``times`` the query's duration if less."""
        self._clock = clock
        self._kept_s = kept_s
        self._times = times
        self._answers: dict[Hashable, _Answer] = {}  # the oldest first

    async def get(self, key: Hashable, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the cached result for ``key``; without one, the result of ``ask``.

        Raises:
            Exception: any error of ``ask``; the next request asks again.

        """
        answer = self._answers.get(key)
        if answer is None or self._is_stale(answer):
            self._make_room()
            answer = self._answers[key] = _Answer(asyncio.create_task(ask(), name="reports.ask"), self._clock)
        answer.waiting += 1
        try:
            return await asyncio.shield(answer.task)
        finally:
            answer.waiting -= 1
            if not answer.waiting and not answer.task.done():
                answer.task.cancel()
                if self._answers.get(key) is answer:
                    del self._answers[key]

    async def aclose(self) -> None:
        """Cancel running queries, and forget all results."""
        tasks = [answer.task for answer in self._answers.values()]
        self._answers.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _is_stale(self, answer: "_Answer") -> bool:
        if not answer.task.done():
            return False
        failed = answer.task.cancelled() or answer.task.exception() is not None
        kept_s = self._kept_s if self._times is None else min(self._kept_s, self._times * answer.took_s)
        return failed or self._clock() - answer.asked_at >= kept_s

    def _make_room(self) -> None:
        ended = [key for key, answer in self._answers.items() if answer.task.done()]
        stale = [key for key in ended if self._is_stale(self._answers[key])]
        for key in stale or ended[: max(0, len(self._answers) - MOST_KEPT + 1)]:
            del self._answers[key]


class _Answer:
    __slots__ = ("_clock", "asked_at", "task", "took_s", "waiting")

    def __init__(self, task: asyncio.Task[Any], clock: Callable[[], float]) -> None:
        self.task = task
        self._clock = clock
        self.asked_at = clock()
        self.took_s = inf  # until it has ended
        self.waiting = 0
        task.add_done_callback(self._ended)

    def _ended(self, _: asyncio.Task[Any]) -> None:
        self.took_s = self._clock() - self.asked_at


# The effect of other settings, for the page: replayed in a child process, and kept for some minutes.

REPLAYS_KEPT_S = 300.0  # a week's figures hardly change in this time, and are expensive
KEPT_TIMES = 10.0  # times a replay's duration, if shorter: a young ledger's figures change soon, in a second or two
TIMEOUT_S = 60.0
TURN_S = 8.0  # one replay runs at a time; a request that waits longer fails, to be repeated
MOST_CALLS = 20_000  # calls of a model that are read: enough for the tail, and some seconds of one processor
_CHILD = "gateway.cli.replaying"
_AWAY = "the ledger cannot be read, so nothing can be replayed now; the gateway's log says why"


class ReplayRunner:
    """Runs replays in a child process at low priority, so that no replay delays a call."""

    def __init__(
        self, url: str | Address, *, clock: Callable[[], float], kept_s: float = REPLAYS_KEPT_S, turn_s: float = TURN_S
    ) -> None:
        """``url``: of the ledger. ``turn_s``: the longest wait for replays before this one."""
        self._turn_s = turn_s
        self._url = url
        self._kept = TtlCache(clock=clock, kept_s=kept_s, times=KEPT_TIMES)
        self._turn = asyncio.Semaphore(1)
        self._log = structlog.get_logger()

    async def get(self, wanted: ReplayWanted) -> msgspec.Raw:
        """Return a replay's result as JSON.

        Raises:
            ReportsUnreachable: the ledger cannot be read.
            ReportTooSlow: the replay took too long, and was stopped.

        """
        return await self._kept.get(wanted, lambda: self._ask(wanted))

    async def aclose(self) -> None:
        """Stop the running replay."""
        await self._kept.aclose()

    async def _ask(self, wanted: ReplayWanted) -> msgspec.Raw:
        request = {
            "url": text_of(self._url),
            "window": wanted.window.value,
            "window_s": wanted.window.length.total_seconds(),
            "model": wanted.model,
            "without": wanted.without,
            "budgets": wanted.budgets,
            "most": MOST_CALLS,
            "busiest": True,
        }
        try:
            async with asyncio.timeout(self._turn_s):
                await self._turn.acquire()
        except TimeoutError as error:
            raise ReportTooSlow(
                f"other replays have run for {self._turn_s:g} s: ask again soon", headers={"retry-after": str(RETRY_S)}
            ) from error
        try:
            written = await self._run(msgspec.json.encode(request))
        finally:
            self._turn.release()
        answer: dict[str, Any] = msgspec.json.decode(written, type=dict[str, msgspec.Raw])
        if "unreachable" in answer:
            self._log.warning("report.failed", cause=msgspec.json.decode(answer["unreachable"]))
            raise ReportsUnreachable(_AWAY, headers={"retry-after": str(RETRY_S)})
        return msgspec.Raw(written)

    async def _run(self, request: bytes) -> bytes:
        child = await asyncio.create_subprocess_exec(
            *processes.command(_CHILD),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=processes.environment(),
        )
        try:
            async with asyncio.timeout(TIMEOUT_S):
                written, complaint = await child.communicate(request)
        except TimeoutError as error:
            self._log.warning("report.too_slow", limit_s=TIMEOUT_S, sql=None)
            raise ReportTooSlow(f"the replay took longer than {TIMEOUT_S:g} s: ask for a shorter window") from error
        finally:
            if child.returncode is None:
                with suppress(ProcessLookupError):
                    child.kill()
                await child.wait()
        if child.returncode or not written:
            # Event report.child_failed: The process of a replay for the page ended with `code`; `said` is the end of
            # its standard error.
            # Do: If memory ran out, ask for a shorter window. Else report it.
            self._log.error(
                "report.child_failed", code=child.returncode, said=complaint[-2000:].decode(errors="replace")
            )
            raise ReportsUnreachable(_AWAY, headers={"retry-after": str(RETRY_S)})
        return written


GAPS_KEPT = timedelta(minutes=1)
GAPS_PATIENCE_S = 1.0  # the longest wait of the leaderboard for the gaps


class LedgerReports:
    """Reports from the ledger's tables, and from memory for records that are not stored yet."""

    def __init__(
        self,
        reader: Reader,
        *,
        replays: ReplayRunner,
        unshipped: Callable[[], Sequence[Shippable]],
        running: Callable[[str], CallStart | None],
        utc_now: Callable[[], datetime],
        clock: Callable[[], float],
        kept_s: float = KEPT_S,
        targets: Callable[[], Sequence[Target]] = tuple,
    ) -> None:
        """``unshipped``: this process's records without rows. ``running``: returns the start of a running call.

        ``targets``: returns the configured targets. Expensive reports are kept for ``kept_s`` seconds of ``clock``.
        """
        self._reader = reader
        self._replays = replays
        self._unshipped = unshipped
        self._running = running
        self._utc_now = utc_now
        self._targets = targets
        self._kept = TtlCache(clock=clock, kept_s=kept_s)
        self._has_calls = False
        self._gaps: Gaps = {}
        self._gaps_until = datetime.min.replace(tzinfo=UTC)
        self._reading_gaps: asyncio.Task[None] | None = None

    async def calls(self, wanted: CallsFilter) -> Table:
        """Return a page of calls."""
        since = None if wanted.window is None else self._minute() - wanted.window.length
        return await calls.listed(self._reader, self._unshipped(), wanted, since)

    async def call(self, call_id: str, own: SoleUser | None = None) -> FoundCall | None:
        """Return one call; None if there is none, or if it is not one of ``own``."""
        try:
            call_id = str(uuid.UUID(call_id))
        except ValueError:
            return None
        return await calls.found(self._reader, self._unshipped(), self._running(call_id), call_id, own=own)

    async def has_calls(self) -> bool | None:
        """Return whether there has ever been a call; None if the database does not answer."""
        if not self._has_calls:
            try:
                self._has_calls = await calls.exist(self._reader, self._unshipped())
            except (ReportsUnreachable, ReportTooSlow):  # logged
                return None
        return self._has_calls

    async def history(self, wanted: HistoryFilter) -> DeploymentHistory:
        """Return the figures of deployments over time."""
        now = self._minute()
        return await self._kept.get((wanted, now), lambda: history.history(self._reader, wanted, now))

    async def slowdowns(self, wanted: SlowdownsWanted) -> Table:
        """Return the times at which deployments were slower than usual."""
        return await incidents.slowdowns(self._reader, wanted, self._minute())

    async def heat(self, wanted: HeatFilter) -> Table:
        """Return a figure by deployment, weekday and hour."""
        now = self._minute()
        return await self._kept.get((wanted, now), lambda: history.heat(self._reader, wanted, now))

    async def race_value(self, window: Window, by: By) -> Table:
        """Return what racing saved and cost."""
        now = self._minute()
        return await self._kept.get((window, by, now), lambda: history.race_value(self._reader, window, by, now))

    async def replay(self, wanted: ReplayWanted) -> msgspec.Raw:
        """Return what other settings would have done with a model's calls."""
        return await self._replays.get(wanted)

    async def refusals(self, window: Window) -> tuple[Table, Table]:
        """Return refused requests by client and reason, and addresses that sent unknown keys."""
        return await history.refusals(self._reader, window, self._minute())

    async def regions(self, window: Window) -> Table:
        """Return the calls of an hour or a day by region."""
        now = self._minute()
        return await self._kept.get(("regions", window, now), lambda: calls.by_region(self._reader, window))

    async def usage(self, window: Window) -> Table:
        """Return the usage of clients."""
        return await history.usage(self._reader, window, self._minute())

    async def payers(self, window: Window) -> Table:
        """Return the usage of teams and of their end users."""
        now = self._minute()
        return await self._kept.get(("payers", window, now), lambda: history.payers(self._reader, window, now))

    async def own_usage(self, own: SoleUser, window: Window) -> Table:
        """Return the usage and the speed of one person's calls."""
        now = self._minute()
        return await self._kept.get((own, window, now), lambda: calls.used_by(self._reader, own, now - window.length))

    async def sums_trail_s(self) -> float | None:
        """Return the age in seconds of the oldest row that is not in the sums."""
        return await history.sums_trail_s(self._reader)

    @property
    def have_replica(self) -> bool:
        """Whether reports read a replica of the ledger's database."""
        return self._reader.is_replica

    async def replica_lag_s(self) -> float | None:
        """Return how far the replica is behind, in seconds."""
        return await history.replica_lag_s(self._reader) if self.have_replica else None

    async def spent(self) -> Mapping[str | None, tuple[float, float]]:
        """Return the US dollars that clients have spent today and this month."""
        return await history.spent(self._reader, self._minute())

    async def spent_by_teams(self) -> Mapping[str | None, tuple[float, float]]:
        """Return the US dollars that teams have spent today and this month."""
        return await history.spent_by_teams(self._reader, self._minute())

    async def spent_by_models(self) -> Mapping[str, float]:
        """Return the US dollars that attempts of each model have cost today."""
        return await history.spent_by_models(self._reader, self._minute())

    async def alerts(self) -> Table:
        """Return the open alerts, and the newest of the resolved ones."""
        return await incidents.listed(self._reader)

    async def outages(self) -> Table:
        """Return the outages of the last day."""
        return await history.outages(self._reader, self._utc_now())

    async def open_slowdowns(self) -> Sequence[OpenSlowdown]:
        """Return the slowdowns that have not ended."""
        return await incidents.open_slowdowns(self._reader)

    async def stated_models(self, sql: str) -> Sequence[StatedModel]:
        """Return the models that deployments state, selected by ``sql``."""
        return await incidents.stated_models(self._reader, sql)

    async def lengths(self, sql: str) -> Sequence[ModelHour]:
        """Return the lengths of prompts and answers by hour, selected by ``sql``."""
        return await incidents.lengths(self._reader, sql)

    async def gaps(self) -> Gaps:
        """Return the gaps between chunks, read once a minute; only the first request waits for the query."""
        if self._reading_gaps is None or (self._reading_gaps.done() and self._utc_now() >= self._gaps_until):
            self._gaps_until = self._utc_now() + GAPS_KEPT
            self._reading_gaps = asyncio.create_task(self._read_gaps(), name="reports.gaps")
        if not self._gaps:
            await asyncio.wait([self._reading_gaps], timeout=GAPS_PATIENCE_S)
        return self._gaps

    async def targets(self) -> Sequence[Standing]:
        """Return the state of each target."""
        targets, now = tuple(self._targets()), self._minute()
        ask = self._reader.run
        return await self._kept.get((targets, now), lambda: counting.standings(ask, self._reader.words, targets, now))

    async def burns(self, windows_s: Sequence[int]) -> Sequence[Burn]:
        """Return the burn rate of each target's error budget."""
        targets, now, windows = tuple(self._targets()), self._minute(), tuple(windows_s)
        ask = self._reader.run
        return await self._kept.get(
            (targets, now, windows), lambda: counting.burns(ask, self._reader.words, targets, windows, now)
        )

    async def _read_gaps(self) -> None:
        with suppress(ReportsUnreachable, ReportTooSlow):  # logged; the former gaps are better than none
            self._gaps = await history.gaps(self._reader, self._utc_now())

    def _minute(self) -> datetime:
        """Return the start of this minute, the time of reports: within a minute a query has one result and ETag."""
        return self._utc_now().replace(second=0, microsecond=0)

    async def aclose(self) -> None:
        """Close the connections."""
        if self._reading_gaps is not None:
            self._reading_gaps.cancel()
            await asyncio.gather(self._reading_gaps, return_exceptions=True)
        await self._kept.aclose()
        await self._replays.aclose()
        await self._reader.aclose()
