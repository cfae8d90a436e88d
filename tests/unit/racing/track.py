"""A race track in memory: upstreams that answer by a timetable, a sink and a recorder that remember what they saw."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from gateway.api.call_runner import total_failure
from gateway.core.attempts import AttemptRecord, AttemptStart, Invalid, Role, WinOn
from gateway.core.calls import Call, CallRecord, CallStart, Mode, Objective
from gateway.core.errors import ApiError, ClientDisconnected
from gateway.core.prompt_classes import PromptClass, answer_class
from gateway.fleet import Clocks, Deployment, Model
from gateway.racing import (
    Attempt,
    AttemptTasks,
    Block,
    BrokenAnswer,
    ClientGone,
    FallbackModels,
    Forward,
    GatheringSink,
    NoAnswer,
    OpenCall,
    PausesByDeployment,
    Race,
    RelayedExchange,
    RelayedRequest,
    Seats,
    Services,
    Winner,
    answer_kind,
)
from gateway.settings import RaceSettings
from gateway.steering import Launch, Plan
from gateway.steering.estimates import Estimate
from providers import (
    Exchange,
    Facts,
    LearntFacts,
    Listing,
    Price,
    Request,
    UpstreamAnswer,
    UpstreamError,
    Usage,
    events,
)
from providers.dialects import PIVOT, Dialect, Loss
from tests.support.calls import made_call

Step = bytes | UpstreamError | MemoryError | None  # None: the end of the stream


def event(**fields: Any) -> bytes:
    """Return one server-sent event."""
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


def delta(text: str = "", **fields: Any) -> bytes:
    """Return a chunk with this text, or these fields of a delta."""
    content = {"content": text} if text else {}
    return event(
        id="c1", object="chat.completion.chunk", model="m", choices=[{"index": 0, "delta": {**content, **fields}}]
    )


ROLE = delta(role="assistant", content="")
FINISH = event(
    id="c1", object="chat.completion.chunk", model="m", choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}]
)
DONE = b"data: [DONE]\n\n"


def usage(prompt: int = 10, completion: int = 5) -> bytes:
    """Return a chunk of usage alone."""
    return event(id="c1", choices=[], usage={"prompt_tokens": prompt, "completion_tokens": completion})


class TimetableExchange:
    """Yields each step at its time after the launch; once it is aborted nothing, not even an error, as over HTTP."""

    status = 200
    connect_ms: float | None = 1.0
    secrets: Sequence[str] = ()

    finishing = False
    usage_so_far = None
    model: str | None = None
    error: UpstreamError | None = None

    def __init__(self, upstream: "Timetable", steps: Sequence[tuple[float, Step]], started: float) -> None:
        self.headers: Mapping[str, str] = {"x-request-id": upstream.name, "x-ratelimit-remaining-requests": "7"}
        self.usage = upstream.usage
        self._upstream = upstream
        self._steps = list(steps)
        self._started = started
        self._aborted = False
        self._over = False

    @property
    def ended(self) -> bool:
        return self._over or self._aborted

    async def read(self) -> bytes:
        loop = asyncio.get_running_loop()
        if not self._steps:
            await loop.create_future()
        at, step = self._steps.pop(0)
        delay = self._started + at - loop.time()
        if delay > 0:
            await asyncio.sleep(delay)
        if self._aborted:
            await loop.create_future()
        if isinstance(step, UpstreamError | MemoryError):
            raise step
        if step is None:
            self._over = True
            self._steps.insert(0, (at, None))
            return b""
        return step

    async def begun(self) -> bytes:
        """Return the first bytes; with them the end, if that is due at the same time."""
        at, _ = self._steps[0]
        first = await self.read()
        if self._steps[:1] == [(at, None)]:
            await self.read()
        return first

    def conclude(self) -> bytes:
        return b""

    def offer_to(self, listener: Callable[[bytes], bool]) -> None:
        pass

    def abort(self) -> None:
        if not self._aborted and not self._over:
            self._aborted = True
            self._upstream.aborts += 1


class Timetable:
    """An upstream that answers each request by the next of its timetables: seconds after the launch, and what happens.

    ``headers_at`` is when the response's headers come; an ``UpstreamError`` before that time is raised instead of them.
    What passes unread is whole if its end is due with its first bytes.
    """

    usage: Usage | None = None  # of what passes unread in pieces

    accepts_all_parameters = True
    refused_fields = frozenset[str]()
    can_fetch = False
    needs_warming = False

    def __init__(self, name: str, *timetables: Sequence[tuple[float, Step]], headers_at: float = 0.0) -> None:
        self.name = name
        self.learnt = LearntFacts()
        self.requests: list[Request] = []
        self.aborts = 0
        self.cancelled_before_headers = 0
        self._timetables = timetables
        self._headers_at = headers_at

    def losses(self, dialect: Dialect, model: str, fields: Mapping[str, msgspec.Raw]) -> tuple[Loss, ...]:
        return ()

    def connect(self) -> None:
        """Do nothing."""

    def learn(self, request: Request, error: UpstreamError) -> Facts:
        return ()

    async def warm_up(self) -> None:
        """Do nothing."""

    async def stream(self, request: Request) -> Exchange:
        loop = asyncio.get_running_loop()
        started = loop.time()
        steps = self._timetables[min(len(self.requests), len(self._timetables) - 1)]
        self.requests.append(request)
        request.sendings.number += 1
        try:
            if steps and isinstance(steps[0][1], UpstreamError) and len(steps) == 1:
                await asyncio.sleep(steps[0][0])
                raise steps[0][1]
            if self._headers_at:
                await asyncio.sleep(self._headers_at)
        except asyncio.CancelledError:
            self.cancelled_before_headers += 1
            raise
        return TimetableExchange(self, steps, started)

    async def send(self, path: str, request: Request) -> UpstreamAnswer:
        exchange = await self.stream(request)
        assert isinstance(exchange, TimetableExchange)
        try:
            body = await exchange.begun()
        except BaseException:
            exchange.abort()
            raise
        rest = None if exchange.ended else exchange
        return UpstreamAnswer(200, exchange.headers, body, exchange.connect_ms, 1.0, rest)

    async def fetch(self, method: str, path: str, query: list[tuple[str, str]]) -> UpstreamAnswer:
        raise AssertionError("not asked for here")

    async def list_models(self, connect_timeout_s: float = 5.0) -> Listing:
        raise AssertionError("not asked for here")

    async def aclose(self) -> None:
        pass


class RememberingSink:
    """A streaming sink that keeps what it was given."""

    streams = True

    def __init__(self, *, gone_after: int | None = None, understands: bool = True) -> None:
        self.understands = understands
        self.winner: Winner | None = None
        self.blocks: list[bytes] = []
        self.events: list[bytes] = []  # as far as they came in parts
        self.ended = False
        self.failure: UpstreamError | None = None
        self._gone_after = gone_after

    async def begin(self, winner: Winner) -> Forward | None:
        assert self.winner is None, "a committed answer was taken over"
        self.winner = winner
        return None

    async def write(self, block: Block) -> None:
        self.blocks.append(block.forward)
        self.events.extend(_events(block))
        if self._gone_after is not None and len(self.blocks) >= self._gone_after:
            raise ClientGone

    async def end(self, last: Block) -> None:
        self.blocks.append(last.forward)
        self.ended = True

    def may_be_continued(self, error: UpstreamError) -> bool:
        del error
        return False

    async def fail(self, error: UpstreamError) -> None:
        self.failure = error

    @property
    def bytes(self) -> bytes:
        return b"".join(self.blocks)


class RelayedSink(RememberingSink):
    """Streams what passes unread if it comes in pieces."""

    streams = False

    def __init__(self, *, gone_after: int | None = None) -> None:
        super().__init__(gone_after=gone_after, understands=False)

    async def begin(self, winner: Winner) -> Forward | None:
        assert isinstance(winner.exchange, RelayedExchange)
        self.streams = not winner.exchange.is_whole
        return await super().begin(winner)


class DefectiveTasks(AttemptTasks[Attempt]):
    """Tasks that cannot be started for some deployments, by a bug."""

    def __init__(self, *deployments: str) -> None:
        super().__init__()
        self._cannot_start = deployments

    def start(
        self, work: Coroutine[Any, Any, None], attempt: Attempt, loop: asyncio.AbstractEventLoop
    ) -> asyncio.Task[None]:
        if attempt.deployment.name in self._cannot_start:
            work.close()
            raise RuntimeError("a defect")
        return super().start(work, attempt, loop)


class RememberingRecorder:
    """A recorder that keeps what it heard, in order."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.starts: list[CallStart] = []
        self.launched: list[AttemptStart] = []
        self.first_tokens: list[tuple[str, float]] = []
        self.classes: list[PromptClass] = []  # of first tokens and ends
        self.ended: list[AttemptRecord] = []
        self.records: list[CallRecord] = []
        self.audited: list[AttemptRecord] = []

    def call_started(self, start: CallStart) -> None:
        self.heard.append("call_started")
        self.starts.append(start)

    def attempt_started(self, call: Call, start: AttemptStart) -> None:
        self.heard.append(f"started {start.deployment}")
        self.launched.append(start)

    def first_token(
        self, model: str, prompt_class: PromptClass, start: AttemptStart, ttft_s: float, ago_s: float
    ) -> None:
        self.heard.append(f"first token {start.deployment}")
        self.first_tokens.append((start.deployment, round(ttft_s, 6)))
        self.classes.append(prompt_class)

    def attempt_ended(self, model: str, prompt_class: PromptClass, attempt: AttemptRecord, ago_s: float) -> None:
        self.heard.append(f"{attempt.outcome} {attempt.deployment}")
        self.ended.append(attempt)
        self.classes.append(prompt_class)

    def call_finished(self, record: CallRecord) -> None:
        self.heard.append("call_finished")
        self.records.append(record)

    def attempt_audited(self, model: str, attempt: AttemptRecord, duplicate_usd: float | None) -> None:
        self.heard.append(f"audited {attempt.deployment}")
        self.audited.append(attempt)


