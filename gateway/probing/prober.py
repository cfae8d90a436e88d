"""Probes quiet deployments: looks now and then who is quiet, and asks the book before it sends anything."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Protocol, Self
from zlib import crc32

import msgspec
import structlog

from gateway.api.fitting import Fitting, Question, fitted
from gateway.api.json_body import CHARS_PER_TOKEN
from gateway.api.request import Needs
from gateway.core.attempts import AttemptRecord, Outcome, Role, WinOn
from gateway.core.calls import Call, CallRecord, Kind, Mode, Objective
from gateway.core.errors import ApiError, ShuttingDown
from gateway.core.prompt_classes import answer_class
from gateway.core.records import Facts, NotProbed, Probe, ProbeBook, ProbeEnd, ProbeOutcome, ProbesUnreachable
from gateway.detecting.writing import A_WEEK, WEEK, WRITTEN_PROMPTS
from gateway.fleet.fleet import Fleet
from gateway.fleet.models import Deployment, Model
from gateway.racing import Block, ClientGone, Forward, GatheringSink, OpenCall, Race, Services, Winner
from gateway.settings import DataPolicy, ProbeSettings, Settings
from gateway.steering import Health, Launch, Plan, State
from providers import UpstreamError
from providers.dialects import PIVOT

# The receiver of a probe's answer: nobody reads it.

BYTES_PER_TOKEN = 2048  # of an event with one token, generously
SPARE_BYTES = 16_384
MOST_CHARS = 1000  # of an answer that is kept: its tokens are few


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


class KeepingSink(DiscardingSink):
    """Keeps the answer to a fixed prompt, which is the gateway's own."""

    streams = False
    understands = True

    def __init__(self, max_tokens: int) -> None:
        super().__init__(max_tokens)
        self._gathering = GatheringSink(PIVOT)

    async def begin(self, winner: Winner) -> Forward | None:
        """Start a new answer."""
        await self._gathering.begin(winner)
        return None

    async def write(self, block: Block) -> None:
        """Add events to it."""
        await super().write(block)
        await self._gathering.write(block)

    def text(self) -> str | None:
        """Return what was written, after what was reasoned; None if there is nothing."""
        choices = msgspec.json.decode(self._gathering.body(), type=_Answer).choices
        message = choices[0].message if choices else _Message()
        text = (message.reasoning_content or message.reasoning or "") + _written(message.content)
        return text[:MOST_CHARS] or None


def _written(parts: "str | list[_Part] | None") -> str:
    if not isinstance(parts, list):
        return parts or ""
    return "".join(_written(part.thinking) + (part.text or "") for part in parts)


class _Part(msgspec.Struct, frozen=True):
    text: str | None = None
    thinking: "str | list[_Part] | None" = None  # Mistral's


class _Message(msgspec.Struct, frozen=True):
    content: str | list[_Part] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct):
    message: _Message


class _Answer(msgspec.Struct):
    choices: list[_Choice] = []


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


def unwell(health: Health, quiet_s: float | None, now_s: float) -> NotProbed | None:
    """Return why a deployment of this health gets no probe at ``now_s``; None: nothing this replica knows of.

    ``quiet_s`` None: it need not be quiet.
    """
    condition = health.condition(now_s)
    if condition.state in _STATES:
        return _STATES[condition.state]
    if health.tripped:  # let in on trial: calls try it, and probes of theirs close the breaker
        return NotProbed.BROKEN
    if quiet_s is not None and (condition.in_flight or now_s - condition.asked_at_s < quiet_s):
        return NotProbed.IN_USE
    return NotProbed.HEADROOM if condition.headroom < HEADROOM else None


def most_usd(
    deployment: Deployment, body_bytes: int, settings: ProbeSettings, max_tokens: int | None = None
) -> float | None:
    """Return the most that a probe with a body of this size can cost, US dollars; None if it is unknown.

    A token has a byte at least.
    """
    price = deployment.price
    if price is None:
        return settings.usd_if_unknown
    answer_usd = _most_of(price.output_usd, price.reasoning_usd) * (max_tokens or settings.max_tokens)
    return _most_of(price.input_usd, price.cache_write_usd) * (body_bytes + OVERHEAD_TOKENS) + answer_usd


def refusal(
    facts: Facts, settings: ProbeSettings, cost_usd: float, now: datetime, turn: "Turn | None" = None
) -> NotProbed | None:
    """Return why the book allows no probe that costs ``cost_usd`` at most; None if it does.

    With a fixed prompt it is the prompt's ``turn``, once, also where there are calls.
    """
    if facts.is_broken:
        return NotProbed.BROKEN
    hindrance = _in_use(facts, settings, now) if turn is None else _is_taken(facts, turn)
    if hindrance is not None:
        return hindrance
    if facts.probes >= settings.max_per_day:
        return NotProbed.NUMBER
    return NotProbed.MONEY if facts.spent_usd + cost_usd > settings.usd_per_day else None


