"""The steps of a script, which a scripted provider executes in their order for each request."""

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

import msgspec
from aiohttp import web

from providers.dialects import DIALECTS
from providers.simulator.wire import (
    DONE,
    Answering,
    ProviderTally,
    Visit,
    embeddings,
    error,
    event,
    json_response,
    model_list,
    serve,
    usage,
)


class Status(msgspec.Struct, frozen=True):
    """Answer with this status and body instead of a stream.

    ``body`` is JSON, raw bytes, or None for an error in OpenAI's shape.
    """

    status: int
    body: Mapping[str, Any] | list[Any] | bytes | None = None
    headers: Mapping[str, str] = {}


class Headers(msgspec.Struct, frozen=True):
    """Send the head of the response now; without this step the first bytes do."""

    headers: Mapping[str, str] = {}


class RoleOnly(msgspec.Struct, frozen=True):
    """A first chunk with the role and no token."""

    @property
    def delta(self) -> dict[str, Any]:
        """The chunk's ``delta``."""
        return {"role": "assistant", "content": ""}


class Delta(msgspec.Struct, frozen=True):
    """A chunk with content: one token."""

    text: str

    @property
    def delta(self) -> dict[str, Any]:
        """The chunk's ``delta``."""
        return {"content": self.text}


class Reasoning(msgspec.Struct, frozen=True):
    """A chunk with reasoning: one token, in the field that the vendor uses for it."""

    text: str
    field: str = "reasoning_content"

    @property
    def delta(self) -> dict[str, Any]:
        """The chunk's ``delta``."""
        return {self.field: self.text}


class ToolCall(msgspec.Struct, frozen=True):
    """A chunk with a piece of a tool call: the first one has a name and an id, the others arguments only."""

    arguments: str = ""
    name: str | None = None
    id: str | None = None
    index: int | None = 0  # None: left out, as by some compatibility layers

    @property
    def delta(self) -> dict[str, Any]:
        """The chunk's ``delta``."""
        call: dict[str, Any] = {} if self.index is None else {"index": self.index}
        if self.name is None:
            call["function"] = {"arguments": self.arguments}
        else:
            function = {"name": self.name, "arguments": self.arguments}
            call |= {"id": self.id or "call_1", "type": "function", "function": function}
        return {"tool_calls": [call]}


class JsonEvent(msgspec.Struct, frozen=True):
    """An event with any JSON. ``token``: it counts as the first token."""

    data: Any
    token: bool = False


class Comment(msgspec.Struct, frozen=True):
    """A comment line, used as a keep-alive."""

    text: str = "keep-alive"


class Raw(msgspec.Struct, frozen=True):
    """Exactly these bytes in the body of the response. ``token``: they count as the first token."""

    data: bytes
    token: bool = False


class Finish(msgspec.Struct, frozen=True):
    """The chunk with the finish reason."""

    reason: str = "stop"


class UsageChunk(msgspec.Struct, frozen=True):
    """The usage chunk, sent only if ``stream_options.include_usage`` is set. None: the number of tokens sent."""

    prompt_tokens: int = 10
    completion_tokens: int | None = None


class Done(msgspec.Struct, frozen=True):
    """The final ``[DONE]``."""


class ErrorEvent(msgspec.Struct, frozen=True):
    """An event with an error object."""

    message: str = "The model is overloaded."
    code: str | int | None = 503


class Gate(msgspec.Struct, frozen=True):
    """Wait until the test sets the event."""

    event: asyncio.Event


class Pause(msgspec.Struct, frozen=True):
    """Wait so many seconds."""

    seconds: float


class Hang(msgspec.Struct, frozen=True):
    """Wait until the client hangs up."""


class Drop(msgspec.Struct, frozen=True):
    """Abort the connection."""


Step = (
    Status
    | Headers
    | RoleOnly
    | Delta
    | Reasoning
    | ToolCall
    | JsonEvent
    | Comment
    | Raw
    | Finish
    | UsageChunk
    | Done
    | ErrorEvent
    | Gate
    | Pause
    | Hang
    | Drop
)


