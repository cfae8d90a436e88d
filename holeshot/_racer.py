"""``Racer``: the gateway's engine in the caller's own process, without a server."""

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from gateway.api.call_context import CallContext, ClientContext
from gateway.api.call_runner import CallRunner
from gateway.api.client import LOCAL
from gateway.api.endpoints import read_chat
from gateway.api.json_body import Contents
from gateway.api.plan_call import plan_call
from gateway.api.request import ParsedRequest
from gateway.app.engine import Engine, EngineRecorder, Runtime
from gateway.core.calls import CallRecord
from gateway.core.errors import ApiError, ClientDisconnected, InvalidRequest, ModelNotFound, ShuttingDown
from gateway.core.race_failures import RaceFailed
from gateway.racing import Block, ClientSink, GatheringSink, Winner
from gateway.settings import ConfigurationError, Problem, TracingSettings, load
from gateway.tracing.tracing import Tracing
from providers import UpstreamError, encoded, events

__all__ = [
    "Answer",
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
_MOST_WAITING = 64  # events that the caller has not read; with more, the winner is read no further (backpressure)
_T = TypeVar("_T")


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One request to a provider, made for a call."""

    deployment: str
    outcome: str  # won, lost, …: ``attempts.outcome`` of the ledger
    ttft_s: float | None  # since its launch; None: no token
    cost_usd: float | None
    error: str | None  # why it failed


class Chunk(msgspec.Struct, frozen=True):
    """One event of an answer. ``data`` is OpenAI's ``chat.completion.chunk``; ``text`` what it adds to the answer."""

    text: str
    data: dict[str, Any]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer. ``data`` is OpenAI's ``chat.completion``."""

    text: str
    data: dict[str, Any]
    winner: str  # the deployment
    ttft_s: float | None  # since the call
    cost_usd: float | None  # winner and losers, as far as known
    attempts: Sequence[Attempt]
    call_id: str


class Stream:
    """An answer as it arrives: ``async for chunk in stream``, once. No request is sent before the loop begins.

    ``winner`` and ``ttft_s`` are set from the first chunk on, ``attempts`` and ``cost_usd`` at the end. Leaving the
    loop early cancels all attempts; ``aclose`` waits until they have ended.
    """

    winner: str | None = None  # the deployment
    ttft_s: float | None = None  # since the call
    cost_usd: float | None = None
    attempts: Sequence[Attempt] = ()

    def __init__(self, racer: "Racer", request: ParsedRequest) -> None:
        self._racer = racer
        self._request = request
        self._sink = _ChunkSink()
        self._task: asyncio.Task[CallRecord] | None = None

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        """Make the call, and yield its chunks.

        Raises:
            ApiError: no provider answered, or the request is at fault; nothing was yielded.
            UpstreamError: the answer broke off.
            RuntimeError: the stream has been read before.

        """
        if self._task is not None:
            raise RuntimeError("a stream is read once: call Racer.stream again")
        sink = self._sink
        task = self._task = self._racer.start_call(self._request, sink)
        task.add_done_callback(sink.wake)
        try:
            while True:
                while sink.waiting:
                    data = sink.take()
                    self.winner, self.ttft_s = sink.winner, sink.ttft_s
                    yield Chunk(_text_of(data, "delta"), data)
                if task.done():
                    break
                await sink.arrival()
            self._note(_result(task))
            if sink.error is not None:
                raise sink.error
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Cancel the call if it is still running, and wait until it has ended."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})

    def _note(self, record: CallRecord) -> None:
        self.attempts, self.cost_usd = _attempts(record), record.cost_usd


class Racer:
    """Races providers in this process: ``async with Racer(...) as racer``, in one event loop.

    It uses a gateway's configuration: ``providers``, ``models`` and timeouts. The settings of clients, stores and the
    server are ignored, and limits count this process alone.
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

        ``ledger`` is a SQLite file for calls and attempts, created if it does not exist; None: they are not stored.

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
        self._calls: set[asyncio.Task[CallRecord]] = set()
        self._exit = AsyncExitStack()
        self._is_entered = self._is_closing = False

    async def __aenter__(self) -> Self:
        """Open the ledger, if there is one, and the providers.

        Raises:
            ConfigurationError: the file cannot be used as a ledger, or a provider cannot be opened.
            RuntimeError: the Racer has been entered before.

        """
        if self._is_entered:
            raise RuntimeError("a Racer is entered once: make another one")
        self._is_entered = True
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
        return Stream(self, _chat_request(model, messages, fields, stream=True))

    async def complete(self, model: str, messages: Messages, **fields: Any) -> Answer:
        """Return the whole answer. The arguments are those of ``stream``.

        Raises:
            ApiError: no provider answered, or the request is at fault.

        """
        request = _chat_request(model, messages, fields, stream=False)
        sink = GatheringSink(request.dialect)
        task = self.start_call(request, sink)
        try:
            await asyncio.wait({task})
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        record = _result(task)
        assert sink.winner is not None  # without a winner, _result has raised
        data = msgspec.json.decode(sink.body(), type=dict[str, Any])
        return Answer(
            text=_text_of(data, "message"),
            data=data,
            winner=sink.winner.deployment,
            ttft_s=_seconds(record.ttft_ms),
            cost_usd=record.cost_usd,
            attempts=_attempts(record),
            call_id=record.id,
        )

    def start_call(self, request: ParsedRequest, sink: "_ChunkSink | GatheringSink") -> "asyncio.Task[CallRecord]":
        """Return the task of a call, whose answer goes to ``sink``. ``close`` cancels it. Internal to this module."""
        if self._context is None or self._is_closing:
            raise RuntimeError("a Racer is used inside of `async with`")
        task = asyncio.get_running_loop().create_task(self._run(self._context, request, sink))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    async def _run(
        self, context: CallContext, request: ParsedRequest, sink: "_ChunkSink | GatheringSink"
    ) -> CallRecord:
        client = ClientContext(client=LOCAL)

        plan = partial(plan_call, context, request, client)

        def cancelled_as() -> type[ApiError]:
            return ShuttingDown if self._is_closing else ClientDisconnected

        with context.fleet:
            runner = CallRunner(context, request.model, request.preferences, plan, cancelled_as=cancelled_as)
            await runner.begin()
            run = partial(runner.stream, sink) if isinstance(sink, _ChunkSink) else partial(runner.gather, sink)
            record = await runner.run(run)
        assert isinstance(record, CallRecord)  # only ``answer_here`` returns anything else
        return record


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


class _ChunkSink(ClientSink):
    """The sink of a ``Stream``: a bounded queue of chunks, between the race and the caller."""

    streams = True
    understands = False

    def __init__(self) -> None:
        self.waiting: deque[dict[str, Any]] = deque()
        self.winner: str | None = None
        self.ttft_s: float | None = None
        self.error: UpstreamError | None = None
        self._arrived, self._room = asyncio.Event(), asyncio.Event()

    def take(self) -> dict[str, Any]:
        """Return the next chunk of the queue."""
        data = self.waiting.popleft()
        if len(self.waiting) < _MOST_WAITING:
            self._room.set()
        return data

    async def arrival(self) -> None:
        """Wait for a chunk, or for the end of the call."""
        self._arrived.clear()
        await self._arrived.wait()

    def wake(self, _: object = None) -> None:
        """Wake the task that waits in ``arrival``."""
        self._arrived.set()

    async def begin(self, winner: Winner) -> None:
        """Note the winner's deployment, and the time to first token."""
        self.winner, self.ttft_s = winner.deployment, _seconds(winner.ttft_ms)

    async def write(self, block: Block) -> None:
        """Queue the block's events, and wait while the queue is full."""
        self._add(block)
        while len(self.waiting) >= _MOST_WAITING:
            self._room.clear()
            await self._room.wait()

    async def end(self, last: Block) -> None:
        """Queue the last events."""
        self._add(last)

    def keep_alive(self, every_s: float) -> None:
        """Do nothing: there is no connection to keep open."""

    async def close(self) -> None:
        """Do nothing: there is no connection to close."""

    async def fail(self, error: UpstreamError) -> None:
        """Keep the error until the caller has read the chunks before it."""
        self.error = error

    def _add(self, block: Block) -> None:
        if self.delivered is not None:
            self.delivered.add(block.forward)
        for event in events(block.forward):
            if event.data and event.data.strip() != _DONE:
                self.waiting.append(msgspec.json.decode(event.data, type=dict[str, Any]))
        self._arrived.set()


def _chat_request(model: str, messages: Messages, fields: Mapping[str, Any], *, stream: bool) -> ParsedRequest:
    if "stream" in fields:
        raise InvalidRequest("'stream' is not a field here: use Racer.stream or Racer.complete", param="stream")
    prompt = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    body = {"model": model, "messages": prompt, **fields, "stream": stream}
    try:
        written = encoded(body)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"the request cannot be written as JSON: {error}") from None
    return read_chat(Contents.of(written), None)


def _result(task: "asyncio.Task[_T]") -> _T:
    """Return the result of an ended task, or raise its exception.

    Raises:
        ShuttingDown: the task was cancelled.

    """
    if task.cancelled():
        raise ShuttingDown("the Racer was closed while this call ran")
    return task.result()


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


def _text_of(data: Mapping[str, Any], part: str) -> str:
    """Return the text of the first choice; "" if it has none."""
    for choice in data.get("choices") or ():
        text = (choice.get(part) or {}).get("content")
        return text if isinstance(text, str) else ""
    return ""


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