def recorded(open_call: OpenCall, ending: CallRecord | NoAnswer, model: Model, plan: Plan) -> CallRecord:
    """Return the record of a call, or end it as its runner does when there is no other model to be asked."""
    if isinstance(ending, NoAnswer):
        error = total_failure(model, plan, ending, ())
        open_call.finish(None, status_code=error.status_code, error_kind=error.kind)
        raise error
    return ending


CLOCKS = Clocks(connect_s=5.0, ttft_s=120.0, stall_s=120.0, total_s=None)


class Track:
    """Everything of one race; ``await track.run()`` runs it."""

    def __init__(
        self,
        *upstreams: Timetable,
        launches: Sequence[tuple[str, float, Role]] | None = None,
        rest: Sequence[str] = (),
        rescue_s: float | None = None,
        sink: RememberingSink | GatheringSink | None = None,
        streamed: bool = True,
        wants_usage: bool = False,
        max_tokens: int | None = None,
        win_on: WinOn = WinOn.ANY,
        sentence_words: int = 12,
        invalid: Invalid = Invalid.ERROR,
        keep_rival: bool = False,
        paces: Any = None,
        habits: Any = None,
        pauses: PausesByDeployment | None = None,
        clocks: Clocks = CLOCKS,
        price: Price | None = None,
        permits: int = 100,
        refuses: bool = False,
        audited: Sequence[str] = (),
        explores: bool = False,
        decode_s: Mapping[str, float] | None = None,
        bills_after_disconnect: bool | None = None,
        tripped: Sequence[str] = (),
        seats: Seats | None = None,
        cancelled_as: type[ApiError] = ClientDisconnected,
        open_call: OpenCall | None = None,
        fields: Mapping[str, Any] | None = None,
        deadline_ms: float | None = None,
        mode: Mode = Mode.RACE,
        reading: RelayedRequest | None = None,
        prompt_tokens: int = 10,
        withheld: Launch | None = None,
        retry_after_s: float | None = None,
        following: FallbackModels | None = None,
    ) -> None:
        """``reading``: of answers that pass unread.

        ``permits``: how many extra launches the budget has; ``refuses``: it permits nothing beside another.
        """
        self.seats = seats or Seats()
        self.asked: list[Role] = []  # for a permit
        self._refuses = refuses
        self.full: list[str] = []  # extra launches that found no room
        self.open_call = open_call  # of a race before this one
        self._cancelled_as = cancelled_as
        self._pauses = PausesByDeployment() if pauses is None else pauses
        kept = {"paces": paces, "thoughts": habits}
        self._kept = {name: each for name, each in kept.items() if each is not None}  # what earlier races have left
        self.upstreams = {upstream.name: upstream for upstream in upstreams}
        self.recorder = RememberingRecorder()
        self.tasks: AttemptTasks[Attempt] = AttemptTasks()
        self.sink = sink or (RememberingSink() if reading is None else RelayedSink())
        self._of_race: dict[str, Any] = {"following": following}
        if reading is not None:
            self._of_race["reading"] = reading
        self._permits = permits
        names = list(self.upstreams)
        if launches is None:
            launches = [(names[0], 0.0, Role.PRIMARY), *((name, 0.0, Role.RACE) for name in names[1:])]
        self.plan = Plan(
            launches=tuple(
                Launch(deployment=name, delay_s=delay, role=role, audited=name in audited)
                for name, delay, role in launches
            ),
            rest=tuple(rest),
            mode=mode,
            rescue_s=rescue_s,
            tripped=frozenset(tripped),
            decode_s=decode_s or {},
            explores=explores,
            withheld=withheld,
            retry_after_s=retry_after_s,
        )
        self.model = Model(
            name="m",
            deployments={
                upstream.name: Deployment(
                    name=upstream.name,
                    provider=upstream.name,
                    model=f"{upstream.name}-model",
                    upstream=upstream,
                    clocks=clocks,
                    price=price,
                    bills_after_disconnect=bills_after_disconnect,
                    extra_body={},
                    upstream_stream=True,
                )
                for upstream in upstreams
            },
            race=RaceSettings(keep_rival=keep_rival),
        )
        self._call_options = {
            "stream": streamed,
            "wants_usage": wants_usage,
            "win_on": win_on,
            "sentence_words": sentence_words,
            "invalid": invalid,
            "deadline_ms": deadline_ms,
            "prompt_tokens": prompt_tokens,
        }
        more = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in (fields or {}).items()}
        self._fields = {"messages": msgspec.Raw(b"[]"), **more}
        if max_tokens is not None:
            self._fields["max_tokens"] = msgspec.Raw(msgspec.json.encode(max_tokens))
        self._ids = iter(range(1, 1000))

    def expects(self, estimate: Estimate) -> None:
        """Have the plan know what its primary should take."""
        self.plan = msgspec.structs.replace(self.plan, primary=estimate)

    async def run(self) -> CallRecord:
        """Run the race, and end the call as its runner would."""
        race = self.race()
        ending = await race.run()
        assert not isinstance(ending, BrokenAnswer)
        return recorded(race.open_call, ending, self.model, self.plan)

    def race(self) -> Race:
        now = datetime(2026, 1, 1, tzinfo=UTC)
        before = None if self.open_call is None else self.open_call.call
        call = made_call(
            id="call",
            received_at=asyncio.get_running_loop().time() if before is None else before.caller.received_at,
            started_at=now,
            client=None,
            model="m",
            endpoint="chat.completions",
            mode=Mode.RACE,
            objective=Objective.FIRST_TOKEN,
            prompt_class=answer_class(0),
            fields=self._fields,
            headers={},
            tags={},
            replica="test",
            region=None,
            answer_kind=answer_kind(self._fields, self._call_options.get("dialect", PIVOT)),  # type: ignore[arg-type]
            **self._call_options,
        )
        if self.open_call is None:
            services = Services(
                recorder=self.recorder,
                tasks=self.tasks,
                seats=self.seats,
                clock=asyncio.get_running_loop().time,
                new_id=lambda: f"attempt-{next(self._ids)}",
                utc_now=lambda: now,
                pauses=self._pauses,
                **self._kept,
            )
            self.open_call = OpenCall(services, call, cancelled_as=lambda: self._cancelled_as)
        else:
            self.open_call.continue_as(call)
        return Race(
            self.open_call,
            self.model,
            self.plan,
            self.sink,
            may_launch=lambda launch: self._permit(launch.role),
            on_seat_refused=lambda launch: self.full.append(launch.deployment),
            **self._of_race,
        )

    def _permit(self, role: Role) -> bool:
        assert role is not Role.PRIMARY, "only attempts beside another one ask the budget"
        self.asked.append(role)
        if self._refuses:
            return False
        if role in {Role.FAILOVER, Role.PROBE}:
            return True
        self._permits -= 1
        return self._permits >= 0

    @property
    def outcomes(self) -> dict[str, str]:
        return {record.deployment: str(record.outcome) for record in self.recorder.records[0].attempts}


def _events(block: Block) -> Iterator[bytes]:
    """Yield the data of every event, including those that were not parsed."""
    for part in block.parts:
        if part.chunks is None:
            yield from (event.data for event in events(bytes(part.data)))
        else:
            yield from (chunk.data for chunk in part.chunks)
