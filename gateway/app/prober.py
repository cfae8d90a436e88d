"""Probes quiet deployments: looks for them at intervals, and reserves each probe in the book before it is sent."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import date, datetime, timedelta
from functools import partial
from random import Random
from typing import Protocol

import msgspec
import structlog

from gateway.api import Fitting, Needs, Question, fitted
from gateway.core.attempts import AttemptRecord, Outcome, WinOn
from gateway.core.calls import Call, Caller, CallKind, CallRecord, CallRequest, CallTraits, Decision, Mode, Objective
from gateway.core.errors import ApiError, ShuttingDown
from gateway.core.prompt_classes import answer_class, spoken_class
from gateway.core.records import DailyFacts, NotProbed, Probe, ProbeBook, ProbeEnd, ProbeOutcome, ProbesUnreachable
from gateway.fleet import Deployment, Fleet, Model
from gateway.http import CHARS_PER_TOKEN
from gateway.racing import Block, ClientGone, Forward, OpenCall, Race, Services, Winner
from gateway.settings import DataPolicy, ProbeSettings, Settings
from gateway.steering import Health, HealthState, Plan
from providers import UpstreamError
from providers.dialects import PIVOT

# The sink of probes, which have no client.

BYTES_PER_TOKEN = 2048  # upper bound for an event with one token
SPARE_BYTES = 16_384


class DiscardingSink:
    """Drops the answer; one much longer than requested is cancelled, as it costs money."""

    streams = True
    understands = False

    def __init__(self, max_tokens: int) -> None:
        self._room = SPARE_BYTES + BYTES_PER_TOKEN * max_tokens

    async def begin(self, winner: Winner) -> Forward | None:
        """Do nothing."""

    def may_be_continued(self, error: UpstreamError) -> bool:  # noqa: ARG002 - as a Sink
        """Return False: no client waits for the rest of a probe."""
        return False

    async def write(self, block: Block) -> None:
        """Count the bytes.

        Raises:
            ClientGone: the answer is too long: the provider ignored ``max_tokens``

        """
        self._room -= len(block.forward)
        if self._room < 0:
            raise ClientGone

    async def end(self, last: Block) -> None:
        """Do nothing."""

    async def fail(self, error: UpstreamError) -> None:
        """Do nothing: the attempt's record has the error."""


# The rules for when a deployment is probed: pure functions of its health in this replica, and of the book's facts.

HEADROOM = 0.25  # the least unused part of a rate limit; a smaller part is left to calls
MAX_DOUBLINGS = 6  # of the wait after failures in a row
MAX_WAIT_S = 86_400.0
OVERHEAD_TOKENS = 64  # a provider's possible addition to a prompt: a template, its own system prompt

_STATES = {
    HealthState.OUT: NotProbed.OUT,
    HealthState.COOLING: NotProbed.COOLING,
    HealthState.OPEN: NotProbed.BROKEN,
    HealthState.HALF_OPEN: NotProbed.BROKEN,
}


def wait_s(quiet_s: float, failures: int) -> float:
    """Return the seconds from one probe of a deployment to its next, after so many failed ones in a row."""
    return min(max(quiet_s, MAX_WAIT_S), quiet_s * 2.0 ** min(failures, MAX_DOUBLINGS))


def unwell(health: Health, quiet_s: float, now_s: float) -> NotProbed | None:
    """Return why a deployment of this health gets no probe at ``now_s``; None if this replica has no reason."""
    condition = health.condition(now_s)
    if condition.state in _STATES:
        return _STATES[condition.state]
    if health.tripped:  # on trial: calls test it, and close the breaker
        return NotProbed.BROKEN
    if condition.in_flight or now_s - condition.launched_at_s < quiet_s:
        return NotProbed.IN_USE
    return NotProbed.HEADROOM if condition.headroom < HEADROOM else None


def most_usd(deployment: Deployment, body_bytes: int, settings: ProbeSettings) -> float | None:
    """Return the maximum cost of a probe with a body of this size, in US dollars; None if the cost is unknown.

    A token has at least one byte.
    """
    price = deployment.price
    if price is None:
        return settings.usd_if_unknown
    answer_usd = _most_of(price.output_usd, price.reasoning_usd) * settings.max_tokens
    return _most_of(price.input_usd, price.cache_write_usd) * (body_bytes + OVERHEAD_TOKENS) + answer_usd


