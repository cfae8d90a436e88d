"""Composes the background work of a gateway: alerts, the search for slowdowns, probes, and targets."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from functools import partial
from math import nan

import msgspec
import structlog

from gateway import __version__
from gateway.alerts.alert import Book, Kind, Severity, Source
from gateway.alerts.alerts import Alerts, Delivery, Watch
from gateway.alerts.memory_book import MemoryBook
from gateway.alerts.sender import Sender
from gateway.alerts.sources import (
    BurnSource,
    CachedSource,
    LedgerSource,
    OutageSource,
    SlowdownSource,
    SpendingSource,
    Thresholds,
    WorkerSource,
)
from gateway.alerts.stated_models import StatedModels, StatedModelSource
from gateway.api.context import Context, Phase
from gateway.app.engine import Runtime
from gateway.app.recorders import ProbeRecorder
from gateway.core.errors import ApiError
from gateway.core.records import NotProbed, ProbeBook
from gateway.core.reports import Reports, ReportsUnreachable, ReportTooSlow
from gateway.detecting.levels import DAYS, Yardstick, added
from gateway.detecting.model import ModelWatch
from gateway.detecting.slowdowns import DAY_S, HOUR_S, SPEEDS, WINDOW_S, Change, Happened, Metric, Slowdown
from gateway.fleet.fleet import Fleet
from gateway.ledger import (
    Database,
    Ledger,
    LedgerError,
    LedgerReports,
    Reader,
    SharedClock,
    Slowdowns,
    SqlAlertBook,
    SqlProbeBook,
    TargetCounting,
    Windows,
)
from gateway.probing.prober import Prober
from gateway.racing import Attempt, AttemptTasks, OpenCall
from gateway.settings import AlertSettings, Settings
from gateway.steering import Health
from gateway.targets.targets import Standing, Target, duration
from gateway.watching.metrics import Metrics, Readings
from gateway.watching.series import TARGET_BAD, TARGET_BUDGET, TARGET_BURN, TARGET_CALLS, Family

_BURNS_EVERY_S = 30.0  # the shortest window has five minutes
_SQL_EVERY_S = 60.0


def alerts(
    context: Callable[[], Context],
    *,
    replica: str,
    runtime: Runtime,
    database: Database,
    ledger: Ledger,
    reports: LedgerReports,
    stated: StatedModels,
    metrics: Metrics,
) -> Alerts:
    """Compose the alerts of a process. ``context`` returns the settings and the fleet that are in force."""

    def current() -> AlertSettings:
        return context().settings.alerts

    own = MemoryBook(runtime.new_id)
    book: Book = _memory_book(runtime) or SqlAlertBook(database, new_id=runtime.new_id)
    watch = Watch(
        _sources(context, current, replica=replica, runtime=runtime, ledger=ledger, reports=reports, stated=stated),
        book=book,
        own=own,
        webhooks=lambda severity: [
            name for name, each in current().webhooks.items() if each.tickets or severity is Severity.PAGE
        ],
        resolve_after_s=lambda: current().resolve_after_s,
        clock=runtime.clock,
        utc_now=runtime.utc_now,
        new_id=runtime.new_id,
        replica=replica,
        listener=metrics,
    )
    sender = Sender(unix_clock=runtime.unix_clock, user_agent=f"holeshot/{__version__}")
    delivery = Delivery(
        [book, own],
        sender,
        webhooks=lambda: current().webhooks,
        utc_now=runtime.utc_now,
        random=runtime.random,
        listener=metrics,
    )

    def urgent() -> int:
        stopped = 0 if runtime.peers is None else len(runtime.peers.stopped)
        out = sum(not each.is_in_use for each in context().steering.healths().values())
        return ledger.is_unrecorded + stopped + out

    for kind in Kind:
        metrics.alert_kind(kind)
    metrics.gauge(
        "holeshot_alert_conditions",
        "Conditions that hold now, as each worker sees them: above 0 there is an alert, or soon.",
        lambda: sum(watch.conditions.values()),
    )
    metrics.gauge(
        "holeshot_alerts_away",
        "Workers that cannot reach the database for alerts: each says by itself what is wrong.",
        lambda: watch.book_is_away,
    )
    metrics.counter(
        "holeshot_alert_messages_dropped_total",
        "Messages about alerts that were dropped, as too many waited while the database was away.",
        lambda: own.dropped,
    )
    return Alerts(watch, delivery, sender=sender, book=book, own=own, enabled=lambda: current().enabled, urgent=urgent)


def _memory_book(runtime: Runtime) -> Book | None:
    """Return a book in memory for a gateway whose store is not the database of its settings, else None."""
    return None if runtime.store is None else MemoryBook(runtime.new_id)


def _sources(
    context: Callable[[], Context],
    current: Callable[[], AlertSettings],
    *,
    replica: str,
    runtime: Runtime,
    ledger: Ledger,
    reports: LedgerReports,
    stated: StatedModels,
) -> list[Source]:
    sources: list[Source] = [
        OutageSource(
            lambda: {name: each.deployments.keys() for name, each in context().fleet.models.items()},
            lambda deployments: context().steering.not_asked(deployments, ()),
            model_out_s=lambda: current().model_out_s,
            deployment_out_s=lambda: current().deployment_out_s,
            utc_now=runtime.utc_now,
        ),
        LedgerSource(ledger, replica=replica, behind_s=lambda: current().ledger_behind_s, utc_now=runtime.utc_now),
    ]
    if runtime.peers is not None:
        peers = runtime.peers
        sources.append(WorkerSource(lambda: peers.stopped_lately, replica=replica, utc_now=runtime.utc_now))
    if runtime.store is not None:
        return sources  # there is no SQL to ask
    spending = SpendingSource(
        reports.spent,
        limits=lambda: _limits(context()),
        thresholds=lambda: Thresholds(current().spending_share, current().usd_per_day, current().usd_per_month),
        utc_now=runtime.utc_now,
    )
    burns = BurnSource(reports.burns, least_bad=lambda: current().burn_least_bad)
    sources += [
        CachedSource(burns, every_s=_BURNS_EVERY_S, clock=runtime.clock),
        CachedSource(spending, every_s=_SQL_EVERY_S, clock=runtime.clock),
        StatedModelSource(stated, reports.stated_models, utc_now=runtime.utc_now),
    ]
    if context().settings.ledger.slowdowns:  # else nobody would see that one is over
        sources.append(CachedSource(SlowdownSource(reports.open_slowdowns), every_s=_SQL_EVERY_S, clock=runtime.clock))
    return sources


def _limits(context: Context) -> Mapping[str | None, Mapping[str, float]]:
    """Return the limits of every client; without keys, those of the programs on this machine."""
    admission = context.admission
    if not admission.keys.table.is_required:
        return {None: admission.local.limits}
    return {client.name: client.limits for client in admission.keys.table.holders}


# Looks for slowdowns every five minutes, in one process of all replicas: the entry point to ``gateway.detecting``.
# Its state is rebuilt from the ledger's sums, so another process can continue where this one ended.

GRACE_S = 60  # after the end of a window, until its rows are in the ledger
LATE_S = 6 * WINDOW_S  # how far back windows are read again: rows come at the end of calls
_LEASE = timedelta(seconds=2 * WINDOW_S + GRACE_S)
_CONCLUDE_EVERY_S = 6 * HOUR_S
_YOUNG_S = 2 * DAY_S  # with less history, every hour
_READ_SPAN_S = 3 * HOUR_S  # read with one statement
_RESIGN_TIMEOUT_S = 1.0
_PAUSE_S = 0.02  # between two statements, so that calls run first

SLOWER = Family(
    "holeshot_deployment_slower",
    "How many times as slow as expected a deployment is (errors: as many) while a slowdown goes on; only the one "
    "process that looks has it.",
    "gauge",
    ("deployment", "metric"),
)


def slowdown_watch(database: Database, clock: SharedClock, *, holder: str) -> "Detection":
    """Return the search for slowdowns in the ledger.

    Raises:
        DatabaseUrlError: the ledger's address is invalid.

    """
    return Detection(Slowdowns(database, Reader(database), holder), clock.unix_s, leaves=lambda: clock.leaves_turns)


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
        self, ledger: Slowdowns, unix_clock: Callable[[], float], *, leaves: Callable[[], bool] = lambda: False
    ) -> None:
        """``leaves``: whether another replica should look, as this one's clock is off."""
        self._leaves = leaves
        self._ledger = ledger
        self._unix_clock = unix_clock
        self._state: DetectorState | None = None  # None: another process is elected
        self._problem: str | None = None  # the last one logged
        self._log = structlog.get_logger()

    @property
    def slower(self) -> list[Slowdown]:
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
        finally:
            with suppress(LedgerError, TimeoutError):
                async with asyncio.timeout(_RESIGN_TIMEOUT_S):
                    await self._ledger.resign()
            await self._ledger.aclose()

    async def look(self) -> list[Change]:
        """Look once, if this process is elected; return the slowdowns that began or ended."""
        now_s = int(self._unix_clock())
        try:
            changes = await self._look(now_s)
        except (LedgerError, ApiError) as error:
            self._state = None
            if str(error) != self._problem:
                # Event detector.not_run: The search for slowdowns could not read the database. It looks again, and
                # finds them later.
                # Do: Make the database reachable. Nothing is lost meanwhile.
                self._log.warning("detector.not_run", cause=str(error), hint="slowdowns are found later")
            self._problem = str(error)
            return []
        except Exception:  # noqa: BLE001 - a defect in one look must not end all later ones
            self._state = None
            # Event detector.failed: One search for slowdowns failed. The next one follows, and begins afresh.
            # Do: It is a bug: report it with the trace.
            self._log.exception("detector.failed")
            return []
        self._problem = None
        return changes

    async def _look(self, now_s: int) -> list[Change]:
        if self._leaves() or not await self._ledger.elected(datetime.fromtimestamp(now_s, UTC), _LEASE):
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
            if await self._ledger.store(change):
                self._log_change(change)
        return changes

    async def _load(self, now_s: int) -> DetectorState:
        """Return the state that follows from the ledger: yardsticks from days, and the slowdowns already found."""
        day_s = now_s // DAY_S * DAY_S
        first_s = day_s - DAYS * DAY_S
        models: dict[str, ModelWatch] = {}
        await self._measure(models, await self._ledger.windows(DAY_S, first_s, day_s + DAY_S))
        state = DetectorState(models, now_s, first_s, (now_s - DAY_S) // WINDOW_S * WINDOW_S, {})
        for past in await self._ledger.past(datetime.fromtimestamp(first_s, UTC)):
            # Also one of a model without calls since then: nobody else would end it.
            watch = models.setdefault(past.slowdown.model, ModelWatch(past.slowdown.model))
            watch.take(Change(Happened.BEGAN, past.slowdown))
            if past.ended_s is not None:
                watch.take(Change(Happened.ENDED, past.slowdown, past.ended_s))
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
            hours = await self._ledger.windows(HOUR_S, state.hours_until_s, until_s)
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

    async def _add(self, state: DetectorState, now_s: int) -> list[Change]:
        """Add the windows that are final, and preview those whose rows may still be incomplete."""
        until_s = (now_s - GRACE_S) // WINDOW_S * WINDOW_S
        final_s = until_s - LATE_S
        found: Windows = {}
        for since_s in range(state.windows_until_s, until_s, _READ_SPAN_S):
            found = {**found, **await self._ledger.windows(WINDOW_S, since_s, min(until_s, since_s + _READ_SPAN_S))}
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

    def _log_change(self, change: Change) -> None:
        slowdown = change.slowdown
        facts = {"model": slowdown.model, "deployment": slowdown.deployment, "metric": str(slowdown.metric)}
        began_at = datetime.fromtimestamp(slowdown.began_s, UTC).isoformat()
        if change.happened is Happened.BEGAN:
            figures = {name: round(getattr(slowdown, name), 3) for name in ("ratio", "low", "high")}
            # Event deployment.slower: A deployment got slower than usual, or fails more often: its `metric` (`ttft`,
            # `tps`, `itl`, `errors`) is `ratio` times as bad, with an interval of 95 % from `low` to `high`, of `n`
            # requests.
            # Do: See [when a provider is slow](../guides/failing-provider.md). Calls are steered by the new figures
            # already. `holeshot slowdowns` lists all.
            self._log.warning("deployment.slower", **facts, began_at=began_at, **figures, n=slowdown.n)
        else:
            # Event deployment.as_usual: A slowdown is over. `ending`: `as_usual` (as fast as before, or its peers are
            # as slow), `new_usual` (it has lasted so long that this is usual now) or `no_calls`.
            # Do: Nothing.
            self._log.info("deployment.as_usual", **facts, began_at=began_at, ending=str(change.ending))


# Composes the prober of a gateway: its view of the gateway, and the recorder of its probes.


def prober(context: Context, runtime: Runtime, database: Database, ledger: Ledger, metrics: Metrics) -> Prober:
    """Return the prober of quiet deployments; it does nothing until it is started, and while probes are off."""
    own = AttemptTasks[Attempt, OpenCall]()  # those of calls are shown live, as calls
    spent = _SpentToday(runtime)
    metrics.gauge(
        "holeshot_probes_today_usd",
        "US dollars that this process's probes have cost at most since midnight (UTC).",
        lambda: spent.usd,
    )

    def ended(deployment: str, outcome: str, cost_usd: float) -> None:
        metrics.probe_ended(deployment, outcome)
        spent.add(cost_usd)

    def book() -> ProbeBook:
        return runtime.probe_book or SqlProbeBook(database)

    recorder = ProbeRecorder(context.steering, metrics, ledger)
    return Prober(
        _View(context),
        book,
        msgspec.structs.replace(context.services, recorder=recorder, tasks=own, utc_now=runtime.utc_now),
        random=runtime.random,
        replica=context.replica,
        on_end=ended,
    )


class _View:
    """The prober's view of the gateway, with the current settings and fleet."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @property
    def settings(self) -> Settings:
        return self._context.settings

    @property
    def fleet(self) -> Fleet:
        return self._context.fleet

    def health_of(self, deployment: str) -> Health:
        return self._context.steering.health_of(deployment)

    def hindrance(self) -> NotProbed | None:
        context = self._context
        if context.phase is not Phase.SERVING:
            return NotProbed.STOPPING
        intake = context.intake
        crowded = intake.is_full or bool(intake.waiting) or intake.limit.is_lowered
        return NotProbed.OVERLOADED if crowded else None


class _SpentToday:
    """The probes' cost in this process since the last midnight (UTC), in US dollars."""

    def __init__(self, runtime: Runtime) -> None:
        self._now = runtime.utc_now
        self._day = self._today()
        self._usd = 0.0

    @property
    def usd(self) -> float:
        self._turn()
        return self._usd

    def add(self, usd: float) -> None:
        self._turn()
        self._usd += usd

    def _turn(self) -> None:
        today = self._today()
        if today != self._day:
            self._day, self._usd = today, 0.0

    def _today(self) -> date:
        return self._now().date()


# Keeps the counts of targets up to date, and shows the state of the targets in the metrics.

EVERY_S = 30.0
Reading = tuple[tuple[str, ...], float | None]  # the values of labels, and a figure if it is known


def target_watch(
    database: Database,
    runtime: Runtime,
    *,
    clock: SharedClock,
    reports: Reports,
    metrics: Metrics,
    targets: Callable[[], Sequence[Target]],
) -> "TargetWatch":
    """Compose the watch of a process. ``targets`` returns those that are in force."""
    counting = TargetCounting(database, targets, utc_now=runtime.utc_now, clock=runtime.clock)
    return TargetWatch(counting, reports, metrics, targets, leaves=lambda: clock.leaves_turns)


class TargetFigures:
    """How much of each target's budget is left, and how fast it is spent, as metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._standings: Sequence[Standing] = ()
        for family, read in _SHOWN:
            metrics.read_series(family, partial(self._readings, read))

    def show(self, standings: Sequence[Standing]) -> None:
        """Replace the published standings."""
        self._standings = standings

    def _readings(self, read: Callable[[Standing], Iterator[Reading]]) -> Readings:
        return {values: nan if number is None else number for each in self._standings for values, number in read(each)}


class TargetWatch:
    """Looks at the targets every half minute, as long as there are any."""

    def __init__(
        self,
        counting: TargetCounting,
        reports: Reports,
        metrics: Metrics,
        targets: Callable[[], Sequence[Target]],
        *,
        every_s: float = EVERY_S,
        leaves: Callable[[], bool] = lambda: False,
    ) -> None:
        """``leaves``: whether another replica should count, as this one's clock is off."""
        self._leaves = leaves
        self._counting = counting
        self._reports = reports
        self._figures = TargetFigures(metrics)
        self._targets = targets
        self._every_s = every_s
        self._had_some = False

    async def run(self) -> None:
        """Look until cancelled."""
        try:
            while True:
                await asyncio.sleep(self._every_s)
                try:
                    await self._look()
                except (ReportsUnreachable, ReportTooSlow):  # logged; the last figures stay
                    pass
                except Exception:  # noqa: BLE001 - the next look may succeed
                    # Event targets.not_watched: One look at the targets failed. The next one follows; the last figures
                    # stay.
                    # Do: It is a bug: report it with the trace.
                    structlog.get_logger().exception("targets.not_watched")
        finally:
            await self._counting.aclose()

    async def _look(self) -> None:
        has_some = bool(self._targets())
        if not has_some and not self._had_some:
            return
        self._had_some = has_some
        if has_some and not self._leaves():
            await self._counting.keep_up()
        self._figures.show(await self._reports.targets())


def _calls(each: Standing) -> Iterator[Reading]:
    yield (each.target.name,), float(each.counts.calls)


def _bad(each: Standing) -> Iterator[Reading]:
    yield (each.target.name,), float(each.counts.bad)


def _budget(each: Standing) -> Iterator[Reading]:
    yield (each.target.name,), each.budget_left


def _burns(each: Standing) -> Iterator[Reading]:
    for burn in each.burns:
        yield (each.target.name, duration(burn.window_s)), burn.burn_rate


_SHOWN: Sequence[tuple[Family, Callable[[Standing], Iterator[Reading]]]] = (
    (TARGET_CALLS, _calls),
    (TARGET_BAD, _bad),
    (TARGET_BUDGET, _budget),
    (TARGET_BURN, _burns),
)
