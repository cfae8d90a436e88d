"""What alerts read from the parts of a gateway, and where they are stored."""

from collections.abc import Callable, Mapping

from gateway import __version__
from gateway.alerts.alerts import Alerts
from gateway.alerts.book import Book
from gateway.alerts.condition import Kind, Severity, Source
from gateway.alerts.delivery import Delivery
from gateway.alerts.memory_book import MemoryBook
from gateway.alerts.sender import Sender
from gateway.alerts.sources.burns import BurnSource
from gateway.alerts.sources.ledger import LedgerSource
from gateway.alerts.sources.outages import OutageSource
from gateway.alerts.sources.seldom import Seldom
from gateway.alerts.sources.slowdowns import SlowdownSource
from gateway.alerts.sources.spending import SpendingSource, Thresholds
from gateway.alerts.watch import Watch
from gateway.ingress.context import Context
from gateway.ledger.alert_book import SqlAlertBook
from gateway.ledger.reports.reports import LedgerReports
from gateway.ledger.writer import Ledger
from gateway.runtime import Runtime
from gateway.settings.alerts import AlertSettings
from gateway.settings.model import Settings
from gateway.watching.metrics import Metrics

_BURNS_EVERY_S = 30.0  # the shortest window has five minutes
_SQL_EVERY_S = 60.0


def alerts(
    context: Callable[[], Context],
    *,
    settings: Settings,
    replica: str,
    runtime: Runtime,
    ledger: Ledger,
    reports: LedgerReports,
    metrics: Metrics,
) -> Alerts:
    """Compose the alerts of a process. ``context`` has the settings and the fleet that are in force at each moment."""

    def now() -> AlertSettings:
        return context().settings.alerts

    own = MemoryBook(runtime.new_id)
    book: Book = _instead_of_sql(runtime) or SqlAlertBook(
        settings.database_url.get_secret_value(), new_id=runtime.new_id
    )
    watch = Watch(
        _sources(context, now, replica=replica, runtime=runtime, ledger=ledger, reports=reports),
        book=book,
        own=own,
        webhooks=lambda severity: [
            name for name, each in now().webhooks.items() if each.tickets or severity is Severity.PAGE
        ],
        resolve_after_s=lambda: now().resolve_after_s,
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
        webhooks=lambda: now().webhooks,
        utc_now=runtime.utc_now,
        random=runtime.random,
        listener=metrics,
    )
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
    return Alerts(watch, delivery, sender=sender, book=book, own=own, enabled=lambda: now().enabled)


def _instead_of_sql(runtime: Runtime) -> Book | None:
    """Return a book in memory for a gateway whose database is elsewhere than in its settings."""
    return None if runtime.store is None else MemoryBook(runtime.new_id)


def _sources(
    context: Callable[[], Context],
    now: Callable[[], AlertSettings],
    *,
    replica: str,
    runtime: Runtime,
    ledger: Ledger,
    reports: LedgerReports,
) -> list[Source]:
    sources: list[Source] = [
        OutageSource(
            lambda: {name: each.deployments.keys() for name, each in context().fleet.models.items()},
            lambda deployments: context().steering.not_asked(deployments, ()),
            model_out_s=lambda: now().model_out_s,
            deployment_out_s=lambda: now().deployment_out_s,
            utc_now=runtime.utc_now,
        ),
        LedgerSource(ledger, replica=replica, behind_s=lambda: now().ledger_behind_s, utc_now=runtime.utc_now),
    ]
    if runtime.store is not None:
        return sources  # there is no SQL to ask
    spending = SpendingSource(
        reports.spent,
        limits=lambda: _limits(context()),
        thresholds=lambda: Thresholds(now().spending_share, now().usd_per_day, now().usd_per_month),
        utc_now=runtime.utc_now,
    )
    burns = BurnSource(reports.burns, least_bad=lambda: now().burn_least_bad)
    return [
        *sources,
        Seldom(burns, every_s=_BURNS_EVERY_S, clock=runtime.clock),
        Seldom(spending, every_s=_SQL_EVERY_S, clock=runtime.clock),
        Seldom(SlowdownSource(reports.open_slowdowns), every_s=_SQL_EVERY_S, clock=runtime.clock),
    ]


def _limits(context: Context) -> Mapping[str | None, Mapping[str, float]]:
    """Return the limits of every client that has a key; without keys, those of the programs on this machine."""
    admission = context.admission
    if not admission.keys.table.is_required:
        return {None: admission.local.limits}
    known = (each.client for each in admission.keys.table.known.values())
    return {client.name: client.limits for client in known if client is not None}