def answer(*tokens: str) -> list[Step]:
    """Return the script of an ordinary answer: role, one chunk for each token, finish, usage, ``[DONE]``."""
    return [RoleOnly(), *(Delta(token) for token in tokens), Finish(), UsageChunk(), Done()]


# Runs a script for one request: as an event stream, or gathered into one JSON body.


class Performance(ABC):
    """The steps that do not depend on the form of the answer: waiting, refusing, breaking off."""

    streams = False  # True: an error can be an event; False: it is a status

    def __init__(self, request: web.Request, visit: Visit) -> None:
        self.request = request
        self.visit = visit
        self.headers: dict[str, str] = {}

    async def play(self, script: Sequence[Step]) -> web.StreamResponse:
        """Run all steps, until one of them ends the answer."""
        for step in script:
            match step:
                case Gate(opened):
                    await opened.wait()
                case Pause(seconds):
                    await asyncio.sleep(seconds)
                case Hang():
                    await asyncio.Event().wait()
                case Drop():
                    return self._drop()
                case Status(status, body, headers):
                    return self._refuse(status, body, headers)
                case ErrorEvent(message, code) if not self.streams:
                    status = code if isinstance(code, int) else HTTPStatus.INTERNAL_SERVER_ERROR
                    return self._refuse(status, error(message, code=code), {})
                case _:
                    await self.take(step)
        return await self.end()

    @abstractmethod
    async def take(self, step: Step) -> None:
        """Add a step to the answer."""

    @abstractmethod
    async def end(self) -> web.StreamResponse:
        """Return the response after the last step."""

    def _refuse(
        self, status: int, body: Mapping[str, Any] | list[Any] | bytes | None, headers: Mapping[str, str]
    ) -> web.Response:
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            self.visit.ending = "rate_limited"
        elif status >= HTTPStatus.BAD_REQUEST:
            self.visit.ending = "errors"
        if body is None:
            body = error(f"Status {status}, as scripted.", code=status)
        return json_response(body, status=status, headers=headers)

    def _drop(self) -> web.Response:
        """Abort the connection; the returned response cannot be delivered."""
        self.visit.ending = "errors"
        if self.request.transport is not None:
            self.request.transport.abort()
        return web.Response()


class StreamedPerformance(Performance):
    """The steps as server-sent events, each written at once."""

    streams = True

    def __init__(self, request: web.Request, visit: Visit, answering: Answering, body: Mapping[str, Any]) -> None:
        super().__init__(request, visit)
        self._answering = answering
        self._usage_wanted = bool((body.get("stream_options") or {}).get("include_usage"))
        self._response = web.StreamResponse(headers={"content-type": "text/event-stream", "cache-control": "no-cache"})
        self._tokens = 0

    async def take(self, step: Step) -> None:
        """Write the step's bytes, after the response's head if they are the first."""
        if isinstance(step, Headers):
            self._response.headers.update(step.headers)
        await self._open()
        if isinstance(step, Delta | Reasoning | ToolCall) or (isinstance(step, JsonEvent | Raw) and step.token):
            self._tokens += 1
            self.visit.first_token_sent = True
        await self._response.write(self._render(step))

    async def end(self) -> web.StreamResponse:
        """Return the response; the server writes its end."""
        await self._open()
        return self._response

    async def _open(self) -> None:
        if not self._response.prepared:
            await self._response.prepare(self.request)

    def _render(self, step: Step) -> bytes:
        block = b""
        match step:
            case RoleOnly() | Delta() | Reasoning() | ToolCall():
                block = event(self._answering.chunk(step.delta))
            case Finish(reason):
                block = event(self._answering.chunk({}, reason))
            case UsageChunk(prompt_tokens, completion_tokens) if self._usage_wanted:
                counted = usage(prompt_tokens, self._tokens if completion_tokens is None else completion_tokens)
                block = event(self._answering.usage_chunk(counted))
            case JsonEvent(data):
                block = event(data)
            case Raw(data):
                block = data
            case Comment(text):
                block = f": {text}\n\n".encode()
            case Done():
                block = DONE
            case ErrorEvent(message, code):
                self.visit.ending = "errors"
                block = event(error(message, code=code))
        return block


