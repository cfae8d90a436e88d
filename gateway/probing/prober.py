"""Probes quiet deployments: looks now and then who is quiet, and asks the book before it sends anything."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Protocol

import msgspec
import structlog

from gateway.api.fitting import Fitting, Question, fitted
from gateway.api.json_body import CHARS_PER_TOKEN
from gateway.api.request import Needs
from gateway.core.attempts import AttemptRecord, AttemptStart, Outcome, Role, WinOn
from gateway.core.calls import Call, CallRecord, CallStart, Kind, Mode, Objective
from gateway.core.errors import ApiError, ShuttingDown
from gateway.core.prompt_classes import PromptClass, answer_class
from gateway.core.records import PROBES, Facts, NotProbed, Probe, ProbeBook, ProbeEnd, ProbeOutcome, ProbesUnreachable
from gateway.fleet.fleet import Fleet
from gateway.fleet.models import Deployment, Model
from gateway.racing import Block, ClientGone, Forward, OpenCall, Race, Services, Winner
from gateway.settings import DataPolicy, ProbeSettings, Settings
from gateway.steering import Health, Launch, Plan, State
from providers import Price, UpstreamError
from providers.dialects import PIVOT

# The receiver of a probe's answer: nobody reads it.

BYTES_PER_TOKEN = 2048  # of an event with one token, generously
SPARE_BYTES = 16_384


class DiscardingSink:
    """Takes the answer and drops it; one much longer than was asked for is cut, as it costs money."""

    streams = True
    understands = False

    def __init__(self, max_tokens: int) -> None:
        self._room = SPARE_BYTES + BYTES_PER_TOKEN * max_tokens

    async def begin(self, winner: Winner) -> Forward | None:
        """Do nothing."""

    def may_be_continued(self, error: UpstreamError) -> bool:  # noqa: ARG002 - as a Sink
        """Never: no client waits for the rest of a probe."""
        return False

    async def write(self, block: Block) -> None:
        """Count the bytes.

        Raises:
            ClientGone: it is too long: ``max_tokens`` was not heeded.

        """
        self._room -= len(block.forward)
        if self._room < 0:
            raise ClientGone

    async def end(self, last: Block) -> None:
        """Do nothing."""

    async def fail(self, error: UpstreamError) -> None:
        """Do nothing: the attempt's record has the error."""


# When a deployment is probed: pure rules, over what this replica knows of its health and what the book says.

HEADROOM = 0.25  # below this share of its rate limit, what is left is for calls
MAX_DOUBLINGS = 6  # of the wait after failures in a row
MAX_WAIT_S = 86_400.0
OVERHEAD_TOKENS = 64  # what a provider may add to a prompt: a template, a system prompt of its own

_STATES = {
    State.OUT: NotProbed.OUT,
    State.COOLING: NotProbed.COOLING,
    State.OPEN: NotProbed.BROKEN,
    State.HALF_OPEN: NotProbed.BROKEN,
}


def wait_s(quiet_s: float, failures: int) -> float:
    """Return the seconds from one probe of a deployment to its next, after so many failed ones in a row."""
    return min(max(quiet_s, MAX_WAIT_S), quiet_s * 2.0 ** min(failures, MAX_DOUBLINGS))


def unwell(health: Health, quiet_s: float, now_s: float) -> NotProbed | None:
    """Return why a deployment of this health gets no probe at ``now_s``; None: nothing this replica knows of."""
    condition = health.condition(now_s)
    if condition.state in _STATES:
        return _STATES[condition.state]
    if health.tripped:  # let in on trial: calls try it, and probes of theirs close the breaker
        return NotProbed.BROKEN
    if condition.in_flight or now_s - condition.asked_at_s < quiet_s:
        return NotProbed.IN_USE
    return NotProbed.HEADROOM if condition.headroom < HEADROOM else None


def most_usd(deployment: Deployment, body_bytes: int, settings: ProbeSettings) -> float | None:
    """Return the most that a probe with a body of this size can cost, US dollars; None if it is unknown.

    A token has a byte at least.
    """
    price = deployment.price
    if price is None:
        return settings.usd_if_unknown
    return _most_of(price.input_usd, price.cache_write_usd) * (body_bytes + OVERHEAD_TOKENS) + _answer(price, settings)