def _is_taken(facts: Facts, turn: "Turn") -> NotProbed | None:
    return NotProbed.IN_USE if facts.written_at is not None and facts.written_at >= turn.since else None


def _in_use(facts: Facts, settings: ProbeSettings, now: datetime) -> NotProbed | None:
    if facts.called_at is not None and facts.called_at > now - timedelta(seconds=settings.quiet_s):
        return NotProbed.IN_USE
    pause = timedelta(seconds=wait_s(settings.quiet_s, facts.failures))
    if facts.probed_at is not None and facts.probed_at > now - pause:
        return NotProbed.BACKED_OFF if facts.failures else NotProbed.IN_USE
    return None


def _most_of(usd: float, other_usd: float | None) -> float:
    return max(usd, other_usd or 0.0)


# What a probe asks: one short prompt, the same each time but for its salt, as a call to one deployment.

_SMALL = answer_class(0)


def asked(settings: ProbeSettings, model: str, salt: str) -> Mapping[str, msgspec.Raw]:
    """Return the request's fields. The salt is in front, so that no provider has the prompt in a cache."""
    return _fields(model, f"{salt}: {settings.prompt}", max_tokens=settings.max_tokens)


def _fields(model: str, text: str, **more: object) -> Mapping[str, msgspec.Raw]:
    fields = {"model": model, "messages": [{"role": "user", "content": text}], "stream": True, **more}
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}


# The fixed prompts, which are never salted: each deployment is asked one after the other in turns of twenty minutes,
# so that each has its number of answers in a week, at other hours each day.

WRITTEN_TOKENS = 50  # of an answer, at most
TURN_S = WEEK.total_seconds() / (len(WRITTEN_PROMPTS) * A_WEEK)


