"""``Racer``: the gateway's engine in the caller's own process, without a server."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Self

import msgspec

from gateway.access import LOCAL
from gateway.api import (
    CHAT_ENDPOINT,
    MESSAGES_ENDPOINT,
    RESPONSES_ENDPOINT,
    CallAsked,
    CallContext,
    CallRunner,
    ClientContext,
    Endpoint,
    ParsedRequest,
    planned_call,
)
from gateway.app import Engine, EngineRecorder, Runtime
from gateway.core.calls import CallRecord
from gateway.core.errors import (
    ApiError,
    ClientDisconnected,
    InvalidRequest,
    ModelNotFound,
    ResponseNotFound,
    ShuttingDown,
)
from gateway.core.race_failures import RaceFailed
from gateway.http import Contents
from gateway.racing import GatheringSink
from gateway.settings import ConfigurationError, Problem, TracingSettings, load
from gateway.tracing import Tracing
from holeshot._running import BlockSink, StreamedCall, Task, ended, result_of
from providers import UpstreamError, encoded, events

__all__ = [
    "Answer",
    "Api",
    "ApiError",
    "Attempt",
    "Chunk",
    "ConfigurationError",
    "InvalidRequest",
    "ModelNotFound",
    "RaceFailed",
    "Racer",
    "Stream",
    "UpstreamError",
    "race",
]

Messages = str | Sequence[Mapping[str, Any]]
_DONE = b"[DONE]"
_SQLITE = b"SQLite format 3\0"  # the first bytes of a SQLite file
_TextOf = Callable[[Mapping[str, Any]], str]


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One request to a provider, made for a call."""

    deployment: str
    outcome: str  # won, lost, …: ``attempts.outcome`` of the ledger
    ttft_s: float | None  # from the attempt's launch to its first token; None: no token
    cost_usd: float | None
    error: str | None  # why the attempt failed


class Chunk(msgspec.Struct, frozen=True):
    """One event of an answer. ``data`` has the API's form (``chat.completion.chunk``); ``text`` is the text it adds."""

    text: str
    data: dict[str, Any]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer. ``data`` has the API's form (``chat.completion``)."""

    text: str
    data: dict[str, Any]
    winner: str  # the deployment that answered
    ttft_s: float | None  # from the call to the first token
    cost_usd: float | None  # winner and losers, as far as known
    attempts: Sequence[Attempt]
    call_id: str


class Stream:
    """An answer as it arrives: ``async for chunk in stream``, once. No request is sent before the loop begins.

    ``winner`` and ``ttft_s`` are set from the first chunk on, ``attempts`` and ``cost_usd`` at the end. Leaving the
    loop early cancels all attempts; ``aclose`` waits until they have ended.
    """

    winner: str | None = None  # the deployment that answers
    ttft_s: float | None = None  # from the call to the first token
    cost_usd: float | None = None
    attempts: Sequence[Attempt] = ()

    def __init__(self, start: Callable[[], StreamedCall], text_of: Callable[[Mapping[str, Any]], str]) -> None:
        self._start = start
        self._text_of = text_of
        self._call: StreamedCall | None = None

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        """Make the call, and yield its chunks.

        Raises:
            ApiError: no provider answered, or the request is at fault; nothing was yielded.
            UpstreamError: the answer broke off.
            RuntimeError: the stream has been read before.

        """
        if self._call is not None:
            raise RuntimeError("a stream is read once: call Racer.stream again")
        call = self._call = self._start()
        try:
            async for block in call.blocks():
                if (winner := call.sink.winner) is not None:
                    self.winner, self.ttft_s = winner.deployment, _seconds(winner.ttft_ms)
                for event in events(block):
                    if event.data and event.data.strip() != _DONE:
                        data = msgspec.json.decode(event.data, type=dict[str, Any])
                        yield Chunk(self._text_of(data), data)
        finally:
            await call.aclose()
            if (record := call.record) is not None:
                self.attempts, self.cost_usd = _attempts(record), record.cost_usd

    async def aclose(self) -> None:
        """Cancel the call if it is still running, and wait until it has ended."""
        if self._call is not None:
            await self._call.aclose()