def refusal(facts: Facts, settings: ProbeSettings, cost_usd: float, now: datetime) -> NotProbed | None:
    """Return why the book allows no probe that costs ``cost_usd`` at most; None if it does."""
    if facts.is_broken:
        return NotProbed.BROKEN
    if facts.called_at is not None and facts.called_at > now - timedelta(seconds=settings.quiet_s):
        return NotProbed.IN_USE
    pause = timedelta(seconds=wait_s(settings.quiet_s, facts.failures))
    if facts.probed_at is not None and facts.probed_at > now - pause:
        return NotProbed.BACKED_OFF if facts.failures else NotProbed.IN_USE
    if facts.probes >= settings.max_per_day:
        return NotProbed.NUMBER
    return NotProbed.MONEY if facts.spent_usd + cost_usd > settings.usd_per_day else None


def _answer(price: Price, settings: ProbeSettings) -> float:
    return _most_of(price.output_usd, price.reasoning_usd) * settings.max_tokens


def _most_of(usd: float, other_usd: float | None) -> float:
    return max(usd, other_usd or 0.0)


# What a probe asks: one short prompt, the same each time but for its salt, as a call to one deployment.

_SMALL = answer_class(0)


def asked(settings: ProbeSettings, model: str, salt: str) -> Mapping[str, msgspec.Raw]:
    """Return the request's fields. The salt is in front, so that no provider has the prompt in a cache."""
    message = {"role": "user", "content": f"{salt}: {settings.prompt}"}
    fields = {"model": model, "messages": [message], "max_tokens": settings.max_tokens, "stream": True}
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}


def size_of(fields: Mapping[str, msgspec.Raw]) -> int:
    """Return the bytes of the prompt, and of what is beside it."""
    return sum(len(name) + len(bytes(raw)) for name, raw in fields.items())


def phrased(model: Model, deployment: Deployment, fields: Mapping[str, msgspec.Raw], max_tokens: int) -> Fitting | None:
    """Return what ``deployment`` is sent; None if it cannot be asked for an answer."""
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
    """Return the probe as a call, of no client."""
    prompt_tokens = size_of(fields) // CHARS_PER_TOKEN
    return Call(
        id=probe_id,
        received_at=received_at,
        started_at=started_at,
        client=None,
        model=model.name,
        endpoint=PIVOT.endpoint,
        streamed=True,
        mode=Mode.SINGLE,
        objective=Objective.FIRST_TOKEN,
        win_on=WinOn(model.race.win_on),
        prompt_class=_SMALL,
        prompt_tokens=prompt_tokens,
        wants_usage=False,
        fields=fields,
        wordings=fitting.wordings,
        dropped=fitting.dropped,
        headers={},
        tags={},
        replica=replica,
        region=region,
        kind=Kind(endpoint=PIVOT.endpoint, max_tokens=max_tokens, prompt_tokens=prompt_tokens),
        is_narrowed=True,
    )


AT_ONCE = 4  # probes of this process
LOOK_MIN_S, LOOK_MAX_S = 0.25, 15.0  # between two looks: a quarter of ``quiet_s``, in these bounds
CALL_S = 3600.0  # how far back the ledger is asked for calls of other replicas, at most

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
                # Event probes.not_looked: One look for quiet deployments failed. The next one follows.
                # Do: It is a bug: report it with the trace.
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
        with fleet:
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
            # Event probes.unrecorded: A probe was not sent, because its cost could not be written to the database.
            # Do: Make the database reachable. Nothing is lost meanwhile.
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
        with suppress(ProbesUnreachable):  # what was reserved stays counted
            await self._book.settle(probe.id, end)

    def _wait(self, name: str, reason: NotProbed) -> None:
        """Ask no more for a while: nothing that is known here tells when it may be probed."""
        if self._told.get(name) is not reason:
            # Event probes.not_probed: A quiet deployment is not probed, for this `reason`; said once for each reason.
            # Do: Nothing, mostly. `no_price`: set `price_per_mtok` or `probes.usd_if_unknown`. `usd_per_day`,
            # `max_per_day`: the limit of the day is reached. See [probes](../detector.md#probes).
            _log.info("probes.not_probed", deployment=name, reason=str(reason))
        self.not_probed[name] = self._told[name] = reason
        self._ask_again_at[name] = self._services.clock() + min(60.0, self._settings.quiet_s / 4)

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        del self._running[name]
        if not task.cancelled() and (defect := task.exception()) is not None:
            self._ask_again_at[name] = self._services.clock() + self._settings.quiet_s
            # Event probes.crashed: A probe failed by a bug. The deployment is probed again later.
            # Do: It is a bug: report it with the trace.
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
    if attempt.outcome.failed:
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


