"""The detector at work: it looks for slowdowns every five minutes, in one process of all replicas.

Its state is rebuilt from the ledger's sums, so another process can continue where this one ended.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Protocol

import msgspec
import structlog

from gateway.alerts.detector import ModelWatch
from gateway.alerts.levels import DAYS, Yardstick, added
from gateway.alerts.slowdowns import (
    DAY_S,
    HOUR_S,
    SPEEDS,
    WINDOW_S,
    DetectedSlowdown,
    Happened,
    Metric,
    PastSlowdown,
    SlowdownChange,
    Windows,
)
from gateway.core.errors import ApiError
from gateway.core.tasks import end_if_cancelled

GRACE_S = 60  # after the end of a window, until its rows are in the ledger
LATE_S = 6 * WINDOW_S  # how far back windows are read again: rows come at the end of calls
_LEASE = timedelta(seconds=2 * WINDOW_S + GRACE_S)
_CONCLUDE_EVERY_S = 6 * HOUR_S
_YOUNG_S = 2 * DAY_S  # with less history, every hour
_READ_SPAN_S = 3 * HOUR_S  # read with one statement
_RESIGN_TIMEOUT_S = 1.0
_PAUSE_S = 0.02  # between two statements, so that calls run first


class SlowdownBook(Protocol):
    """The slowdowns of all replicas, and the sums they are found in. Methods raise ``ApiError`` while it is away."""

    async def elected(self, now: datetime, lasts: timedelta) -> bool:
        """Return whether this process looks, and no other: for ``lasts`` from now, unless the claim is renewed."""

    async def resign(self) -> None:
        """Let another process look at once."""

    async def store(self, change: SlowdownChange) -> bool:
        """Store a begin or an end; return False if it was there already."""

    async def past(self, since: datetime) -> list[PastSlowdown]:
        """Return slowdowns that went on since then, the oldest first."""

    async def windows(self, length_s: int, since_s: int, until_s: int) -> Windows:
        """Return the sums of the windows that began from ``since_s`` to before ``until_s``, of all deployments."""

    async def aclose(self) -> None:
        """Close the connections."""


class DetectorState(msgspec.Struct):
    """The state of the elected process. Times are starts of windows, in unix seconds."""

    models: dict[str, ModelWatch]
    made_s: int
    hours_until_s: int  # earlier hours are learnt
    windows_until_s: int  # earlier windows are added for good
    concluded_s: dict[str, int]  # by model


class Detection:
    """Finds slowdowns, and reports them in the ledger, the log and the metrics. Nothing runs before ``run``."""

    def __init__(
        self, book: SlowdownBook, unix_clock: Callable[[], float], *, leaves: Callable[[], bool] = lambda: False
    ) -> None:
        """``leaves``: whether another replica should look, as this one's clock is off."""
        self._leaves = leaves
        self._book = book
        self._unix_clock = unix_clock
        self._state: DetectorState | None = None  # None: another process is elected
        self._problem: str | None = None  # the last one logged
        self._log = structlog.get_logger()

    @property
    def slower(self) -> list[DetectedSlowdown]:
        """The open slowdowns; none unless this process is elected."""
        state = self._state
        return [] if state is None else [slowdown for watch in state.models.values() for slowdown in watch.open]

    def ratios(self) -> Mapping[tuple[str, ...], float]:
        """Return how many times as slow as expected they are, by deployment and metric."""
        return {(slowdown.deployment, str(slowdown.metric)): slowdown.ratio for slowdown in self.slower}

    async def run(self) -> None:
        """Look after each window, until cancelled; if the database is away, again after the next."""
        try:
            while True:
                now_s = self._unix_clock()
                await asyncio.sleep(WINDOW_S - (now_s - GRACE_S) % WINDOW_S)
                await self.look()
                end_if_cancelled()
        finally:
            with suppress(ApiError, TimeoutError):
                async with asyncio.timeout(_RESIGN_TIMEOUT_S):
                    await self._book.resign()
            await self._book.aclose()

    async def look(self) -> list[SlowdownChange]:
        """Look once, if this process is elected; return the slowdowns that began or ended."""
        now_s = int(self._unix_clock())
        try:
            changes = await self._look(now_s)
        except ApiError as error:
            self._state = None
            if str(error) != self._problem:
                # Event detector.not_run: The search for slowdowns could not read the database. It finds them later.
                # Do: Make the database reachable. Nothing is lost.
                self._log.warning("detector.not_run", cause=str(error), hint="slowdowns are found later")
            self._problem = str(error)
            return []
        except Exception:  # noqa: BLE001 - a defect in one look must not end all later ones
            self._state = None
            # Event detector.failed: One search for slowdowns failed. The next one follows.
            # Do: It is a bug: report it with the trace.
            self._log.exception("detector.failed")
            return []
        self._problem = None
        return changes

    async def _look(self, now_s: int) -> list[SlowdownChange]:
        if self._leaves() or not await self._book.elected(datetime.fromtimestamp(now_s, UTC), _LEASE):
            self._state = None
            return []
        state = self._state
        # The baseline is read again each day, and when the clock went back: else its future windows count as read.
        if state is None or now_s - state.made_s >= DAY_S or now_s < max(state.made_s, state.windows_until_s):
            state = self._state = await self._load(now_s)
        await self._learn(state, now_s)
        changes = await self._add(state, now_s)
        changes += [change for watch in state.models.values() for change in watch.look_at(now_s)]
        for change in changes:
            if await self._book.store(change):
                self._log_change(change)
        return changes

    async def _load(self, now_s: int) -> DetectorState:
        """Return the state that follows from the ledger: yardsticks from days, and the slowdowns already found."""
        day_s = now_s // DAY_S * DAY_S
        first_s = day_s - DAYS * DAY_S
        models: dict[str, ModelWatch] = {}
        await self._measure(models, await self._book.windows(DAY_S, first_s, day_s + DAY_S))
        state = DetectorState(models, now_s, first_s, (now_s - DAY_S) // WINDOW_S * WINDOW_S, {})
        for past in await self._book.past(datetime.fromtimestamp(first_s, UTC)):
            # Also one of a model without calls since then: nobody else would end it.
            watch = models.setdefault(past.slowdown.model, ModelWatch(past.slowdown.model))
            watch.take(SlowdownChange(Happened.BEGAN, past.slowdown))
            if past.ended_s is not None:
                watch.take(SlowdownChange(Happened.ENDED, past.slowdown, past.ended_s))
        return state

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

    async def _learn(self, state: DetectorState, now_s: int) -> None:
        """Learn the hours that are complete, and from time to time compute what is usual."""
        complete_s = (now_s - LATE_S) // HOUR_S * HOUR_S
        while state.hours_until_s < complete_s:
            until_s = min(complete_s, state.hours_until_s + _READ_SPAN_S)
            hours = await self._book.windows(HOUR_S, state.hours_until_s, until_s)
            for start_s in sorted(hours):
                for model, windows in hours[start_s].items():
                    watch = state.models.setdefault(model, ModelWatch(model))
                    for name, window in windows.items():
                        watch.deployment(name).learn(window)
                    await asyncio.sleep(0)
            state.hours_until_s = until_s
            await asyncio.sleep(_PAUSE_S)
        for model, watch in state.models.items():
            is_young = any(one.history_s(metric) < _YOUNG_S for one in watch.deployments.values() for metric in SPEEDS)
            if now_s - state.concluded_s.get(model, 0) >= (HOUR_S if is_young else _CONCLUDE_EVERY_S):
                await asyncio.to_thread(watch.conclude, now_s)
                state.concluded_s[model] = now_s

    async def _add(self, state: DetectorState, now_s: int) -> list[SlowdownChange]:
        """Add the windows that are final, and preview those whose rows may still be incomplete."""
        until_s = (now_s - GRACE_S) // WINDOW_S * WINDOW_S
        final_s = until_s - LATE_S
        found: Windows = {}
        for since_s in range(state.windows_until_s, until_s, _READ_SPAN_S):
            found = {**found, **await self._book.windows(WINDOW_S, since_s, min(until_s, since_s + _READ_SPAN_S))}
        changes = []
        for model, watch in state.models.items():
            windows = [(start_s, found[start_s].get(model, {})) for start_s in sorted(found)]
            for start_s, some in windows:
                if start_s < final_s:
                    changes += watch.add(start_s, some)
            seen = watch.preview((start_s, some) for start_s, some in windows if start_s >= final_s)
            for change in seen:
                watch.take(change)
            changes += seen
            await asyncio.sleep(0)
        state.windows_until_s = max(state.windows_until_s, final_s)
        return changes

    def _log_change(self, change: SlowdownChange) -> None:
        slowdown = change.slowdown
        facts = {"model": slowdown.model, "deployment": slowdown.deployment, "metric": str(slowdown.metric)}
        began_at = datetime.fromtimestamp(slowdown.began_s, UTC).isoformat()
        if change.happened is Happened.BEGAN:
            figures = {name: round(getattr(slowdown, name), 3) for name in ("ratio", "low", "high")}
            # Event deployment.slower: A deployment's `metric` (`ttft`, `tps`, `itl`, `errors`) is `ratio` times as bad
            # as usual, with an interval of 95 % from `low` to `high`, of `n` requests.
            # Do: See [when a provider is slow](../guides/failing-provider.md). Calls are steered by the new figures
            # already.
            self._log.warning("deployment.slower", **facts, began_at=began_at, **figures, n=slowdown.n)
        else:
            # Event deployment.as_usual: A slowdown is over. `ending`: `as_usual` (or its peers are as slow),
            # `new_usual` (it has lasted for a week) or `no_calls`.
            # Do: Nothing.
            self._log.info("deployment.as_usual", **facts, began_at=began_at, ending=str(change.ending))