class Api:
    """Another API of a ``Racer``, with methods named as in the vendor's SDK: ``create``, and ``stream`` for a stream.

    ``fields`` are the API's own; ``race`` is a field, too.
    """

    def __init__(self, racer: "Racer", endpoint: Endpoint, text_of_event: _TextOf, text_of_answer: _TextOf) -> None:
        self._racer = racer
        self._endpoint = endpoint
        self._text_of_event = text_of_event
        self._text_of_answer = text_of_answer

    def stream(self, *, model: str, **fields: Any) -> Stream:
        """Return the answer as a stream of chunks; the ``data`` of each is an event of this API.

        Raises:
            InvalidRequest: a field is wrong.

        """
        request = self._request(model, fields, stream=True)
        return Stream(partial(self._racer.running, request), self._text_of_event)

    async def create(self, *, model: str, **fields: Any) -> Answer:
        """Return the whole answer; its ``data`` has the form of this API.

        Raises:
            ApiError: no provider answered, or the request is at fault.

        """
        return await self._racer.whole(self._request(model, fields, stream=False), self._text_of_answer)

    def _request(self, model: str, fields: Mapping[str, Any], *, stream: bool) -> ParsedRequest:
        return self._racer.read(self._endpoint, {"model": model, **_unstreamed(fields)}, stream=stream)