def refusal(facts: DailyFacts, settings: ProbeSettings, cost_usd: float, now: datetime) -> NotProbed | None:
    """Return why the book allows no probe with a cost of at most ``cost_usd``; None if a probe is allowed."""
    if facts.is_broken:
        return NotProbed.BROKEN
    hindrance = _in_use(facts, settings, now)
    if hindrance is not None:
        return hindrance
    if facts.probes >= settings.max_per_day:
        return NotProbed.NUMBER
    return NotProbed.MONEY if facts.spent_usd + cost_usd > settings.usd_per_day else None


def _in_use(facts: DailyFacts, settings: ProbeSettings, now: datetime) -> NotProbed | None:
    if facts.called_at is not None and facts.called_at > now - timedelta(seconds=settings.quiet_s):
        return NotProbed.IN_USE
    pause = timedelta(seconds=wait_s(settings.quiet_s, facts.failures))
    if facts.probed_at is not None and facts.probed_at > now - pause:
        return NotProbed.BACKED_OFF if facts.failures else NotProbed.IN_USE
    return None


def _most_of(usd: float, other_usd: float | None) -> float:
    return max(usd, other_usd or 0.0)


# The request of a probe: a short prompt, the same each time except for its salt, as a call to one deployment.

_SMALL = answer_class(0)
_SPOKEN = spoken_class(_SMALL)


def salted(settings: ProbeSettings, model: str, salt: str) -> Mapping[str, msgspec.Raw]:
    """Return the request's fields. The salt comes first, so that no provider has the prompt in its cache."""
    fields = {
        "model": model,
        "messages": [{"role": "user", "content": f"{salt}: {settings.prompt}"}],
        "stream": True,
        "max_tokens": settings.max_tokens,
    }
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}


def size_of(fields: Mapping[str, msgspec.Raw]) -> int:
    """Return the bytes of all fields."""
    return sum(len(name) + len(bytes(raw)) for name, raw in fields.items())