# Who hears of a probe: steering and the ledger's attempts. Nothing that counts calls, clients or their money.

NUMBER = 0  # of a probe's attempt: it belongs to no call


class Learns(Protocol):
    """Learns from attempts (steering)."""

    def attempt_started(self, model: str, start: AttemptStart) -> None:
        """An attempt starts."""

    def first_token(
        self, model: str, prompt_class: PromptClass, start: AttemptStart, ttft_s: float, ago_s: float
    ) -> None:
        """An attempt has its first token."""

    def attempt_ended(self, model: str, prompt_class: PromptClass, attempt: AttemptRecord, ago_s: float) -> None:
        """An attempt has ended."""


class Counts(Protocol):
    """Counts attempts (metrics)."""

    def attempt_started(self, model: str, start: AttemptStart) -> None:
        """An attempt starts."""

    def attempt_ended(self, model: str, attempt: AttemptRecord) -> None:
        """An attempt has ended."""


class Stores(Protocol):
    """Stores attempts (the ledger)."""

    def attempts_ended(self, call_id: str, attempts: tuple[AttemptRecord, ...]) -> None:
        """Attempts have ended."""


class ProbeRecorder:
    """The recorder of probes."""

    def __init__(self, learns: Learns, counts: Counts, stores: Stores) -> None:
        self._learns = learns
        self._counts = counts
        self._stores = stores

    def call_started(self, start: CallStart) -> None:
        """Do nothing: the book has it."""

    def attempt_started(self, call: Call, start: AttemptStart) -> None:
        """Count it as in flight."""
        start = _started(start)
        self._learns.attempt_started(call.model, start)
        self._counts.attempt_started(call.model, start)

    def first_token(
        self, model: str, prompt_class: PromptClass, start: AttemptStart, ttft_s: float, ago_s: float
    ) -> None:
        """Count it on the board."""
        self._learns.first_token(model, prompt_class, _started(start), ttft_s, ago_s)

    def attempt_ended(self, model: str, prompt_class: PromptClass, attempt: AttemptRecord, ago_s: float) -> None:
        """Update board, health and metrics."""
        attempt = as_probe(attempt)
        self._learns.attempt_ended(model, prompt_class, attempt, ago_s)
        self._counts.attempt_ended(model, attempt)

    def call_finished(self, record: CallRecord) -> None:
        """Store its attempt, not the call: there was none."""
        if record.attempts:
            self._stores.attempts_ended(record.id, tuple(as_probe(attempt) for attempt in record.attempts))

    def attempt_audited(self, model: str, attempt: AttemptRecord, duplicate_usd: float | None) -> None:
        """Never called: nothing else runs, so nothing loses."""


def as_probe(attempt: AttemptRecord) -> AttemptRecord:
    """Return the record of a probe's attempt.

    It is without what figures of calls and clients are made of: gaps between chunks, caches and the quality of answers.
    """
    return msgspec.structs.replace(
        attempt,
        role=Role.PROBE,
        number=NUMBER,
        api=PROBES,
        itl=None,
        cached_tokens=None,
        cache_write_tokens=None,
        cache_saved_usd=None,
        judged_as=None,
        flaw=None,
    )


def _started(start: AttemptStart) -> AttemptStart:
    return msgspec.structs.replace(start, role=Role.PROBE, number=NUMBER)