class Racer:
    """Races providers in this process: ``async with Racer(...) as racer``, in one event loop.

    A Racer uses a gateway's configuration: ``providers``, ``models`` and timeouts. The settings of clients, stores and
    the server are ignored, and limits count this process alone.
    """

    def __init__(
        self,
        config: "str | os.PathLike[str] | None" = None,
        *,
        providers: Mapping[str, Any] | None = None,
        models: Mapping[str, Any] | None = None,
        ledger: "str | os.PathLike[str] | None" = None,
    ) -> None:
        """Read the configuration: a file, or its sections as arguments, or keys in variables such as GROQ_API_KEY.

        ``ledger`` is a SQLite file for calls and attempts, created if it does not exist; None: calls are not stored.

        Raises:
            ConfigurationError: with every problem found.

        """
        for name, sections in (("providers", providers), ("models", models)):
            if sections is not None and not isinstance(sections, Mapping):
                raise ConfigurationError([Problem(f"{name}: must be a dict, as the section of a file")])
        given = {"providers": _plain(providers), "models": _plain(models), "workers": 1}
        path = None if config is None else Path(config)
        self._settings = load(path, os.environ, given)
        if not self._settings.providers:
            raise ConfigurationError(
                [Problem("there is no provider: set a key such as GROQ_API_KEY, or give 'providers' or a file")]
            )
        self._ledger = None if ledger is None else _ledger_path(ledger)
        self._context: CallContext | None = None
        self._calls: set[Task] = set()
        self._exit = AsyncExitStack()
        self._is_entered = self._is_closing = False
        self.loop: asyncio.AbstractEventLoop | None = None  # in which the Racer was entered
        self._chat = Api(self, CHAT_ENDPOINT, partial(_of_chat, "delta"), partial(_of_chat, "message"))
        self.responses = Api(self, RESPONSES_ENDPOINT, _responses_event, _responses_answer)
        self.messages = Api(self, MESSAGES_ENDPOINT, _messages_event, _messages_answer)

    async def __aenter__(self) -> Self:
        """Open the ledger, if there is one, and the providers.

        Raises:
            ConfigurationError: the file cannot be used as a ledger, or a provider cannot be opened.
            RuntimeError: the Racer has been entered before.

        """
        if self._is_entered:
            raise RuntimeError("a Racer is entered once: make another one")
        self._is_entered = True
        self.loop = asyncio.get_running_loop()
        runtime, settings = Runtime(), self._settings
        async with AsyncExitStack() as stack:
            ledger = None if self._ledger is None else await _open_ledger(self._ledger, runtime, stack)
            engine = Engine(settings, runtime)
            recorder = EngineRecorder(engine, ledger)
            stack.push_async_callback(engine.leases.close)
            engine.close_with(stack)
            await engine.leases.start()
            engine.start()
            off = settings.model_copy(update={"tracing": TracingSettings()})
            self._context = CallContext(
                settings=settings,
                fleet=engine.fleet,
                steering=engine.steering,
                limits=engine.limits,
                services=engine.services(recorder),
                tracing=Tracing(off, worker="", clock=runtime.clock),
                replica=settings.replica or "racer",
            )
            self._exit = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancel the calls that are still running, wait for them, and close everything."""
        self._is_closing = True
        for task in self._calls:
            task.cancel()
        if self._calls:
            await asyncio.wait(set(self._calls))
        self._context = None
        await self._exit.aclose()

    def stream(self, model: str, messages: Messages, **fields: Any) -> Stream:
        """Return the answer as a stream of chunks. ``fields`` are further fields of a chat completion.

        ``messages`` may be one prompt. ``race`` is a field, too: ``race={"mode": "race", "width": 3}``.

        Raises:
            InvalidRequest: a field is wrong.

        """
        return self._chat.stream(model=model, messages=_as_messages(messages), **fields)

    async def complete(self, model: str, messages: Messages, **fields: Any) -> Answer:
        """Return the whole answer. The arguments are those of ``stream``.

        Raises:
            ApiError: no provider answered, or the request is at fault.

        """
        return await self._chat.create(model=model, messages=_as_messages(messages), **fields)

    def read(self, endpoint: Endpoint, fields: Mapping[str, Any], *, stream: bool) -> ParsedRequest:
        """Return a request to an API. Internal to this package, as are the methods below.

        Raises:
            InvalidRequest: a field is wrong.

        """
        try:
            written = encoded({**fields, "stream": stream})
        except (TypeError, ValueError) as error:
            raise InvalidRequest(f"the request cannot be written as JSON: {error}") from None
        return self.parsed(endpoint, written, None)

    def parsed(self, endpoint: Endpoint, body: bytes, race_header: str | None) -> ParsedRequest:
        """Return ``body`` as a request.

        Raises:
            InvalidRequest, ResponseNotFound: a field is wrong, or names what is not kept here.

        """
        request = endpoint.read(Contents.of(body), race_header, self._settings)
        if request.runs_on:
            raise InvalidRequest(
                "a Racer answers nothing in the background: leave 'background' out", param="background"
            )
        if request.continues is not None and self._settings.provider_state != "any":
            raise ResponseNotFound(
                "a Racer keeps no responses: send the conversation so far as 'input'", param="previous_response_id"
            )
        return request

    def running(self, request: ParsedRequest) -> StreamedCall:
        """Start a call whose answer streams."""
        return StreamedCall(partial(self._start, request))

    async def gathered(self, request: ParsedRequest) -> tuple[GatheringSink, CallRecord]:
        """Make a call whose answer comes whole; return the sink with the answer, and the call's record.

        Raises:
            ApiError: no provider answered, or the request is at fault.

        """
        sink = GatheringSink(request.dialect)
        task = self._start(request, sink)
        try:
            await asyncio.wait({task})
        finally:
            await ended(task)
        return sink, result_of(task)

    async def whole(self, request: ParsedRequest, text_of: _TextOf) -> Answer:
        """Return the whole answer to a request.

        Raises:
            ApiError: no provider answered, or the request is at fault.

        """
        sink, record = await self.gathered(request)
        assert sink.winner is not None  # without a winner, its task has raised
        data = msgspec.json.decode(sink.body(), type=dict[str, Any])
        return Answer(
            text=text_of(data),
            data=data,
            winner=sink.winner.deployment,
            ttft_s=_seconds(record.ttft_ms),
            cost_usd=record.cost_usd,
            attempts=_attempts(record),
            call_id=record.id,
        )

    @property
    def models(self) -> Sequence[str]:
        """The names of the configured models."""
        return tuple(self._settings.models)

    def _start(self, request: ParsedRequest, sink: BlockSink | GatheringSink) -> Task:
        """Return the task of a call, whose answer goes to ``sink``. ``close`` cancels it."""
        if self._context is None or self._is_closing:
            raise RuntimeError("a Racer is used inside of `async with`")
        if (loop := asyncio.get_running_loop()) is not self.loop:
            raise RuntimeError("a Racer is used in the event loop in which it was entered")
        task = loop.create_task(self._run(self._context, request, sink))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    async def _run(self, context: CallContext, request: ParsedRequest, sink: BlockSink | GatheringSink) -> CallRecord:
        plan = partial(planned_call, CallAsked(context, request, ClientContext(client=LOCAL)))

        def cancelled_as() -> type[ApiError]:
            return ShuttingDown if self._is_closing else ClientDisconnected

        with context.fleet:
            runner = CallRunner(context, request.model, request.preferences, plan, cancelled_as=cancelled_as)
            await runner.begin()
            run = partial(runner.stream, sink) if isinstance(sink, BlockSink) else partial(runner.gather, sink)
            return await runner.run(run)


async def race(
    model: str,
    messages: Messages,
    *,
    config: "str | os.PathLike[str] | None" = None,
    providers: Mapping[str, Any] | None = None,
    models: Mapping[str, Any] | None = None,
    ledger: "str | os.PathLike[str] | None" = None,
    **fields: Any,
) -> Answer:
    """Return one answer: ``Racer.complete`` in one line. Connections and estimates are not kept for the next call.

    Raises:
        ConfigurationError: with every problem found.
        ApiError: no provider answered, or the request is at fault.

    """
    async with Racer(config, providers=providers, models=models, ledger=ledger) as racer:
        return await racer.complete(model, messages, **fields)


def _as_messages(messages: Messages) -> Sequence[Mapping[str, Any]]:
    return [{"role": "user", "content": messages}] if isinstance(messages, str) else messages


def _unstreamed(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    if "stream" in fields:
        raise InvalidRequest(
            "'stream' is not a field here: use Racer.stream or Racer.complete, Racer.responses.stream or .create,"
            " Racer.messages.stream or .create",
            param="stream",
        )
    return fields


def _attempts(record: CallRecord) -> Sequence[Attempt]:
    return tuple(
        Attempt(
            deployment=each.deployment,
            outcome=str(each.outcome),
            ttft_s=_seconds(each.ttft_ms),
            cost_usd=each.cost_usd,
            error=each.error_message,
        )
        for each in record.attempts
    )


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


# The text that an event adds, and that of a whole answer, by API.


def _of_chat(part: str, data: Mapping[str, Any]) -> str:
    """Return the text of the first choice; "" if it has none."""
    for choice in data.get("choices") or ():
        text = (choice.get(part) or {}).get("content")
        return text if isinstance(text, str) else ""
    return ""


def _responses_event(data: Mapping[str, Any]) -> str:
    return str(data["delta"]) if data.get("type") == "response.output_text.delta" else ""


def _responses_answer(data: Mapping[str, Any]) -> str:
    parts = (part for item in data.get("output") or () for part in item.get("content") or ())
    return "".join(part["text"] for part in parts if part.get("type") == "output_text")


def _messages_event(data: Mapping[str, Any]) -> str:
    is_delta = data.get("type") == "content_block_delta"
    return str(data["delta"].get("text", "")) if is_delta else ""


def _messages_answer(data: Mapping[str, Any]) -> str:
    return "".join(block["text"] for block in data.get("content") or () if block.get("type") == "text")


def _plain(sections: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if sections is None else dict(sections)


def _ledger_path(ledger: "str | os.PathLike[str]") -> Path:
    """Return the absolute path of a ledger.

    A gateway goes on without its database, and logs that. A program would not notice that nothing is stored.

    Raises:
        ConfigurationError: the file is not a SQLite database, cannot be read, or has a question mark in its path.

    """
    path, problem = Path(ledger).absolute(), None
    try:
        with path.open("rb") as file:
            head = file.read(len(_SQLITE))
    except FileNotFoundError:  # it will be created
        head = b""
    except OSError as error:
        head, problem = b"", f"{path} cannot be used: {error.strerror}"
    if head not in {b"", _SQLITE}:
        problem = f"{path} is not a SQLite database"
    if "?" in str(path):  # the path becomes part of a URL, where the parameters begin there
        problem = f"{path} has a question mark; use another name"
    if problem is not None:
        raise ConfigurationError([Problem(f"ledger: {problem}")])
    return path


async def _open_ledger(path: Path, runtime: Runtime, stack: AsyncExitStack) -> Any:
    """Return the started ledger of a SQLite file. ``stack`` closes it.

    Raises:
        ConfigurationError: the file cannot be used as a ledger.

    """
    from gateway.ledger import Ledger, LedgerError, prepare_schema  # noqa: PLC0415 - loads SQLAlchemy: few need it

    url = "sqlite+aiosqlite:///" + str(path).replace("%", "%25")  # in a URL a percent sign begins an escape
    try:
        await prepare_schema(url)
    except LedgerError as error:
        raise ConfigurationError([Problem(f"ledger: {error}")]) from None
    ledger = Ledger(
        url,
        path.with_name(f"{path.name}.spool"),
        f"racer-{runtime.new_id()}",
        clock=runtime.clock,
        utc_now=runtime.utc_now,
    )
    stack.push_async_callback(ledger.close)
    await ledger.start()
    return ledger