def fit(model: Model, deployment: Deployment, fields: Mapping[str, msgspec.Raw], max_tokens: int) -> Fitting | None:
    """Return the request in the form for ``deployment``; None if the deployment has no API for answers."""
    needs = Needs(size_of(fields) // CHARS_PER_TOKEN, max_tokens)
    try:
        return fitted(Question(model.name, PIVOT, fields, needs, DataPolicy()), [deployment])
    except ApiError:
        return None


def call_of(
    model: Model,
    fitting: Fitting,
    fields: Mapping[str, msgspec.Raw],
    *,
    probe_id: str,
    max_tokens: int,
    received_at: float,
    started_at: datetime,
    replica: str,
    region: str | None,
) -> Call:
    """Return the probe as a call without a client."""
    prompt_tokens, win_on = size_of(fields) // CHARS_PER_TOKEN, WinOn(model.race.win_on)
    return Call(
        CallRequest(dialect=PIVOT, model=model.name, fields=fields, stream=True, wants_usage=False),
        Caller(id=probe_id, received_at=received_at, started_at=started_at, replica=replica, region=region),
        Decision(
            model=model.name,
            endpoint=PIVOT.endpoint,
            mode=Mode.SINGLE,
            objective=Objective.FIRST_TOKEN,
            win_on=WinOn.ANY if win_on is WinOn.VALID else win_on,  # text is always valid, as in calls
            sentence_words=model.race.sentence_words,
        ),
        CallTraits(
            prompt_class=_SPOKEN if win_on is WinOn.SENTENCE else _SMALL,
            prompt_tokens=prompt_tokens,
            kind=CallKind(endpoint=PIVOT.endpoint, max_tokens=max_tokens, prompt_tokens=prompt_tokens),
            is_restricted=True,
        ),
        fitting.rendered,
    )


def candidates(settings: Settings, fleet: Fleet, *, default: bool) -> Iterator[tuple[Model, Deployment]]:
    """Yield the deployments to probe, each for its first model; ``default`` holds for models without the setting."""
    seen = set()
    for name, model in fleet.models.items():
        setting = settings.models[name].probes if name in settings.models else None
        if default if setting is None else setting:
            for deployment in model.deployments.values():
                if deployment.name not in seen:
                    seen.add(deployment.name)
                    yield model, deployment


AT_ONCE = 4  # probes of this process
LOOK_MIN_S, LOOK_MAX_S = 0.25, 15.0  # between two looks: a quarter of ``quiet_s``, in these bounds
CALL_S = 3600.0  # maximum age of other replicas' calls that are looked for in the ledger

_log = structlog.get_logger(__name__)


class ProbedGateway(Protocol):
    """The parts of the gateway used by probes, in their present state."""

    @property
    def settings(self) -> Settings:
        """The settings in force."""

    @property
    def fleet(self) -> Fleet:
        """The fleet in use."""

    def health_of(self, deployment: str) -> Health:
        """Return the health of a deployment in this replica."""

    def hindrance(self) -> NotProbed | None:
        """Return why nothing may be probed now: the gateway stops, or is overloaded."""


class Prober:
    """Sends the probes of one process. ``start`` it once; ``close`` cancels running probes and waits for them."""

    def __init__(
        self,
        gateway: ProbedGateway,
        book: Callable[[], ProbeBook],
        services: Services,
        *,
        random: Random,
        replica: str,
        on_end: Callable[[str, str, float], None] = lambda *_: None,
    ) -> None:
        """``services`` have a recorder and tasks for probes only. ``book`` is called at the first probe.

        ``on_end`` is called with the deployment, the outcome, and the upper bound of the cost in US dollars.
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
        self._logged: dict[str, NotProbed] = {}  # by deployment: the reason logged last
        self.not_probed: dict[str, NotProbed] = {}  # by deployment: the reason at the last look

    def start(self) -> None:
        """Look for quiet deployments from now on, while the settings enable probes; a reload may change them."""
        self._looking = asyncio.get_running_loop().create_task(self._keep_looking(), name="probes")

    async def close(self) -> None:
        """Cancel running probes, and wait until each is recorded."""
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
        now_s, settings = self._services.clock(), self._settings
        for model, deployment in self._quiet():
            name = deployment.name
            if name in self._running:
                continue
            reason = NotProbed.ACTS if deployment.acts else self._gateway.hindrance()
            reason = reason or self._unfit(deployment, settings.quiet_s, now_s)
            if reason is not None:
                self.not_probed[name] = reason
            elif now_s >= self._ask_again_at.get(name, now_s):
                self._begin(model, deployment)

    def _begin(self, model: Model, deployment: Deployment) -> None:
        if len(self._running) >= AT_ONCE:
            return
        name = deployment.name
        task = asyncio.get_running_loop().create_task(self._probe(model, deployment), name=f"probe {name}")
        self._running[name] = task
        task.add_done_callback(partial(self._ended, name))

    async def _keep_looking(self) -> None:
        while True:
            every_s = LOOK_MAX_S
            if next(self._quiet(), None) is not None:  # not all replicas at once
                every_s = min(every_s, max(LOOK_MIN_S, self._settings.quiet_s / 4)) * self._random.uniform(0.8, 1.2)
            await asyncio.sleep(every_s)
            try:
                self.look()
            except Exception:  # noqa: BLE001 - a defect in one look must not end all later ones
                # Event probes.not_looked: One look for quiet deployments failed. The next one follows.
                # Do: It is a bug: report it with the trace.
                _log.exception("probes.not_looked")

    @property
    def _settings(self) -> ProbeSettings:
        return self._gateway.settings.probes

    def _quiet(self) -> Iterator[tuple[Model, Deployment]]:
        """Yield the deployments to probe in quiet times."""
        settings = self._gateway.settings
        return candidates(settings, self._gateway.fleet, default=settings.probes.enabled)

    def _unfit(self, deployment: Deployment, quiet_s: float, now_s: float) -> NotProbed | None:
        reason = unwell(self._gateway.health_of(deployment.name), quiet_s, now_s)
        if reason is not None:
            return reason
        slots = self._services.seats.lines.get(deployment.name)
        return NotProbed.FULL if slots is not None and not slots.has_room else None

    async def _probe(self, model: Model, deployment: Deployment) -> None:
        """Probe one deployment, if the book allows a probe."""
        settings, services = self._settings, self._services
        fleet = self._gateway.fleet
        with fleet:
            probe_id = services.new_id()
            fields = salted(settings, model.name, probe_id[-8:])
            fitting = fit(model, deployment, fields, settings.max_tokens)
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
        """Reserve the probe in the book; return the reason for a refusal, else None."""
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
            # Event probes.unrecorded: A probe was not sent, as its cost could not be written to the database.
            # Do: Make the database reachable. Nothing is lost.
            _log.warning("probes.unrecorded", deployment=probe.deployment, problem=str(error))
            return NotProbed.UNRECORDED

    async def _send(self, probe: Probe, open_call: OpenCall, model: Model, deployment: Deployment) -> None:
        """Send a reserved probe, unless the deployment is in use by now, and store the probe's end."""
        services = self._services
        plan = Plan.at(deployment.name)
        quiet_s, sink = self._settings.quiet_s, DiscardingSink(self._settings.max_tokens)
        try:
            # A call may have begun during the reservation.
            if self._gateway.hindrance() is None and self._unfit(deployment, quiet_s, services.clock()) is None:
                await Race(open_call, model, plan, sink, may_launch=lambda _: False).run()
        finally:
            record = open_call.finish(None, status_code=ShuttingDown.status, error_kind=ShuttingDown.code)
            await self._settle(probe, record)

    async def _settle(self, probe: Probe, record: CallRecord) -> None:
        end = _end(record, self._services)
        self._on_end(probe.deployment, end.outcome, probe.reserved_usd if end.cost_usd is None else end.cost_usd)
        # Event probe: A probe of a quiet deployment has ended: `outcome`, time to the first token, cost.
        # Do: Nothing.
        _log.info(
            "probe",
            deployment=probe.deployment,
            outcome=str(end.outcome),
            ttft_ms=end.ttft_ms,
            cost_usd=end.cost_usd,
            error=end.error_kind,
        )
        assert self._book is not None
        with suppress(ProbesUnreachable):  # the reservation stays counted
            await self._book.settle(probe.id, end)

    def _wait(self, name: str, reason: NotProbed) -> None:
        """Pause the deployment for a while, as the time of its next probe is unknown here."""
        if self._logged.get(name) is not reason:
            # Event probes.not_probed: A deployment is not probed, for this `reason`; said once for each reason.
            # Do: For `no_price`, set `price_per_mtok` or `probes.usd_if_unknown` ([probes](../monitoring.md#probes)).
            _log.info("probes.not_probed", deployment=name, reason=str(reason))
        self.not_probed[name] = self._logged[name] = reason
        self._ask_again_at[name] = self._services.clock() + min(60.0, self._settings.quiet_s / 4)

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        del self._running[name]
        if not task.cancelled() and (defect := task.exception()) is not None:
            self._ask_again_at[name] = self._services.clock() + self._settings.quiet_s
            # Event probes.crashed: A probe failed by a bug.
            # Do: It is a bug: report it with the trace.
            _log.error("probes.crashed", deployment=name, exc_info=defect)


def _body_bytes(fields: Mapping[str, msgspec.Raw], fitting: Fitting, deployment: Deployment) -> int:
    extra = sum(len(name) + len(bytes(raw)) for name, raw in deployment.extra_body.items())
    return size_of(fitting.sent_to(deployment.name, fields)) + extra


def _end(record: CallRecord, services: Services) -> ProbeEnd:
    """Return the end of a probe; a probe without an attempt cost nothing."""
    # A probe with a refused key has a further attempt, with the next key.
    attempt: AttemptRecord | None = record.attempts[-1] if record.attempts else None
    now = services.utc_now()
    if attempt is None:
        return ProbeEnd(ended_at=now, outcome=ProbeOutcome.CANCELLED, cost_usd=0.0)
    outcome = ProbeOutcome.CANCELLED
    if attempt.outcome.failed:
        outcome = ProbeOutcome.FAILED
    elif attempt.outcome is Outcome.WON:
        outcome = ProbeOutcome.ANSWERED
    return ProbeEnd(
        ended_at=now,
        outcome=outcome,
        error_kind=attempt.error_kind,
        ttft_ms=attempt.ttft_ms,
        cost_usd=attempt.counted_high_usd if attempt.counted_high_usd is not None else attempt.cost_usd,
    )


class SpentToday:
    """The probes' cost in this process since the last midnight (UTC), in US dollars."""

    def __init__(self, utc_now: Callable[[], datetime]) -> None:
        self._now = utc_now
        self._day = self._today()
        self._usd = 0.0

    @property
    def usd(self) -> float:
        """The highest possible cost so far."""
        self._turn()
        return self._usd

    def add(self, usd: float) -> None:
        """Count the cost of a probe that has ended."""
        self._turn()
        self._usd += usd

    def _turn(self) -> None:
        today = self._today()
        if today != self._day:
            self._day, self._usd = today, 0.0

    def _today(self) -> date:
        return self._now().date()
