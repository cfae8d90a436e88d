"""Responses over a WebSocket: each ``response.create`` is a call of its own, with the conversation before it.

A client sends only new items, and names the response that it continues. Providers are asked over HTTP, with the whole
conversation, so that any of them may answer. So the conversation is kept here, for each stream of the connection.
"""

import asyncio
from collections import deque
from collections.abc import Hashable
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from gateway.access import FORWARDED_FOR, Client, Trust
from gateway.api.admission import admitted_call
from gateway.api.bodies import ReceivedBody, address_of, most_bytes, read_contents
from gateway.api.context import CONTEXT, Context, GatewayPhase
from gateway.api.endpoints.responses import RESPONSES_ENDPOINT
from gateway.api.handler import answer_of
from gateway.api.refusals import CALL_ID, RefusedRequest
from gateway.api.told import error_body
from gateway.api.turns import (
    ConnectionTooOld,
    ResponseCancelled,
    SocketTurn,
    SocketTurns,
    TooManyStreams,
    TooManyTurns,
    answer_to,
    cancelled_id,
    kind_of,
    preparing,
    stream_of,
)
from gateway.core.errors import (
    ApiError,
    Forbidden,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    Overloaded,
    ShuttingDown,
)
from gateway.http import (
    GOING_AWAY,
    NORMAL,
    POLICY,
    Contents,
    SocketMessage,
    WebSocket,
    WebSocketResponse,
    accepted_key,
    is_upgrade,
)
from gateway.limits import BegunHolds, LimitReached
from gateway.overload import LONGEST_S, SEATED_BYTES, MessagePace, TooManySockets, process_full
from gateway.racing import ClientGone
from gateway.settings import ClientRole

PATH = "/v1/responses"
# Limits from OpenAI's guide to the WebSocket mode (2026-11).
LIFE_S = 3600.0
MOST_STREAMS = 32  # with a name
MOST_RUNNING = 16  # turns
MOST_WAITING = 64  # turns
# Our own limits.
IDLE_S = 600.0  # without a turn
PING_S = 20.0  # of silence; proxies close a silent connection after a minute
LONGEST_CANCEL = 512  # bytes; so short a message is read even if the client's limits leave nothing
SILENT_S = 300.0  # without even a reply to a ping; a client that is busy with a tool may not reply for minutes

_CANCEL = "response.cancel"
# A client has read an answer to its end, as Codex tells without awaiting an answer: openai/codex/pull/21642, read on
# 2026-12-01.
_PROCESSED = "response.processed"

# Counted by limits before a message is read; the rest is counted when the turn runs, perhaps after other turns.
_COUNTED = frozenset({"rpm"})


async def responses_socket(request: web.Request) -> web.StreamResponse:
    """Serve the WebSocket of ``GET /v1/responses``; refuse any other GET.

    Raises:
        MethodNotAllowed: the request is not a handshake.
        NoWebSocket: the handshake is not valid.
        ApiError: the client is not admitted.

    """
    if not is_upgrade(request):
        raise MethodNotAllowed(f"{PATH!r} takes POST, not {request.method}", headers={"allow": "POST"})
    accepted_key(request)
    context = request.app[CONTEXT]
    context.check_begins()
    if context.phase is not GatewayPhase.SERVING:
        raise ShuttingDown("the gateway is stopping; connect again")
    client = _admit(request)
    _check_origin(request, context)
    owner, address = client.name or address_of(request, context), address_of(request, context)
    try:
        entry = context.sockets.enter(owner, asyncio.get_running_loop().time())
    except TooManySockets:
        await context.sockets.hold(owner, context.drains)
        raise
    try:
        socket = WebSocket(request, context.bodies, owner, address, partial(most_bytes, context))
        return await _Session(request, context, socket, owner, MessagePace(entry)).serve(await socket.open())
    finally:
        context.sockets.leave(owner)


def _admit(request: web.Request) -> Client:
    client = request.app[CONTEXT].admission.admit(request)
    if client.role is ClientRole.VIEWER:
        raise Forbidden("this key may only read, as its role is viewer: calls and changes need another one")
    return client


