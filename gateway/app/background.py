"""Composes the background work of a gateway: alerts, the search for slowdowns, probes, and targets."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from gateway import __version__
from gateway.alerts import (
    DAY,
    AlertKind,
    AlertTasks,
    Book,
    BurnSource,
    CachedSource,
    Delivery,
    Detection,
    EndUserSource,
    LedgerSource,
    LengthSource,
    MemoryBook,
    NearSource,
    OutageSource,
    PatientSource,
    Sender,
    Severity,
    SlowdownSource,
    Source,
    Spenders,
    SpendingSource,
    StatedModels,
    StatedModelSource,
    TargetWatch,
    Thresholds,
    Watch,
    WorkerSource,
    model_sql,
    team_sql,
)
from gateway.api import Context, GatewayPhase
from gateway.app.engine import Runtime
from gateway.app.gauges import TargetFigures
from gateway.app.prober import Prober, SpentToday
from gateway.app.recorders import ProbeRecorder
from gateway.core.calls import NearLimit
from gateway.core.records import NotProbed, ProbeBook
from gateway.core.reports import Reports
from gateway.core.targets import Target
from gateway.fleet import Fleet
from gateway.ledger import (
    Database,
    Ledger,
    LedgerReports,
    Reader,
    SharedClock,
    SqlAlertBook,
    SqlProbeBook,
    SqlSlowdownBook,
    TargetCounting,
)
from gateway.limits import UTC_ZONE
from gateway.racing import Attempt, AttemptTasks
from gateway.settings import AlertSettings, Settings
from gateway.steering import Health
from gateway.watching import SLOWER, Metrics

_BURNS_EVERY_S = 30.0  # the shortest window has five minutes
_SQL_EVERY_S = 60.0
_LENGTHS_EVERY_S = 600.0  # of whole days, to the hour


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
) -> AlertTasks:
    """Compose the alerts of a process. ``context`` returns the settings and the fleet in force."""

    def current() -> AlertSettings:
        return context().settings.alerts

    memory_book = MemoryBook(runtime.new_id)
    book: Book = _memory_book(runtime) or SqlAlertBook(database, new_id=runtime.new_id)
    watch = Watch(
        _sources(context, current, replica=replica, runtime=runtime, ledger=ledger, reports=reports, stated=stated),
        book=book,
        own=memory_book,
        webhooks=lambda severity: [
            name for name, each in current().webhooks.items() if each.tickets or severity is Severity.PAGE
        ],
        resolve_after_s=lambda: current().resolve_after_s,
        clock=runtime.clock,
        utc_now=runtime.utc_now,
        new_id=runtime.new_id,
        replica=replica,
        listener=metrics,
        is_away=lambda: runtime.store is None and ledger.is_away,
    )
    sender = Sender(unix_clock=runtime.unix_clock, user_agent=f"holeshot/{__version__}", tls=runtime.tls)
    delivery = Delivery(
        [book, memory_book],
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

    for kind in AlertKind:
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
        lambda: memory_book.dropped,
    )
    return AlertTasks(
        watch, delivery, sender=sender, book=book, own=memory_book, enabled=lambda: current().enabled, urgent=urgent
    )


def _memory_book(runtime: Runtime) -> Book | None:
    """Return a book in memory for a gateway with another store than the database of its settings, else None."""
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
            lambda: {name: each.ttft_s for name, each in context().fleet.models.items()},
            lambda deployments: context().steering.not_asked(deployments, (), on_trial=True),
            lambda model, ttft_s: context().steering.silent(model, ttft_s),  # noqa: PLW0108 - there is no context yet
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
        others=(
            Spenders(
                "team",
                lambda: {name: each.limits for name, each in context().payers.teams if each.zone == UTC_ZONE},
                reports.spent_by_teams,
                team_sql,
            ),
            Spenders(
                "model", lambda: _limits_of_models(context()), lambda: _spent_by_models(context(), reports), model_sql
            ),
        ),
    )

    def near(share: float) -> Sequence[NearLimit]:
        return context().limits.end_users_near(share)

    of_end_users = EndUserSource(near, share=lambda: current().spending_share)
    sources.append(CachedSource(of_end_users, every_s=_SQL_EVERY_S, clock=runtime.clock))

    def near_of_others(share: float) -> Sequence[NearLimit]:
        return context().limits.near(share)

    of_others = NearSource(near_of_others, share=lambda: current().spending_share)
    sources.append(CachedSource(of_others, every_s=_SQL_EVERY_S, clock=runtime.clock))
    of_sql: list[Source] = []
    burns = BurnSource(reports.burns, least_bad=lambda: current().burn_least_bad)
    of_sql += [
        CachedSource(burns, every_s=_BURNS_EVERY_S, clock=runtime.clock),
        CachedSource(spending, every_s=_SQL_EVERY_S, clock=runtime.clock),
        StatedModelSource(stated, reports.stated_models, utc_now=runtime.utc_now),
        CachedSource(
            LengthSource(reports.lengths, utc_now=runtime.utc_now), every_s=_LENGTHS_EVERY_S, clock=runtime.clock
        ),
    ]
    if context().settings.ledger.slowdowns:  # else the end of a slowdown would not be seen
        of_sql.append(CachedSource(SlowdownSource(reports.open_slowdowns), every_s=_SQL_EVERY_S, clock=runtime.clock))
    return [*sources, *(PatientSource(each, lambda: ledger.is_away) for each in of_sql)]


def _limits_of_models(context: Context) -> Mapping[str, Mapping[str, float]]:
    models = context.settings.models if context.settings.limits_zone == UTC_ZONE else {}
    return {name: {DAY: each.usd_per_day} for name, each in models.items() if each.usd_per_day is not None}


async def _spent_by_models(context: Context, reports: Reports) -> Mapping[str | None, tuple[float, float]]:
    from gateway.admin import spent_by_models  # noqa: PLC0415 - memory: with what operators use

    return await spent_by_models(context, reports)


def _limits(context: Context) -> Mapping[str | None, Mapping[str, float]]:
    """Return the limits of every client; without keys, those of the programs on this machine."""
    admission = context.admission
    if not admission.keys.table.is_required:
        return {None: admission.local.limits}
    zone = context.settings.limits_zone
    clients = admission.keys.table.holders
    return {client.name: client.limits for client in clients if (client.zone or zone) == UTC_ZONE}


def slowdown_watch(database: Database, clock: SharedClock, metrics: Metrics, *, holder: str) -> Detection:
    """Compose the search for slowdowns in the ledger.

    Raises:
        DatabaseUrlError: the ledger's address is invalid.

    """
    book = SqlSlowdownBook(database, Reader(database), holder)
    detection = Detection(book, clock.unix_s, leaves=lambda: clock.leaves_turns)
    metrics.read_series(SLOWER, detection.ratios)
    return detection


def target_watch(
    database: Database,
    runtime: Runtime,
    *,
    clock: SharedClock,
    reports: Reports,
    metrics: Metrics,
    targets: Callable[[], Sequence[Target]],
) -> TargetWatch:
    """Compose the watch of a process. ``targets`` returns the targets in force."""
    counting = TargetCounting(database, targets, utc_now=runtime.utc_now, clock=runtime.clock)
    show = TargetFigures(metrics).show
    return TargetWatch(counting, reports.targets, targets, show=show, leaves=lambda: clock.leaves_turns)


# Composes the prober of a gateway: its view of the gateway, and the recorder of its probes.


def prober(context: Context, runtime: Runtime, database: Database, ledger: Ledger, metrics: Metrics) -> Prober:
    """Return the prober of quiet deployments; it does nothing until started, and while probes are off."""
    probe_tasks = AttemptTasks[Attempt]()  # tasks of calls are shown live, as calls
    spent = SpentToday(runtime.utc_now)
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
        msgspec.structs.replace(context.services, recorder=recorder, tasks=probe_tasks, utc_now=runtime.utc_now),
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
        if context.phase is not GatewayPhase.SERVING:
            return NotProbed.STOPPING
        intake = context.intake
        crowded = intake.is_full or bool(intake.waiting) or intake.limit.is_lowered
        return NotProbed.OVERLOADED if crowded else None