class WholePerformance(Performance):
    """The steps' tokens in one JSON body, without comments and raw bytes."""

    def __init__(self, request: web.Request, visit: Visit, answering: Answering) -> None:
        super().__init__(request, visit)
        self._answering = answering
        self._message: dict[str, Any] = {"role": "assistant", "content": ""}
        self._finish = Finish()
        self._usage = UsageChunk()
        self._tokens = 0

    async def take(self, step: Step) -> None:
        """Add a step to the body."""
        match step:
            case Delta() | Reasoning():
                for field, text in step.delta.items():
                    self._message[field] = self._message.get(field, "") + text
                self._tokens += 1
            case ToolCall():
                self._add_tool_call(step)
                self._tokens += 1
            case Finish():
                self._finish = step
            case UsageChunk():
                self._usage = step
            case Headers(headers):
                self.headers.update(headers)

    async def end(self) -> web.StreamResponse:
        """Return the whole answer."""
        reported = self._usage.completion_tokens
        counted = usage(self._usage.prompt_tokens, self._tokens if reported is None else reported)
        whole = self._answering.whole(self._message, self._finish.reason, counted)
        return json_response(whole, headers=self.headers)

    def _add_tool_call(self, step: ToolCall) -> None:
        """Begin a tool call if the step has a name, otherwise continue the last one."""
        calls = self._message.setdefault("tool_calls", [])
        if step.name is not None or not calls:
            function = {"name": step.name, "arguments": step.arguments}
            calls.append({"id": step.id or "call_1", "type": "function", "function": function})
        else:
            calls[-1]["function"]["arguments"] += step.arguments


class EmbeddingPerformance(Performance):
    """The steps that wait, refuse or break off; then the requested embeddings."""

    def __init__(self, request: web.Request, visit: Visit, body: Mapping[str, Any]) -> None:
        super().__init__(request, visit)
        self._body = body

    async def take(self, step: Step) -> None:
        """Apply headers; steps of a chat are ignored."""
        if isinstance(step, Headers):
            self.headers.update(step.headers)

    async def end(self) -> web.StreamResponse:
        """Return a vector for each input."""
        return json_response(embeddings(self._body), headers=self.headers)


# A provider that executes a test's script, over real HTTP on loopback. from providers.simulator.script import Gate,
# RoleOnly, answer from providers.simulator.script import ScriptedProvider first_token = asyncio.Event() script =
# [RoleOnly(), Gate(first_token), *answer("Hel", "lo")[1:]] async with ScriptedProvider(script) as provider: ... #
# send requests to provider.base_url await provider.requested.wait() first_token.set() await
# provider.reach(completions=1) Usual scripts (every step is in ``script.py``): answer("Hel", "lo") an ordinary answer
# [Status(503)] refuses; Status(429, headers={"retry-after": "7"}) for a rate limit [Hang()] hangs before headers
# [RoleOnly(), Hang()] sends a role, then nothing [Delta("a"), Delta("b"), Drop()] dies after two tokens [Delta("a"),
# Delta("b"), ErrorEvent()] an error in the middle answer("Hi")[:-1] no [DONE] [Done()] [DONE] alone [Raw(b"data:
# {broken")] exactly these bytes The script is executed for every request; ``provider.once(script)`` sets another one
# for the next request. A request with ``stream`` false gets the tokens of the same steps as one JSON body, one for
# embeddings gets vectors. The response ends after the last step. The script is also executed for requests of all other
# APIs: use ``Raw`` then, or ``Status`` with 200 and a body. ``provider.received`` has the requests, ``provider.counts``
# their outcomes, and ``await provider.reach(disconnects=1)`` waits for an outcome. If the client hangs up, the current
# step ends at once.