class Turn(msgspec.Struct, frozen=True):
    """Which prompt a deployment is asked now, by whichever replica is first, and since when."""

    prompt: int
    since: datetime

    @classmethod
    def of(cls, deployment: str, now: datetime) -> Self:
        """Return the turn at ``now``; those of deployments begin at different times."""
        phase_s = crc32(deployment.encode()) % 3600
        number = int((now.timestamp() - phase_s) // TURN_S)
        return cls(number % len(WRITTEN_PROMPTS), datetime.fromtimestamp(number * TURN_S + phase_s, UTC))

    def asked(self, model: str) -> Mapping[str, msgspec.Raw]:
        """Return the request's fields."""
        return _fields(model, WRITTEN_PROMPTS[self.prompt], max_tokens=WRITTEN_TOKENS, temperature=1)


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


def candidates(settings: Settings, fleet: Fleet, *, default: bool) -> Iterator[tuple[Model, Deployment]]:
    """Yield the deployments to be probed, each for the first of its models; ``default``: unless the model says."""
    seen = set()
    for name, model in fleet.models.items():
        own = settings.models[name].probes if name in settings.models else None
        if default if own is None else own:
            for deployment in model.deployments.values():
                if deployment.name not in seen:
                    seen.add(deployment.name)
                    yield model, deployment


def asked_fixed_prompts(settings: Settings, fleet: Fleet) -> list[tuple[Model, Deployment]]:
    """Return the deployments that are asked the fixed prompts."""
    return list(candidates(settings, fleet, default=True)) if settings.probes.same_model else []


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
        self._turns: dict[str, Turn] = {}  # the last one that this process has taken or has found taken, by deployment
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
        now_s, settings = self._services.clock(), self._settings
        self._take_turns(now_s)
        for model, deployment in self._quiet():
            name = deployment.name
            if name in self._running:
                continue
            reason = self._gateway.hindrance() or self._unfit(deployment, settings.quiet_s, now_s)
            if reason is not None:
                self.not_probed[name] = reason
            elif now_s >= self._ask_again_at.get(name, now_s):
                self._begin(model, deployment, None)

    def _take_turns(self, now_s: float) -> None:
        """Ask deployments whose turn has begun their fixed prompt. Each process tries each turn once."""
        now = self._services.utc_now()
        for model, deployment in asked_fixed_prompts(self._gateway.settings, self._gateway.fleet):
            name, turn = deployment.name, Turn.of(deployment.name, now)
            if name in self._running or turn == self._turns.get(name) or self._gateway.hindrance() is not None:
                continue
            if self._unfit(deployment, None, now_s) is None and self._begin(model, deployment, turn):
                self._turns[name] = turn

    def _begin(self, model: Model, deployment: Deployment, turn: Turn | None) -> bool:
        if len(self._running) >= AT_ONCE:
            return False
        name = deployment.name
        task = asyncio.get_running_loop().create_task(self._probe(model, deployment, turn), name=f"probe {name}")
        self._running[name] = task
        task.add_done_callback(partial(self._ended, name))
        return True

    async def _keep_looking(self) -> None:
        while True:
            every_s = LOOK_MAX_S
            if next(self._quiet(), None) is not None or self._settings.same_model:  # replicas shall not look together
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
        """Yield the deployments to be probed when they are quiet."""
        settings = self._gateway.settings
        return candidates(settings, self._gateway.fleet, default=settings.probes.enabled)

    def _unfit(self, deployment: Deployment, quiet_s: float | None, now_s: float) -> NotProbed | None:
        reason = unwell(self._gateway.health_of(deployment.name), quiet_s, now_s)
        if reason is not None:
            return reason
        line = self._services.seats.lines.get(deployment.name)
        return NotProbed.FULL if line is not None and not line.has_room else None

    async def _probe(self, model: Model, deployment: Deployment, turn: Turn | None) -> None:
        """Probe one deployment, if the book has money for it."""
        settings, services = self._settings, self._services
        fleet = self._gateway.fleet
        with fleet:
            probe_id = services.new_id()
            fields = asked(settings, model.name, probe_id[-8:]) if turn is None else turn.asked(model.name)
            max_tokens = settings.max_tokens if turn is None else WRITTEN_TOKENS
            fitting = phrased(model, deployment, fields, max_tokens)
            if fitting is None:
                self._wait(deployment.name, NotProbed.UNFIT, turn)
                return
            most = most_usd(deployment, _body_bytes(fields, fitting, deployment), settings, max_tokens)
            if most is None:
                self._wait(deployment.name, NotProbed.NO_PRICE, turn)
                return
            probe = Probe(
                id=probe_id,
                started_at=services.utc_now(),
                model=model.name,
                deployment=deployment.name,
                replica=self._replica,
                reserved_usd=most,
                prompt=None if turn is None else turn.prompt,
            )
            reason = await self._reserved(probe, settings, turn)
            if reason is not None:
                self._wait(deployment.name, reason, turn)
                return
            call = call_of(
                model,
                fitting,
                fields,
                probe_id=probe_id,
                max_tokens=max_tokens,
                received_at=services.clock(),
                started_at=probe.started_at,
                replica=self._replica,
                region=self._gateway.settings.region,
            )
            open_call = OpenCall(services, call, fleet=fleet, cancelled_as=lambda: ShuttingDown)
            await self._send(probe, open_call, model, deployment)

    async def _reserved(self, probe: Probe, settings: ProbeSettings, turn: Turn | None) -> NotProbed | None:
        """Write the probe down; return why that may not be."""
        since = probe.started_at - timedelta(seconds=min(settings.quiet_s, CALL_S))
        if self._book is None:
            self._book = self._make_book()
        try:
            return await self._book.reserve(
                probe,
                lambda facts: refusal(facts, settings, probe.reserved_usd, probe.started_at, turn),
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
        is_kept = probe.prompt is not None
        quiet_s = None if is_kept else self._settings.quiet_s
        sink = KeepingSink(WRITTEN_TOKENS) if is_kept else DiscardingSink(self._settings.max_tokens)
        try:
            # The book has taken a moment: a call may be there now.
            if self._gateway.hindrance() is None and self._unfit(deployment, quiet_s, services.clock()) is None:
                await Race(open_call, model, plan, sink, permit=lambda _: False).run()
        finally:
            record = open_call.finish(None, status_code=ShuttingDown.status, error_kind=ShuttingDown.code)
            await self._settle(probe, record, sink)

    async def _settle(self, probe: Probe, record: CallRecord, sink: DiscardingSink) -> None:
        end = _end(record, self._services)
        if isinstance(sink, KeepingSink) and end.outcome is ProbeOutcome.ANSWERED:
            end = msgspec.structs.replace(end, answer=sink.text())
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

    def _wait(self, name: str, reason: NotProbed, turn: Turn | None) -> None:
        """Ask no more for a while, or in this turn: nothing that is known here tells when it may be probed."""
        if turn is not None and reason is NotProbed.IN_USE:
            return  # another replica has taken it
        if self._told.get(name) is not reason:
            # Event probes.not_probed: A deployment is not probed, for this `reason`; said once for each reason.
            # Do: Nothing, mostly. `no_price`: set `price_per_mtok` or `probes.usd_if_unknown`. `usd_per_day`,
            # `max_per_day`: the limit of the day is reached. See [probes](../detector.md#probes).
            _log.info("probes.not_probed", deployment=name, reason=str(reason))
        self.not_probed[name] = self._told[name] = reason
        if turn is None:
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
