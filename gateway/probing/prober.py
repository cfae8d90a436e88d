"""Probes quiet deployments: looks now and then who is quiet, and asks the book before it sends anything."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from random import Random
from typing import Protocol

import msgspec
import structlog

from gateway.attempt_records import AttemptRecord, Outcome, Role
from gateway.calls import CallRecord, Mode
from gateway.errors import ShuttingDown
from gateway.fleet.deployment import Deployment
from gateway.fleet.fleet import Fleet
from gateway.fleet.model import Model
from gateway.ingress.fitting import Fitting
from gateway.probe_records import (
    NotProbed,
    Probe,
    ProbeBook,
    ProbeEnd,
    ProbeOutcome,
    ProbesUnreachable,
)
from gateway.probing.discarding import DiscardingSink
from gateway.probing.policy import most_usd, refusal, unwell
from gateway.probing.question import asked, call_of, phrased, size_of
from gateway.racing.open_call import OpenCall
from gateway.racing.race import Race
from gateway.racing.services import Services
from gateway.settings.model import Settings
from gateway.settings.probes import ProbeSettings
from gateway.steering.health import Health
from gateway.steering.plans import Launch, Plan

AT_ONCE = 4  # probes of this process
LOOK_MIN_S, LOOK_MAX_S = 0.25, 15.0  # between two looks: a quarter of ``quiet_s``, in these bounds
CALL_S = 3600.0  # how far back the ledger is asked for calls of other replicas, at most
_FAILED = frozenset({Outcome.FAILED, Outcome.TIMEOUT, Outcome.STALLED})

_log = structlog.get_logger(__name__)


class Gateway(Protocol):
    """What probes need of the gateway, as it is now."""

    @property
    def settings(self) -> Settings:
        """The settings in force."""

    @property
    def fleet(self) -> Fleet:
        """The fleet in use."""

    def health_of(self, deployment: str) -> Health:
        """Return the health of a deployment in this replica."""

    def hindrance(self) -> NotProbed | None:
        """Return why nothing may be probed now: the gateway stops, or has too much to do."""


class Prober:
    """Probes for one process. ``start`` it once; ``close`` cancels what runs and waits for it."""

    def __init__(
        self,
        gateway: Gateway,
        book: Callable[[], ProbeBook],
        services: Services,
        *,
        random: Random,
        replica: str,
        on_end: Callable[[str, str, float], None] = lambda *_: None,
    ) -> None:
        """``services`` are those of probes: with a recorder and tasks of their own. ``book`` is made for the first one.

        ``on_end`` is called with the deployment, the outcome and the cost, US dollars at most.
        """
        self._gateway = gateway
        self._make_book = book
        self._book: ProbeBook | None = None
        self._services = services
        self._random = random
        self._replica = replica
        self._on_end = on_end
        self._running: dict[str, asyncio.Task[None]] = {}  # by deployment
        self._looking: asyncio.Task[None] | None = None
        self._ask_again_at: dict[str, float] = {}  # by deployment; seconds of the clock
        self._told: dict[str, NotProbed] = {}  # why the book has refused one last, by deployment
        self.not_probed: dict[str, NotProbed] = {}  # by deployment: why not, at the last look

    def start(self) -> None:
        """Look for quiet deployments from now on, if the settings say so; a reload may change that."""
        self._looking = asyncio.get_running_loop().create_task(self._keep_looking(), name="probes")

    async def close(self) -> None:
        """Cancel probes that run, and wait until each is recorded."""
        tasks = [task for task in (self._looking, *self._running.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._services.tasks.close()
        if self._book is not None:
            await self._book.aclose()

    def look(self) -> None:
        """Probe the deployments that are quiet now."""
        self.not_probed = {}
        now_s = self._services.clock()
        for model, deployment in self._candidates():
            name = deployment.name
            if name in self._running:
                continue
            reason = self._gateway.hindrance() or self._unfit(deployment, now_s)
            if reason is not None:
                self.not_probed[name] = reason
            elif now_s >= self._ask_again_at.get(name, now_s) and len(self._running) < AT_ONCE:
                task = asyncio.get_running_loop().create_task(self._probe(model, deployment), name=f"probe {name}")
                self._running[name] = task
                task.add_done_callback(partial(self._ended, name))

    async def _keep_looking(self) -> None:
        while True:
            every_s = LOOK_MAX_S
            if next(self._candidates(), None) is not None:  # replicas shall not look together
                every_s = min(every_s, max(LOOK_MIN_S, self._settings.quiet_s / 4)) * self._random.uniform(0.8, 1.2)
            await asyncio.sleep(every_s)
            try:
                self.look()
            except Exception:  # noqa: BLE001 - a defect in one look must not end all later ones
                _log.exception("probes.not_looked")

    @property
    def _settings(self) -> ProbeSettings:
        return self._gateway.settings.probes

    def _candidates(self) -> Iterator[tuple[Model, Deployment]]:
        """Yield the deployments to be probed, each for the first of its models."""
        settings, seen = self._gateway.settings, set()
        for name, model in self._gateway.fleet.models.items():
            own = settings.models[name].probes if name in settings.models else None
            if settings.probes.enabled if own is None else own:
                for deployment in model.deployments.values():
                    if deployment.name not in seen:
                        seen.add(deployment.name)
                        yield model, deployment

    def _unfit(self, deployment: Deployment, now_s: float) -> NotProbed | None:
        reason = unwell(self._gateway.health_of(deployment.name), self._settings.quiet_s, now_s)
        if reason is not None:
            return reason
        line = self._services.seats.lines.get(deployment.name)
        return NotProbed.FULL if line is not None and not line.has_room else None

    async def _probe(self, model: Model, deployment: Deployment) -> None:
        """Probe one deployment, if the book has money for it."""
        settings, services = self._settings, self._services
        fleet = self._gateway.fleet
        with fleet.lease():
            probe_id = services.new_id()
            fields = asked(settings, model.name, probe_id[-8:])
            fitting = phrased(model, deployment, fields, settings.max_tokens)
            if fitting is None:
                self._wait(deployment.name, NotProbed.UNFIT)
                return
            most = most_usd(deployment, _body_bytes(fields, fitting, deployment), settings)
            if most is None:
                self._wait(deployment.name, NotProbed.NO_PRICE)
                return
            probe = Probe(
                id=probe_id,
                started_at=services.utc_now(),
                model=model.name,
                deployment=deployment.name,
                replica=self._replica,
                reserved_usd=most,
            )
            reason = await self._reserved(probe, settings)
            if reason is not None:
                self._wait(deployment.name, reason)
                return
            call = call_of(
                model,
                fitting,
                fields,
                probe_id=probe_id,
                max_tokens=settings.max_tokens,
                received_at=services.clock(),
                started_at=probe.started_at,
                replica=self._replica,
                region=self._gateway.settings.region,
            )
            open_call = OpenCall(services, call, fleet=fleet, cancelled_as=lambda: ShuttingDown)
            await self._send(probe, open_call, model, deployment)

    async def _reserved(self, probe: Probe, settings: ProbeSettings) -> NotProbed | None:
        """Write the probe down; return why that may not be."""
        since = probe.started_at - timedelta(seconds=min(settings.quiet_s, CALL_S))
        if self._book is None:
            self._book = self._make_book()
        try:
            return await self._book.reserve(
                probe,
                lambda facts: refusal(facts, settings, probe.reserved_usd, probe.started_at),
                since=since,
            )
        except ProbesUnreachable as error:
            _log.warning("probes.unrecorded", deployment=probe.deployment, problem=str(error))
            return NotProbed.UNRECORDED

    async def _send(self, probe: Probe, open_call: OpenCall, model: Model, deployment: Deployment) -> None:
        """Send what is written down, unless a call is there by now, and write down how it ended."""
        services = self._services
        plan = Plan((Launch(deployment.name, 0.0, Role.PRIMARY),), (), Mode.SINGLE)
        try:
            # The book has taken a moment: a call may be there now.
            if self._gateway.hindrance() is None and self._unfit(deployment, services.clock()) is None:
                sink = DiscardingSink(self._settings.max_tokens)
                await Race(open_call, model, plan, sink, permit=lambda _: False).run()
        finally:
            record = open_call.finish(None, status_code=ShuttingDown.status, error_kind=ShuttingDown.code)
            await self._settle(probe, record)

    async def _settle(self, probe: Probe, record: CallRecord) -> None:
        end = _end(record, self._services)
        self._on_end(probe.deployment, end.outcome, probe.reserved_usd if end.cost_usd is None else end.cost_usd)
        _log.info(
            "probe",
            deployment=probe.deployment,
            outcome=str(end.outcome),
            ttft_ms=end.ttft_ms,
            cost_usd=end.cost_usd,
            error=end.error_kind,
        )
        assert self._book is not None
        with suppress(ProbesUnreachable):  # what was reserved stays counted
            await self._book.settle(probe.id, end)

    def _wait(self, name: str, reason: NotProbed) -> None:
        """Ask no more for a while: nothing that is known here tells when it may be probed."""
        if self._told.get(name) is not reason:
            _log.info("probes.not_probed", deployment=name, reason=str(reason))
        self.not_probed[name] = self._told[name] = reason
        self._ask_again_at[name] = self._services.clock() + min(60.0, self._settings.quiet_s / 4)

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        del self._running[name]
        if not task.cancelled() and (defect := task.exception()) is not None:
            self._ask_again_at[name] = self._services.clock() + self._settings.quiet_s
            _log.error("probes.crashed", deployment=name, exc_info=defect)


def _body_bytes(fields: Mapping[str, msgspec.Raw], fitting: Fitting, deployment: Deployment) -> int:
    extra = sum(len(name) + len(bytes(raw)) for name, raw in deployment.extra_body.items())
    return size_of(fitting.wordings.get(deployment.name, fields)) + extra


def _end(record: CallRecord, services: Services) -> ProbeEnd:
    """Return how a probe ended; one that was never launched cost nothing."""
    attempt: AttemptRecord | None = record.attempts[0] if record.attempts else None
    now = services.utc_now()
    if attempt is None:
        return ProbeEnd(ended_at=now, outcome=ProbeOutcome.CANCELLED, cost_usd=0.0)
    outcome = ProbeOutcome.CANCELLED
    if attempt.outcome in _FAILED:
        outcome = ProbeOutcome.FAILED
    elif attempt.outcome is Outcome.WON:
        outcome = ProbeOutcome.ANSWERED
    return ProbeEnd(
        ended_at=now,
        outcome=outcome,
        error_kind=attempt.error_kind,
        ttft_ms=attempt.ttft_ms,
        cost_usd=attempt.cost_high_usd if attempt.cost_high_usd is not None else attempt.cost_usd,
    )