class ReceivedRequest(msgspec.Struct, frozen=True):
    """One received request."""

    path: str
    headers: Mapping[str, str]  # names in lower case
    body: Any  # what its JSON says; the bytes of a form

    @property
    def key(self) -> str:
        """The bearer token."""
        return self.headers["authorization"].removeprefix("Bearer ")


class ScriptedProvider:
    """An OpenAI-compatible server that executes ``script`` for every request, with any model.

    ``tls`` makes it an https server; ``port`` 0 takes a free one; ``base_url`` is set inside ``async with``.
    """

    def __init__(
        self,
        script: Sequence[Step] | None = None,
        *,
        models: Sequence[str] = ("test-model",),
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.script: Sequence[Step] = answer("Hello", " there", "!") if script is None else script
        self.answers: Callable[[Any], Sequence[Step]] | None = None  # the script by a request's body, instead
        self.admits: Collection[str] | None = None  # the keys that are answered; None: any
        self.base_url = ""
        self.received: list[ReceivedRequest] = []
        self._once: deque[Sequence[Step]] = deque()
        self._models_served = models
        self._tally = tally = ProviderTally()
        self._server = serve(
            [
                *(web.post(f"/v1/{dialect.path}", self._answer) for dialect in DIALECTS.values()),
                web.post("/v1/embeddings", self._embed),
                web.post("/v1/{path:.+}", self._pass),
                web.get("/v1/models", self._list_models),
            ],
            tally,
            port=port,
            tls=tls,
        )
        self.counts = tally.counts
        self.requested = tally.requested
        self.disconnected = tally.disconnected

    async def __aenter__(self) -> Self:
        self.base_url = await self._server.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.__aexit__(kind, error, trace)

    def once(self, script: Sequence[Step]) -> None:
        """Use ``script`` for the next request. Several such scripts are used in their order."""
        self._once.append(script)

    async def reach(self, **at_least: int) -> None:
        """Wait until every named count is at least the given number: ``await provider.reach(requests=2)``."""
        await self._tally.reach(**at_least)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        script, body = await self._receive(request)
        answering = Answering(f"chatcmpl-{len(self.received)}", body.get("model", ""), created=0)

        async def perform(visit: Visit) -> web.StreamResponse:
            if body.get("stream") or "model" in request.match_info:  # some have it in the address
                return await StreamedPerformance(request, visit, answering, body).play(script)
            return await WholePerformance(request, visit, answering).play(script)

        return await self._tally.answer(perform)

    async def _embed(self, request: web.Request) -> web.StreamResponse:
        script, body = await self._receive(request)
        if any(isinstance(step, Raw) for step in script):
            return await self._send(request, script)
        return await self._tally.answer(lambda visit: EmbeddingPerformance(request, visit, body).play(script))

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        script, _ = await self._receive(request)
        return await self._send(request, script)

    async def _send(self, request: web.Request, script: Sequence[Step]) -> web.StreamResponse:
        answering = Answering(f"chatcmpl-{len(self.received)}", "", created=0)
        return await self._tally.answer(lambda visit: StreamedPerformance(request, visit, answering, {}).play(script))

    async def _list_models(self, request: web.Request) -> web.Response:
        self._keep(request, None)
        return json_response(model_list(self._models_served))

    async def _receive(self, request: web.Request) -> tuple[Sequence[Step], Any]:
        body: Any = await request.read()
        if not request.content_type.startswith("multipart/"):
            body = msgspec.json.decode(body)
        self._keep(request, body)
        if self.admits is not None and (key := self.received[-1].key) not in self.admits:
            return [Status(HTTPStatus.UNAUTHORIZED, error(f"Incorrect API key provided: {key}."))], body
        if self._once:
            return self._once.popleft(), body
        return (self.script if self.answers is None else self.answers(body)), body

    def _keep(self, request: web.Request, body: Any) -> None:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.received.append(ReceivedRequest(request.path, headers, body))