def _check_origin(request: web.Request, context: Context) -> None:
    """Check that no web page of an unlisted origin sent the handshake, as browsers send it without a preflight.

    Raises:
        Forbidden: such a page sent it.

    """
    origin = request.headers.get("origin")
    if origin is None or origin in context.settings.cors:
        return
    with suppress(ValueError):  # not a URL
        if urlsplit(origin).netloc == request.host:
            return
    raise Forbidden(f"web pages of {origin[:200]!r} may not call: the operator lists origins in 'cors'")


class _Stream:
    """One stream, with one turn after the other."""

    def __init__(self) -> None:
        self.running: SocketTurn | None = None
        self.task: asyncio.Task[None] | None = None  # of the running turn
        self.is_cancelled = False  # by the client
        self.has_begun = False  # whether the task runs; a task that is cancelled before reports nothing


def _is_of_client(error: ApiError) -> bool:
    return error.status_code < InternalError.status


def _cancelled() -> ResponseCancelled:
    return ResponseCancelled("the response was cancelled, as asked for")


class _Session:
    """One connection."""

    def __init__(
        self, request: web.Request, context: Context, socket: WebSocket, owner: Hashable, pace: MessagePace
    ) -> None:
        self._pace = pace
        self._request, self._context, self._socket, self._owner = request, context, socket, owner
        self._loop = asyncio.get_running_loop()
        self._born_s = self._idle_since = self._pinged_s = self._loop.time()
        self._conversations = SocketTurns(context, owner)
        self._streams: dict[str | None, _Stream] = {}
        self._waiting: deque[SocketTurn] = deque()
        self._running = 0
        self._closes_with: int | None = None  # the code to close with after the running turns; no more turns are taken
        self._is_over = False
        self._tasks: asyncio.TaskGroup

    async def serve(self, response: WebSocketResponse) -> web.StreamResponse:
        """Answer turns until the connection ends; return ``response``."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                keeping = self._tasks.create_task(self._keep_up())
                try:
                    while (message := await self._socket.receive()) is not None:
                        await self._read(message)
                        await self._rest()
                finally:
                    self._is_over = True
                keeping.cancel()
                for stream in self._streams.values():
                    if stream.task is not None:
                        stream.task.cancel()
        except asyncio.CancelledError as cancelled:
            if self._context.phase is GatewayPhase.CUTTING:
                self._socket.close(GOING_AWAY, "the gateway stopped")
            cancelled.__traceback__ = None  # the group's frame has the error, whose frames have a message
            raise
        finally:
            self._conversations.close()
            self._socket.drop_messages()
            for turn in self._waiting:
                turn.release()
        await self._socket.finish()
        return response

    # Messages from the client.

    async def _rest(self) -> None:
        """Delay the next message, if too many were refused."""
        if (rest_s := self._pace.until_s - self._loop.time()) > 0:
            await self._socket.rest(rest_s)

    async def _begin(self, message: SocketMessage) -> tuple[BegunHolds | None, LimitReached | None]:
        """Count an unread message as a request of the client; or return why only a cancellation is accepted.

        Raises:
            LimitReached: a limit leaves nothing.
            ApiError: the key has ended.

        """
        context = self._context
        client = _admit(self._request)
        if not (client.limits or context.payers.is_used):
            return None, None
        levels = context.payers.levels(client)
        try:
            context.limits.check(levels, spends=context.spends(client), is_begun=True)
            return await context.limits.begin(levels, _COUNTED), None
        except LimitReached as reached:
            if message.size > LONGEST_CANCEL:
                raise
            return None, reached.with_traceback(None)

    async def _read(self, message: SocketMessage) -> None:
        """Read one message, and begin the turn if it is due."""
        stream, turn_number, begun = None, False, None
        try:
            await self._pace.turn()  # others have turns, too, however many messages come on however many connections
            begun, limit = await self._begin(message)
            contents = await self._contents(message)
            stream, kind = stream_of(contents), kind_of(contents)
            if kind in {_CANCEL, _PROCESSED}:  # these cost nothing, and a cancellation saves something
                if kind == _CANCEL:
                    self._cancel(stream, cancelled_id(contents))
                if begun is not None:
                    begun.end(counts=False)
            elif limit is not None:
                raise limit
            elif kind == "response.create":
                self._enqueue(SocketTurn(contents, message, self._socket, self._conversations, begun))
                turn_number = True
            else:
                raise InvalidRequest(
                    f"{kind[:100]!r} is not a type of message here: send 'response.create' or 'response.cancel'",
                    param="type",
                )
        except (ApiError, MemoryError) as error:
            self._refuse(error if isinstance(error, ApiError) else process_full(), stream, message.size)
            with suppress(ClientGone):
                await self._socket.drain()
        finally:
            if not turn_number:
                message.release()
                if begun is not None:
                    begun.end()
        self._begin_turns()

    async def _contents(self, message: SocketMessage) -> Contents:
        if message.error is not None:
            raise message.error
        if not message.is_text:
            raise InvalidRequest("messages must be text with a JSON object, not binary")
        most_values = self._context.settings.limits.max_values
        return await read_contents(message.take(), self._context.body_work, most_values=most_values)

    def _enqueue(self, turn: SocketTurn) -> None:
        if self._closes_with is not None:
            raise self._refusal()
        names = self._streams.keys() - {None}
        if turn.stream is not None and turn.stream not in names and len(names) >= MOST_STREAMS:
            raise TooManyStreams(
                f"this connection has used {MOST_STREAMS} different stream_ids: use one of them again, or open another"
                " connection",
                param="stream_id",
            )
        if len(self._waiting) >= MOST_WAITING:
            raise TooManyTurns(f"{MOST_WAITING} turns wait on this connection already: wait for the end of one")
        if turn.only_prepares:
            self._pace.warmed(self._loop.time())
        self._streams.setdefault(turn.stream, _Stream())
        self._waiting.append(turn)

    def _cancel(self, name: str | None, response_id: str | None) -> None:
        """Cancel the running turn of a stream."""
        stream = self._streams.get(name)
        turn = None if stream is None else stream.running
        if stream is None or stream.task is None or turn is None or response_id not in {None, turn.response_id}:
            raise InvalidRequest("there is no such response to cancel: none runs in this stream", param="response_id")
        stream.is_cancelled = True
        stream.task.cancel()

    # Turns.

    def _begin_turns(self) -> None:
        """Begin the turns that are due: one after the other in each stream, and not too many at a time."""
        for turn in list(self._waiting):  # the longest waiting first
            if self._is_over or self._running >= MOST_RUNNING:
                break
            stream = self._streams[turn.stream]
            if stream.running is None:
                self._waiting.remove(turn)
                self._running += 1
                stream.running, stream.is_cancelled, stream.has_begun = turn, False, False
                stream.task = self._tasks.create_task(self._run(stream, turn))
                stream.task.add_done_callback(partial(self._ended, stream, turn))
        self._socket.is_idle = not self._running

    def _ended(self, stream: _Stream, turn: SocketTurn, _: object) -> None:
        """Go on after the end of a turn's task, even if the task was cancelled before it began."""
        turn.release()
        if stream.is_cancelled and not stream.has_begun:
            self._tell(_cancelled(), turn.stream)
        stream.running = stream.task = None
        self._running -= 1
        self._idle_since = self._loop.time()
        self._begin_turns()
        self._close_if_done()

    async def _run(self, stream: _Stream, turn: SocketTurn) -> None:
        """Answer a turn; send every error to the client."""
        stream.has_begun = True
        try:
            await self._answer(turn)
        except ApiError as error:
            self._refuse(error, turn.stream)
        except MemoryError:
            self._refuse(process_full(), turn.stream)
        except ClientGone:
            pass  # the connection has ended, or is about to
        except asyncio.CancelledError:
            if stream.is_cancelled:
                self._tell(_cancelled(), turn.stream)
            elif self._context.phase is GatewayPhase.CUTTING and not turn.is_told:
                self._refuse(ShuttingDown("the gateway stopped before this answer was complete; retry"), turn.stream)
            raise
        except Exception as defect:  # noqa: BLE001 - the last handler: other turns go on, and clients see no internals
            crash = InternalError("internal error; the log of the gateway has the details")
            self._context.refusals.add(crash.status, crash.kind, self._facts(), defect=defect)
            self._tell(crash, turn.stream)

    async def _answer(self, turn: SocketTurn) -> None:
        """Answer a turn like any request; its rpm was counted when the message came."""
        answer = preparing(turn) if turn.only_prepares else answer_of(RESPONSES_ENDPOINT, answer_to(turn))
        receive, runs_model = partial(self._received, turn), not turn.only_prepares
        # The key may have ended since.
        await admitted_call(answer, admit=_admit, receive=receive, before=turn.begun, runs_model=runs_model)(
            self._request
        )

    async def _received(self, turn: SocketTurn, owner: Hashable) -> ReceivedBody:
        """Return a counted body. The caller must not keep the bytes: the call forgets them when the answer begins."""
        body = await turn.body(self._context)
        is_short = len(body) <= SEATED_BYTES
        return ReceivedBody(body, None if is_short else self._context.bodies.whole(owner, len(body)))

    # Errors for the client.

    def _refuse(self, error: ApiError, stream: str | None, size: int = 0) -> None:
        """Count an error of ours, and send it; ``size``: of the message that was read in vain."""
        self._context.refusals.add_error(error, self._facts)
        if isinstance(error, LimitReached | Overloaded) or (_is_of_client(error) and CALL_ID not in error.headers):
            self._pace.refused(self._loop.time(), float(error.headers.get("retry-after", LONGEST_S)), size)
        error.__traceback__ = error.__context__ = error.__cause__ = None  # its frames have the body
        self._tell(error, stream)

    def _tell(self, error: ApiError, stream: str | None) -> None:
        """Send an error as an event in the API's form."""
        body = msgspec.json.decode(error_body(error, RESPONSES_ENDPOINT.dialect, None))  # as over HTTP
        event: dict[str, Any] = {"type": "error", "status": error.status_code, **body}
        if error.headers:
            event["headers"] = error.headers
        if stream is not None:
            event["stream_id"] = stream
        with suppress(ClientGone):
            self._socket.send(msgspec.json.encode(event))

    def _facts(self) -> RefusedRequest:
        request, context = self._request, self._context
        trust = Trust(context.settings.trusted_proxies)
        return RefusedRequest(
            peer=trust.named(request.remote, request.headers.getall(FORWARDED_FOR, ())),
            method=request.method,
            endpoint=PATH,
            client=context.admission.name_of(request),
        )

    # The life of the connection.

    async def _keep_up(self) -> None:
        """Send pings, and end the connection when it is old, idle or dead, or when the gateway stops."""
        while True:
            due_s = self._look(self._loop.time())
            try:
                async with asyncio.timeout(due_s):
                    await self._context.drains.wait()
            except TimeoutError:
                continue
            self._close_soon(GOING_AWAY)
            return

    def _look(self, now: float) -> float:
        """Do what is due; return the seconds until the next check."""
        socket, clocks = self._socket, self._context.settings.client_timeouts
        silent_s = now - socket.heard_at
        if self._running:
            self._idle_since = now
        if self._closes_with is None and now - self._born_s >= LIFE_S:
            self._tell(self._refusal(), None)
            self._close_soon(NORMAL)
        elif socket.is_late(now, clocks.body_timeout_s, clocks.body_kib_per_s * 1024):
            socket.close(POLICY, "the message did not come in time")
        elif silent_s >= SILENT_S and not self._running:
            socket.abort()
        elif now - self._idle_since >= IDLE_S:
            socket.close(NORMAL, "it was not used")
        elif silent_s >= PING_S and now - self._pinged_s >= PING_S:
            self._pinged_s = now
            socket.ping()
        return min(PING_S, max(0.0, self._born_s + LIFE_S - now) or PING_S)

    def _close_soon(self, code: int) -> None:
        """Refuse further turns, and close after the running turns."""
        self._closes_with = code
        while self._waiting:
            turn = self._waiting.popleft()
            turn.release()
            self._refuse(self._refusal(), turn.stream)
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self._closes_with is not None and not self._running:
            self._socket.close(self._closes_with)

    def _refusal(self) -> ApiError:
        """Return the error for further turns."""
        if self._closes_with == GOING_AWAY:
            return ShuttingDown("the gateway is stopping; connect again")
        return ConnectionTooOld(
            f"this connection is {LIFE_S / 60:.0f} minutes old and takes no more turns: open another one"
        )
