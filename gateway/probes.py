"""Composes the prober of a gateway: what it sees of it, and who hears of its probes."""

from datetime import date

import msgspec

from gateway.fleet.fleet import Fleet
from gateway.ingress.context import Context
from gateway.ingress.phase import Phase
from gateway.ledger.probe_book import SqlProbeBook
from gateway.ledger.writer import Ledger
from gateway.probe_records import NotProbed, ProbeBook
from gateway.probing.prober import Prober
from gateway.probing.recorder import ProbeRecorder
from gateway.racing.attempt import Attempt
from gateway.racing.open_call import OpenCall
from gateway.racing.tasks import AttemptTasks
from gateway.runtime import Runtime
from gateway.settings.model import Settings
from gateway.steering.health import Health
from gateway.watching.metrics import Metrics


def prober(context: Context, runtime: Runtime, ledger: Ledger, metrics: Metrics) -> Prober:
    """Return what probes quiet deployments; it does nothing until it is started, and nothing while that is off."""
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
        return runtime.probe_book or SqlProbeBook(context.settings.database_url.get_secret_value())

    recorder = ProbeRecorder(context.steering, metrics, ledger)
    return Prober(
        _View(context),
        book,
        # Tasks of their own: those of calls are shown live, as calls.
        msgspec.structs.replace(context.services, recorder=recorder, tasks=AttemptTasks[Attempt, OpenCall]()),
        random=runtime.random,
        replica=context.process.replica,
        on_end=ended,
    )


class _View:
    """The gateway as probes see it, whatever is reloaded."""

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
    """What has been spent since the last midnight (UTC), by this process."""

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
