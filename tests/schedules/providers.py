"""Simulated providers: what each does with a request is written beforehand, and what was done is remembered."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

import msgspec

from providers import ErrorKind, Exchange, Facts, LearntFacts, Listing, Request, UpstreamAnswer, UpstreamError, Usage
from providers.dialects import Dialect, Loss
from providers.refusals import kind_of_status
from tests.schedules.loop import ShuffledLoop
from tests.support.behaviour import NEVER_S, Behaviour

Read = bytes | UpstreamError | None  # None: the end
TEXT = re.compile(rb'"(?:content|text)":"[^"]')
CALLED = b'"tool_calls":['
DONE = b"data: [DONE]\n\n"
FIRST = "abcdefghijklmnopqrstuvw"  # letters of words: none begins as the one before it
SLICE = 7  # bytes of a torn event, about


@dataclass
class Asked:
    """One request as its provider saw it. Seconds of the virtual clock."""

    tag: str  # in each token of the answer
    provider: str
    path: str
    call: str  # the client's own name for it, x-request-id
    behaviour: Behaviour
    at: float
    times: int = 1
    tokens: int = 0  # of the whole answer, with its thoughts
    events: list[bytes] = field(default_factory=list)  # all that the answer would be, [DONE] left out
    delivered: bytearray = field(default_factory=bytearray)  # what was read of it
    opened_at: float | None = None
    token_at: float | None = None  # when the first meaningful delta was read
    answer_at: float | None = None  # the first that is no thought
    last_at: float | None = None
    deltas: int = 0  # meaningful ones read
    firsts: int = 0  # of them, those that were read in the same instant as the first
    finished: bool = False  # a finish reason was read
    usage_read: bool = False
    over_at: float | None = None  # nothing more is done for it
    how: str = ""  # refused, broke, whole, aborted, cancelled
    begun: str = ""  # the text that it was to go on with
    text: str = ""  # all of what it would say, and what it goes on with; only if it is prose


class Simulated:
    """One provider, under all its models."""

    def __init__(
        self, name: str, behaviours: Sequence[Behaviour], loop: ShuffledLoop, texts: dict[str, list[str]] | None = None
    ) -> None:
        self.name = name
        self.asked: list[Asked] = []
        self.under_way: set[str] = set()  # tags
        self.most_under_way = 0
        self.closed_early: list[str] = []  # tags of requests that were under way when an upstream was closed
        self.behaviours = behaviours
        self.loop = loop
        self.texts = (
            {} if texts is None else texts
        )  # what all providers would say, by the client's own name for the request

    def open(self) -> "SimulatedUpstream":
        """Return a way to reach it, as a configuration opens one."""
        return SimulatedUpstream(self)

    def behaviour(self, request: Request) -> Behaviour:
        """Return what it does with its next request."""
        del request
        found = self.behaviours[len(self.asked) % len(self.behaviours)] if self.behaviours else Behaviour()
        if found.recovers_s is not None:
            began_s = next((each.at for each in self.asked if each.behaviour.recovers_s is not None), self.loop.time())
            if self.loop.time() - began_s >= found.recovers_s:
                return msgspec.structs.replace(found, refusal=None, status=None)
        return found

    def begin(self, request: Request, path: str) -> Asked:
        behaviour = self.behaviour(request)
        asked = Asked(
            tag=f"{self.name}{len(self.asked)}",
            provider=self.name,
            path=path,
            call=request.headers.get("x-request-id", ""),
            behaviour=behaviour,
            at=self.loop.time(),
            times=behaviour.sends if not request.once else 1,
        )
        if behaviour.prose:
            asked.begun = begun_in(request).lstrip("\n")  # without the empty lines before it
            ends = ("", "", "", ".") if behaviour.alike else ("",)  # sentences
            own = "".join(
                f" {FIRST[number % len(FIRST)]}<{asked.tag}:{number}>{ends[number % len(ends)]}"
                for number in range(behaviour.tokens)
            )[1:]
            texts, goes_on = self.texts.setdefault(asked.call, []), asked.begun or behaviour.alike
            asked.text = next((each for each in texts if goes_on and each.startswith(asked.begun)), own)
            texts.append(asked.text)
        request.sendings.number = asked.times
        self.asked.append(asked)
        self.under_way.add(asked.tag)
        self.most_under_way = max(self.most_under_way, len(self.under_way))
        return asked

    def over(self, asked: Asked, how: str) -> None:
        if asked.over_at is None:
            self.loop.note(how, asked.tag)
            asked.over_at, asked.how = self.loop.time(), how
            self.under_way.discard(asked.tag)


class SimulatedUpstream:
    """An ``Upstream``. Once it is closed nobody may ask it."""

    accepts_all_parameters = True
    refused_fields = frozenset[str]()
    can_fetch = False
    needs_warming = False

    def __init__(self, provider: Simulated) -> None:
        self.provider = provider
        self.learnt = LearntFacts()
        self.closed = False

    def losses(self, dialect: Dialect, model: str, fields: Mapping[str, msgspec.Raw]) -> tuple[Loss, ...]:
        return ()

    def connect(self) -> None:
        """Do nothing."""

    def learn(self, request: Request, error: UpstreamError) -> Facts:
        return ()

    async def warm_up(self) -> None:
        """Do nothing."""

    async def stream(self, request: Request) -> Exchange:
        asked = await self._open(request, request.dialect.name)
        return SimulatedExchange(self, asked, reads(asked))

    async def send(self, path: str, request: Request) -> UpstreamAnswer:
        asked = await self._open(request, path)
        behaviour, whole = asked.behaviour, path == "embeddings"
        asked.events = [f"<{asked.tag}:{number}>".encode() for number in range(behaviour.tokens)]
        rest = SimulatedExchange(self, asked, [(gap, data) for gap, data in reads(asked, sound=True)])
        headers = {"x-request-id": asked.tag, "content-type": "application/json" if whole else "audio/mpeg"}
        try:
            if not whole:
                return UpstreamAnswer(200, headers, await rest.read(), 1.0, 1.0, SimulatedRest(rest))
            while await rest.read():
                pass
        except BaseException:
            rest.abort()
            raise
        texts = msgspec.json.decode(request.fields["input"])  # one, or those by which vectors are compared
        vectors = [{"index": number, "embedding": [1.0, 0.0]} for number in range(len(texts) if texts[0] != "x" else 1)]
        usage = {"prompt_tokens": 3, "total_tokens": 3}
        body = msgspec.json.encode({"object": asked.tag, "data": vectors, "usage": usage})
        return UpstreamAnswer(200, headers, body, 1.0, 1.0)

    async def fetch(self, method: str, path: str, query: list[tuple[str, str]]) -> UpstreamAnswer:
        raise AssertionError("not asked for here")

    async def list_models(self, connect_timeout_s: float = 5.0) -> Listing:
        raise AssertionError("not asked for here")

    async def aclose(self) -> None:
        self.closed = True
        self.provider.closed_early += sorted(self.provider.under_way)

    async def _open(self, request: Request, path: str) -> Asked:
        assert not self.closed, f"{self.provider.name} is asked by a closed upstream"
        asked, behaviour = self.provider.begin(request, path), None
        behaviour = asked.behaviour
        try:
            await asyncio.sleep(min(behaviour.opens_s, NEVER_S))
        except asyncio.CancelledError:
            self.provider.over(asked, "cancelled")
            raise
        kind = None if behaviour.refusal is None else ErrorKind(behaviour.refusal)
        status = STATUS.get(kind) if kind is not None else behaviour.status
        if kind is None and status is not None:
            kind = kind_of_status(status)
        if asked.begun and behaviour.habit == "refuses":
            kind, status = ErrorKind.BAD_REQUEST, STATUS[ErrorKind.BAD_REQUEST]
        if kind is not None:
            self.provider.over(asked, "refused")
            message = behaviour.says or f"refused {asked.tag}"
            raise UpstreamError(kind, message, status=status, retry_after_s=behaviour.retry_after_s)
        asked.opened_at = self.provider.loop.time()
        return asked


class SimulatedExchange:
    """An answer under way: each read comes in its time."""

    status = 200
    connect_ms: float | None = 1.0
    secrets: Sequence[str] = ("a-secret-key",)

    finishing = False
    usage_so_far = None

    def __init__(self, upstream: SimulatedUpstream, asked: Asked, steps: list[tuple[float, Read]]) -> None:
        self.headers: Mapping[str, str] = {"x-request-id": asked.tag, "x-ratelimit-remaining-requests": "9"}
        self._provider = upstream.provider
        self._upstream = upstream
        self._asked = asked
        self._steps = steps
        self._at = 0
        self._due = self._provider.loop.time()
        self._listener: Callable[[bytes], bool] | None = None

    @property
    def ended(self) -> bool:
        return self._asked.over_at is not None

    async def read(self) -> bytes:
        asked, loop = self._asked, self._provider.loop
        assert not self._upstream.closed, f"{asked.tag} is read from a closed upstream"
        while True:
            if await self._is_over():
                return b""
            gap_s, step = self._steps[self._at]
            self._due = max(self._due, loop.time()) if not gap_s else self._due
            if (due := self._due + gap_s) > loop.time():
                if gap_s >= NEVER_S:
                    await loop.create_future()
                await asyncio.sleep(due - loop.time())
                if await self._is_over():
                    return b""
            self._due = due
            self._at += 1
            if step is None:
                self._over("whole")
                return b""
            if isinstance(step, UpstreamError):
                self._over("broke")
                raise UpstreamError(step.kind, step.message)
            self._note(step)
            loop.note("read", asked.tag)
            if self._listener is None or not self._listener(step):
                return step

    def conclude(self) -> bytes:
        return b""

    def offer_to(self, listener: Callable[[bytes], bool]) -> None:
        self._listener = listener

    def abort(self) -> None:
        self._over("aborted")

    async def _is_over(self) -> bool:
        """Tell whether it has ended. Of one that was aborted nothing comes, neither an end nor an error, as over HTTP.

        Raises:
            UpstreamError: it broke.

        """
        if self._asked.how == "aborted":
            await self._provider.loop.create_future()
        if self._asked.how == "broke":
            raise UpstreamError(ErrorKind.DISCONNECTED, f"{self._asked.tag} is over: {self._asked.how}")
        return self.ended

    def _over(self, how: str) -> None:
        self._listener = None
        self._provider.over(self._asked, how)

    def _note(self, data: bytes) -> None:
        asked, now = self._asked, self._provider.loop.time()
        before = len(complete(asked.delivered))
        asked.delivered += data
        for event in complete(asked.delivered)[before:]:
            asked.finished = asked.finished or b'"finish_reason":"' in event
            asked.usage_read = asked.usage_read or b'"usage":{' in event
            is_thought, is_text = b'"reasoning_content":"' in event, TEXT.search(event) is not None or CALLED in event
            if not (is_thought or is_text):
                continue
            if asked.token_at is None:
                asked.token_at = now
            if is_text and asked.answer_at is None:
                asked.answer_at = now
            asked.deltas += 1
            asked.firsts += now == asked.token_at
            asked.last_at = now


class SimulatedRest:
    """What is still to come of sound."""

    usage: Usage | None = None
    model: str | None = None
    error: UpstreamError | None = None

    def __init__(self, exchange: SimulatedExchange) -> None:
        self.ended = False
        self._exchange = exchange

    async def read(self) -> bytes:
        data = await self._exchange.read()
        self.ended = not data
        return data

    def abort(self) -> None:
        self._exchange.abort()


def complete(data: bytes | bytearray) -> list[bytes]:
    """Return the whole events at the beginning of a stream."""
    return [event + b"\n\n" for event in bytes(data).split(b"\n\n")[:-1]]


def reads(asked: Asked, *, sound: bool = False) -> list[tuple[float, Read]]:
    """Return what is read of an answer: the seconds since what is before it, and the bytes or the end."""
    behaviour = asked.behaviour
    if not sound:
        asked.events = answer_events(asked)
    events: list[Read] = list(asked.events)
    if not sound and behaviour.done:
        events.append(DONE)
    ending: list[tuple[float, Read]] = [(behaviour.lingers_s, None)]
    if behaviour.breaks_at is not None:
        events, ending = (
            events[: behaviour.breaks_at],
            [(behaviour.gap_s, UpstreamError(ErrorKind.DISCONNECTED, "reset"))],
        )
    elif behaviour.stalls_at is not None:
        events, ending = events[: behaviour.stalls_at], [(NEVER_S, None)]
    steps: list[tuple[float, Read]] = []
    for number in range(0, len(events), behaviour.per_read):
        is_slow = behaviour.slow_at is not None and behaviour.slow_at <= number < (behaviour.fast_at or len(events) + 1)
        gap_s = behaviour.first_s if not number else behaviour.slow_gap_s if is_slow else behaviour.gap_s
        data = b"".join(each for each in events[number : number + behaviour.per_read] if isinstance(each, bytes))
        if behaviour.torn and len(data) > 2 * SLICE:
            steps += [(gap_s, data[:SLICE]), (gap_s / 2, data[SLICE:-SLICE]), (0.0, data[-SLICE:])]
        else:
            steps.append((gap_s, data))
    return steps + ending


def answer_events(asked: Asked) -> list[bytes]:
    """Return the events of an answer; each of its tokens is its tag and a number."""
    behaviour = asked.behaviour
    match behaviour.lie:
        case "html":
            return [b"<html><body>Bad gateway</body></html>\n\n"]
        case "empty":
            return []
        case "error_event":
            return [
                _delta(asked, role="assistant"),
                b'data: {"error":{"message":"overloaded","code":"server_error"}}\n\n',
            ]
    events = [_delta(asked, role="assistant", content="")]
    thoughts = behaviour.thoughts if asked.path != "completions" else 0
    events += [_delta(asked, reasoning_content=f"<{asked.tag}?{number}>") for number in range(thoughts)]
    if asked.begun and behaviour.habit == "reasoning" and asked.path != "completions":
        events.append(_delta(asked, reasoning_content="Let me see."))
    if asked.begun and behaviour.habit == "tool" and asked.path != "completions":
        called = {"index": 0, "id": "call_1", "function": {"name": "look", "arguments": "{}"}}
        choice = {"index": 0, "finish_reason": None, "delta": {"tool_calls": [called]}}
        events.append(_chunk(asked, choice))
    texts = _prose(asked) if behaviour.prose else _texts(asked)
    asked.tokens = thoughts + len(texts)
    events += [_delta(asked, content=text) for text in texts]
    match behaviour.lie:
        case "garbage":
            events.insert(1 + behaviour.tokens // 2, b"data: {broken\n\n")
        case "foreign_shape":
            events.insert(1 + behaviour.tokens // 2, b'data: {"choices":7}\n\n')
    if behaviour.lie != "no_finish":
        events.append(_delta(asked, finish="stop"))
    if behaviour.usage:
        usage = {"prompt_tokens": 9, "completion_tokens": asked.tokens, "total_tokens": asked.tokens + 9}
        events.append(_chunk(asked, usage=usage))
    return events


def _texts(asked: Asked) -> list[str]:
    """Return the tokens of an answer: together they may be JSON, and bad JSON lacks its end."""
    behaviour = asked.behaviour
    texts = [f"<{asked.tag}:{number}>" for number in range(behaviour.tokens)]
    if behaviour.json is not None:
        texts[0] = '{"a":"' + texts[0]
    if behaviour.json == "good":
        texts[-1] += '"}'
    return texts


def begun_in(request: Request) -> str:
    """Return the text that a request begins its answer with."""
    if request.dialect.name == "completions":
        prompt: str = msgspec.json.decode(request.fields["prompt"])
        return prompt.lstrip("x")
    if "messages" not in request.fields:
        return ""
    last = msgspec.json.decode(request.fields["messages"])[-1]
    return str(last["content"]) if last["role"] == "assistant" else ""


def _prose(asked: Asked) -> list[str]:
    """Return the pieces of the text, after empty lines, or of what follows what it goes on with, as is its habit."""
    rest, dice = asked.text[len(asked.begun) :], Random(asked.tag)
    if asked.begun:
        word = r"\s*\S+"
        match asked.behaviour.habit:
            case "trims":
                rest = rest.lstrip()
            case "no word":
                rest = re.sub(word, "", rest, count=1)
            case "two words":
                rest = "".join(re.findall(word, asked.begun)[-1:]) + rest
            case "anew":
                rest = "Certainly! " + asked.text
            case "reasoning" | "tool" if asked.path == "completions":
                rest = "Certainly! " + asked.text
    pieces = []
    while rest:
        size = dice.randint(1, 12)
        pieces.append(rest[:size])
        rest = rest[size:]
    return ["\n"] * (0 if asked.begun else asked.behaviour.blanks) + pieces


def _delta(asked: Asked, finish: str | None = None, **delta: str) -> bytes:
    choice = {"index": 0, "finish_reason": finish}
    if asked.path == "completions":
        return _chunk(asked, {**choice, "text": delta.get("content", "")})
    return _chunk(asked, {**choice, "delta": delta})


def _chunk(asked: Asked, *choices: object, **more: object) -> bytes:
    kind = "text_completion" if asked.path == "completions" else "chat.completion.chunk"
    return _event({"id": asked.tag, "object": kind, "model": "m", "choices": choices, **more})


def _event(fields: Mapping[str, object]) -> bytes:
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


STATUS = {
    ErrorKind.RATE_LIMITED: 429,
    ErrorKind.SERVER_ERROR: 500,
    ErrorKind.PROVIDER_AUTH: 401,
    ErrorKind.BAD_REQUEST: 400,
    ErrorKind.NOT_FOUND: 404,
}
