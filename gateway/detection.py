"""Looks for slowdowns every five minutes, in one process of all replicas. Of ``gateway.detecting`` it is the way in.

What is known is made again from the ledger's sums: another process goes on where this one ended.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import msgspec
import structlog

from gateway.detecting.levels import Yardstick, added
from gateway.detecting.model import ModelWatch
from gateway.detecting.profile import DAYS
from gateway.detecting.slowdowns import Change, Happened, Slowdown
from gateway.detecting.windows import DAY_S, HOUR_S, SPEEDS, WINDOW_S, Metric
from gateway.errors import ApiError
from gateway.ledger.errors import LedgerError
from gateway.ledger.reports.reader import Reader
from gateway.ledger.slowdowns import Slowdowns, Windows
from gateway.runtime import Runtime
from gateway.settings.model import Settings
from gateway.watching.series import Family

GRACE_S = 60  # after the end of a window, until rows of it are in the ledger
LATE_S = 6 * WINDOW_S  # windows that are read again: rows come at the end of calls
_LEASE = timedelta(seconds=2 * WINDOW_S + GRACE_S)
_AGAIN_S = 6 * HOUR_S  # between two conclusions
_YOUNG_S = 2 * DAY_S  # until then after every hour
_AT_ONCE_S = 3 * HOUR_S  # of hours that are read with one statement
_LAST_WORDS_S = 1.0
_PAUSE_S = 0.02  # between two of them, so that calls run first

SLOWER = Family(
    "holeshot_deployment_slower",
    "How many times as slow as expected a deployment is (errors: as many) while a slowdown goes on; only the one "
    "process that looks has it.",
    "gauge",
    ("deployment", "metric"),
)


def slowdown_watch(settings: Settings, runtime: Runtime, *, holder: str) -> "Detection":
    """Return what looks for slowdowns in the ledger, with connections of its own.

    Raises:
        DatabaseUrlError: the ledger's address is invalid.

    """
    url = settings.database_url.get_secret_value()
    return Detection(Slowdowns(url, Reader(url), holder), runtime.unix_clock)


class Known(msgspec.Struct):
    """What the process that looks has in memory. Times are begins of windows, unix seconds."""

    models: dict[str, ModelWatch]
    made_s: int
    hours_until_s: int  # hours before are learnt
    windows_until_s: int  # windows before are added for good
    concluded_s: dict[str, int]  # by model


class Detection:
    """Finds slowdowns, and says so in the ledger, the log and the metrics. Nothing runs before ``run``."""

    def __init__(self, ledger: Slowdowns, unix_clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._unix_clock = unix_clock
        self._known: Known | None = None
        self._problem: str | None = None  # the last one logged
        self._log = structlog.get_logger()

    @property
    def slower(self) -> list[Slowdown]:
        """The slowdowns that go on, if this process is the one that looks."""
        known = self._known
        return [] if known is None else [slowdown for watch in known.models.values() for slowdown in watch.open]

    def ratios(self) -> Mapping[tuple[str, ...], float]:
        """Return how many times as slow they are, by deployment and metric."""
        return {(slowdown.deployment, str(slowdown.metric)): slowdown.ratio for slowdown in self.slower}

    async def run(self) -> None:
        """Look after each window, until cancelled; a database that is away is asked again after the next."""
        try:
            while True:
                now_s = self._unix_clock()
                await asyncio.sleep(WINDOW_S - (now_s - GRACE_S) % WINDOW_S)
                await self.look()
        finally:
            with suppress(LedgerError, TimeoutError):
                async with asyncio.timeout(_LAST_WORDS_S):
                    await self._ledger.resign()
            await self._ledger.aclose()

    async def look(self) -> list[Change]:
        """Look once, if it is this process that looks; return what has happened."""
        now_s = int(self._unix_clock())
        try:
            changes = await self._look(now_s)
        except (LedgerError, ApiError) as error:
            self._known = None
            if str(error) != self._problem:
                self._log.warning("detector.not_run", cause=str(error), hint="slowdowns are found later")
            self._problem = str(error)
            return []
        self._problem = None
        return changes

    async def _look(self, now_s: int) -> list[Change]:
        if not await self._ledger.elected(datetime.fromtimestamp(now_s, UTC), _LEASE):
            self._known = None
            return []
        known = self._known
        # What is usual is read again each day, and when the clock went back: what was to come then counts as read.
        if known is None or now_s - known.made_s >= DAY_S or now_s < max(known.made_s, known.windows_until_s):
            known = self._known = await self._remembered(now_s)
        await self._learn(known, now_s)
        changes = await self._add(known, now_s)
        changes += [change for watch in known.models.values() for change in watch.look_at(now_s)]
        for change in changes:
            if await self._ledger.store(change):
                self._tell(change)
        return changes

    async def _remembered(self, now_s: int) -> Known:
        """Return what the ledger knows: yardsticks of days, hours, and what has been found already."""
        day_s = now_s // DAY_S * DAY_S
        first_s = day_s - DAYS * DAY_S
        models: dict[str, ModelWatch] = {}
        await self._measure(models, await self._ledger.windows(DAY_S, first_s, day_s + DAY_S))
        known = Known(models, now_s, first_s, (now_s - DAY_S) // WINDOW_S * WINDOW_S, {})
        for past in await self._ledger.past(datetime.fromtimestamp(first_s, UTC)):
            watch = models.get(past.slowdown.model)
            if watch is not None:
                watch.take(Change(Happened.BEGAN, past.slowdown))
                if past.ended_s is not None:
                    watch.take(Change(Happened.ENDED, past.slowdown, past.ended_s))
        return known

    async def _measure(self, models: dict[str, ModelWatch], days: Windows) -> None:
        """Make the yardsticks of all deployments."""
        seen: dict[tuple[str, str, Metric], tuple[dict[int, float], dict[int, float]]] = {}
        for of_models in days.values():
            await asyncio.sleep(0)
            for model, windows in of_models.items():
                for name, window in windows.items():
                    models.setdefault(model, ModelWatch(model)).deployment(name)
                    for metric, histogram in window.histograms.items():
                        counts = seen.setdefault((model, name, metric), ({}, {}))
                        added(counts[0], histogram.seen)
                        added(counts[1], histogram.cut)
        for (model, name, metric), counts in seen.items():
            yardstick = Yardstick.of(*counts)
            if yardstick is not None:
                models[model].deployment(name).yardsticks[metric] = yardstick

    async def _learn(self, known: Known, now_s: int) -> None:
        """Learn the hours that are complete, and conclude from time to time what is usual."""
        complete_s = (now_s - LATE_S) // HOUR_S * HOUR_S
        while known.hours_until_s < complete_s:
            until_s = min(complete_s, known.hours_until_s + _AT_ONCE_S)
            hours = await self._ledger.windows(HOUR_S, known.hours_until_s, until_s)
            for start_s in sorted(hours):
                for model, windows in hours[start_s].items():
                    watch = known.models.setdefault(model, ModelWatch(model))
                    for name, window in windows.items():
                        watch.deployment(name).learn(window)
                    await asyncio.sleep(0)
            known.hours_until_s = until_s
            await asyncio.sleep(_PAUSE_S)
        for model, watch in known.models.items():
            is_young = any(one.history_s(metric) < _YOUNG_S for one in watch.deployments.values() for metric in SPEEDS)
            if now_s - known.concluded_s.get(model, 0) >= (HOUR_S if is_young else _AGAIN_S):
                await asyncio.to_thread(watch.conclude, now_s)
                known.concluded_s[model] = now_s

    async def _add(self, known: Known, now_s: int) -> list[Change]:
        """Add the windows that are complete for good, and look at those that are not yet."""
        until_s = (now_s - GRACE_S) // WINDOW_S * WINDOW_S
        final_s = until_s - LATE_S
        found: Windows = {}
        for since_s in range(known.windows_until_s, until_s, _AT_ONCE_S):
            found = {**found, **await self._ledger.windows(WINDOW_S, since_s, min(until_s, since_s + _AT_ONCE_S))}
        changes = []
        for model, watch in known.models.items():
            windows = [(start_s, found[start_s].get(model, {})) for start_s in sorted(found)]
            for start_s, some in windows:
                if start_s < final_s:
                    changes += watch.add(start_s, some)
            seen = watch.preview((start_s, some) for start_s, some in windows if start_s >= final_s)
            for change in seen:
                watch.take(change)
            changes += seen
            await asyncio.sleep(0)
        known.windows_until_s = max(known.windows_until_s, final_s)
        return changes

    def _tell(self, change: Change) -> None:
        slowdown = change.slowdown
        facts = {"model": slowdown.model, "deployment": slowdown.deployment, "metric": str(slowdown.metric)}
        began_at = datetime.fromtimestamp(slowdown.began_s, UTC).isoformat()
        if change.happened is Happened.BEGAN:
            figures = {name: round(getattr(slowdown, name), 3) for name in ("ratio", "low", "high")}
            self._log.warning("deployment.slower", **facts, began_at=began_at, **figures, n=slowdown.n)
        else:
            self._log.info("deployment.as_usual", **facts, began_at=began_at, ending=str(change.ending))
