"""One turn of a conversation over a WebSocket: the request, with the conversation before it, and the events."""

import re
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any

import msgspec
from aiohttp import web

from gateway.access import Client
from gateway.api.admission import AdmittedRequest, ClientHandler
from gateway.api.bodies import most_bytes, read_contents, too_large
from gateway.api.call_context import ClientContext
from gateway.api.client_sinks import StreamingSink
from gateway.api.context import CONTEXT, Context
from gateway.api.endpoints.responses import RESPONSES_ENDPOINT
from gateway.api.handler import MakeAnswer, Responder
from gateway.api.provider_state import StoredAt
from gateway.api.request import ParsedRequest
from gateway.core.calls import Maker
from gateway.core.errors import ApiError, InvalidRequest, ResponseNotFound
from gateway.http import Contents, SocketMessage, WebSocket, decoded, headers, is_set
from gateway.limits import BegunHolds
from gateway.memory import Remembering
from gateway.overload import Body
from gateway.racing import ClientGone
from providers import Steps, as_utf8, encoded, events, finished
from providers.dialects import DONE, ELSEWHERE, Heard, Malformed, items_of, joined, warmed_up

# Errors that only a WebSocket has; all are sent as events.


class InvalidStream(InvalidRequest):
    """The name of a WebSocket's stream is invalid."""

    # Means: Over a WebSocket: `stream_id` is not 1 to 256 letters, digits, underscores, hyphens or periods.
    # Retry: no.
    # Caller: Send another `stream_id`, or none.
    code = "invalid_stream_id"


class TooManyStreams(InvalidRequest):
    """A WebSocket has the maximum of streams."""

    # Means: Over a WebSocket: the connection has used 32 different values of `stream_id`.
    # Retry: no.
    # Caller: Use one of them again, or open another connection.
    code = "websocket_stream_limit_reached"


class ConnectionTooOld(InvalidRequest):
    """A WebSocket has been open for 60 minutes, and takes no more turns."""

    # Means: The WebSocket has been open for 60 minutes. It takes no more turns.
    # Retry: yes.
    # Caller: Open another connection, and send the whole conversation.
    code = "websocket_connection_limit_reached"


class TooManyTurns(ApiError):
    """Too many turns wait on a WebSocket."""

    # Means: Over a WebSocket: 64 turns wait until others have ended.
    # Retry: yes.
    # Caller: Wait for the end of a turn before sending the next one.
    status = 429
    type = "rate_limit_error"
    code = "too_many_turns"


class ResponseCancelled(ApiError):
    """The client cancelled a turn of a WebSocket."""

    # Means: Over a WebSocket: the client has sent `response.cancel`. The turn was stopped, at the providers too; SQL
    # has `client_disconnected`.
    # Retry: no.
    # Caller: Nothing. The connection stays open.
    status = 499
    type = "invalid_request_error"
    code = "response_cancelled"


# The conversations of a connection: up to the last response of each stream, where the client sends ``store: false``, or
# the gateway keeps no answers. Other conversations are in the memory of answers (``gateway/memory``).

MOST_KEPT_BYTES = 8 * 2**20  # of one conversation
COPIED_BYTES = 2**18  # up to this, copies in one go take a tenth of a millisecond; of megabytes, some milliseconds


class KeptConversation(msgspec.Struct, frozen=True):
    """A conversation up to a response: its items as JSON, without the brackets of the array."""

    id: str  # of the response
    items: bytes
    counted: Body  # in the budget of bodies


class SocketTurns:
    """The conversations that a connection keeps; all count in the owner's part of the budget of bodies."""

    def __init__(self, context: Context, owner: Hashable) -> None:
        self._context, self._owner = context, owner
        self._kept: dict[str | None, KeptConversation] = {}  # by stream

    def find(self, response_id: str | None) -> KeptConversation | None:
        """Return the conversation up to a response of any stream; None: not kept here."""
        if response_id is None:
            return None
        return next((each for each in self._kept.values() if each.id == response_id), None)

    def count(self, size: int) -> Body | None:
        """Count bytes that may be kept; None: there is no room."""
        if size > MOST_KEPT_BYTES or not self.has_plenty(size):
            return None
        try:
            return self._context.bodies.whole(self._owner, size)
        except ApiError:
            return None

    def has_plenty(self, size: int) -> bool:
        """Whether so many bytes leave half of the owner's budget, and half of all, to the bodies of calls."""
        bodies = self._context.bodies
        return (
            bodies.used_by(self._owner) + size <= bodies.most_each // 2 and bodies.size + size <= bodies.most_bytes // 2
        )

    def keep(self, stream: str | None, kept: KeptConversation) -> None:
        """Keep a conversation in place of the stream's former one."""
        if (earlier := self._kept.get(stream)) is not None:
            earlier.counted.release()
        self._kept[stream] = kept

    def close(self) -> None:
        """Forget all conversations."""
        for turn in self._kept.values():
            turn.counted.release()
        self._kept.clear()


# A turn.

_STREAM = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_ENVELOPE = ("type", "stream_id", "generate", "stream", "background")  # of a message only, not of a request over HTTP
_TRUE = msgspec.Raw(b"true")
_text = msgspec.json.Decoder(str)
_optional_text = msgspec.json.Decoder(str | None)
_flag = msgspec.json.Decoder(bool | None)


def kind_of(contents: Contents) -> str:
    """Return the ``type`` of a message; "" without one.

    Raises:
        InvalidRequest: it is not a text.

    """
    raw = contents.fields.get("type")
    return "" if raw is None else str(decoded("type", raw, _text))


def stream_of(contents: Contents) -> str | None:
    """Return the name of a message's stream; None for the stream without a name.

    Raises:
        InvalidStream: the name is not valid.

    """
    raw = contents.fields.get("stream_id")
    if raw is None:
        return None
    try:
        name = _text.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        name = ""
    if _STREAM.fullmatch(name) is None:
        raise InvalidStream(
            "'stream_id' must be a text of 1 to 256 letters, digits, underscores, hyphens and periods",
            param="stream_id",
        )
    return name


def cancelled_id(contents: Contents) -> str | None:
    """Return the id of the response that a message cancels; None: the running one.

    Raises:
        InvalidRequest: it is not a text.

    """
    raw = contents.fields.get("response_id")
    return None if raw is None else decoded("response_id", raw, _optional_text)


class SocketTurn:
    """One ``response.create``, from its receipt to its end; ``stream``: the name of its stream."""

    def __init__(
        self,
        contents: Contents,
        message: SocketMessage,
        socket: WebSocket,
        conversations: SocketTurns,
        begun: BegunHolds | None = None,
    ) -> None:
        """Read a message; its bytes count until ``body`` is called. ``begun``: what limits have counted for it.

        Raises:
            InvalidRequest: a field is invalid.

        """
        fields = contents.fields
        if "background" in fields and decoded("background", fields["background"], _flag):
            raise InvalidRequest(
                "'background' is not possible over a WebSocket: send a POST request", param="background"
            )
        generates = decoded("generate", fields["generate"], _flag) if "generate" in fields else None
        self.only_prepares = generates is False
        self.stream = stream_of(contents)
        self.socket = socket
        self.begun = begun
        self.is_told = False  # whether the client has got an event of this turn
        self.response_id: str | None = None
        self.headers: Mapping[str, str] = {}  # what the client is told with the first event: what was left out
        self._continues = None
        if is_set(fields.get("previous_response_id")):
            self._continues = decoded("previous_response_id", fields["previous_response_id"], _optional_text)
        self._fields = {name: raw for name, raw in fields.items() if name not in _ENVELOPE}
        self._message = message
        self._conversations = conversations
        self.heard = Heard()
        self._items = b""  # of the conversation, with the turn's own input
        self._counted: Body | None = None  # counts ``_items``; None: this turn cannot be continued on the connection

    async def body(self, context: Context) -> bytes:
        """Return the body of the request over HTTP, with the former conversation if it is kept here; to be called once.

        Raises:
            InvalidRequest: the turn continues a conversation with something other than items.
            BodyTooLarge: conversation and input together are too long.

        """
        before = self._conversations.find(self._continues)
        size = self._message.size + (0 if before is None else len(before.items))
        steps = self._body_steps(context, before)
        return finished(steps) if size <= COPIED_BYTES else await context.body_work.run(steps)

    def _body_steps(self, context: Context, before: KeptConversation | None) -> Steps[bytes]:
        """Make the body; each step copies the conversation once."""
        fields, self._fields = self._fields, {}
        new = items_of(fields.get("input"))
        if before is not None:
            if new is None:
                raise InvalidRequest("'input' must be a string, or an array of items", param="input")
            yield
            del fields["previous_response_id"]
            new = joined(before.items, new)
            yield
            fields["input"] = msgspec.Raw(b"[%b]" % new)
        if new is not None and not any(is_set(fields.get(name)) for name in ELSEWHERE):
            self._counted = self._conversations.count(len(new))
            self._items = b"" if self._counted is None else new
        fields["stream"] = _TRUE
        yield
        body = encoded(fields)
        self._message.release()
        if len(body) > most_bytes(context):
            raise too_large(context)
        return body

    def send(self, block: bytes) -> None:
        """Send the events of a block; the conversation is kept before the last event goes out.

        Raises:
            ClientGone: the connection has ended.

        """
        texts = []
        for event in events(block):
            data = as_utf8(event.data.strip())  # an empty text or [DONE] is no event of a WebSocket
            if not data or data == DONE:
                continue
            self.heard.hear(data)
            texts.append(_marked(data, self.stream))
        self.response_id = self.heard.id
        if self.heard.is_over:
            self._keep()
        if texts:
            if self.headers:
                texts[0] = _with_field(texts[0], b"headers", msgspec.json.encode(self.headers))
                self.headers = {}
            self.is_told = True
            self.socket.send(*texts)

    def leave_to_memory(self) -> None:
        """Forget the turn's conversation, as the memory of answers has it for every connection."""
        self._items = b""
        if self._counted is not None:
            self._counted.release()
            self._counted = None

    def release(self) -> None:
        """Stop counting the bytes that the turn holds."""
        self._message.release()
        if self.begun is not None:
            self.begun.end()
        if self._counted is not None:
            self._counted.release()
            self._counted = None

    def _keep(self) -> None:
        counted = self._counted
        if counted is None or self.response_id is None or self.heard.is_lost:
            return
        output = self.heard.output
        if len(self._items) + len(output) > MOST_KEPT_BYTES or not self._conversations.has_plenty(len(output)):
            return
        try:
            counted.grow(len(output))
        except ApiError:
            return
        self._conversations.keep(self.stream, KeptConversation(self.response_id, joined(self._items, output), counted))
        self._counted = None


def _marked(data: bytes, stream: str | None) -> bytes:
    """Return an event's JSON, with the name of its stream if there is one."""
    return data if stream is None else _with_field(data, b"stream_id", b'"%b"' % stream.encode())


def _with_field(data: bytes, name: bytes, value: bytes) -> bytes:
    """Return an event's JSON with a field more; what is no object stays as it is."""
    return data[:-1] + b',"%b":%b}' % (name, value) if data.endswith(b"}") else data


def preparing(turn: SocketTurn) -> ClientHandler:
    """Return the handler of a turn that only prepares the next one."""

    async def answer(request: web.Request, admitted: AdmittedRequest) -> web.StreamResponse:
        context = request.app[CONTEXT]
        turn.send(await _prepared(context, admitted.client, await turn.body(context)))
        return web.StreamResponse()  # never sent: the events are the answer

    return answer


async def _prepared(context: Context, client: Client, body: bytes) -> bytes:
    """Return the events of a turn that only prepares the next one.

    Raises:
        ApiError: the turn would be refused; no deployment is looked up.

    """
    contents = await read_contents(body, context.body_work, most_values=context.settings.limits.max_values)
    parsed = RESPONSES_ENDPOINT.read(contents, None, context.settings)
    client.check_model(parsed.model)
    context.fleet.find(parsed.model, adhoc=client.adhoc)
    if parsed.continues is not None:
        raise ResponseNotFound(
            f"the response {parsed.continues!r} is not known on this connection", param="previous_response_id"
        )
    try:
        return warmed_up(
            parsed.fields,
            response_id=f"resp_{context.services.new_id().replace('-', '')}",
            created_at=int(context.services.utc_now().timestamp()),
            model=parsed.model,
        )
    except Malformed as error:
        raise InvalidRequest(str(error)) from None


# The answer to a turn.

_ERROR, _FAILED = b'"type":"error"', b'"type":"response.failed"'  # in events; in a text, quotes are escaped
_BETA = "openai-beta"
_THIS_WAY = "responses_websockets"  # in that header: asks for a WebSocket, which providers are not asked for


class _Sink(StreamingSink):
    """Sends the events of an answer as messages of a WebSocket."""

    def __init__(self, turn: SocketTurn, *of_stream: Any) -> None:
        super().__init__(*of_stream)
        self._turn = turn

    def keep_alive(self, every_s: float) -> None:
        """Send pings instead of comments, if ``keepalive_s`` is set; the connection has pings of its own anyway."""
        if self.keepalive_s is not None:
            super().keep_alive(every_s)

    async def _comment(self) -> None:
        if not self._turn.socket.is_slow:
            self._turn.socket.ping()

    def drop(self) -> None:
        """Do nothing, as other turns share the connection."""

    def remember(self, remembering: Remembering, keep: Callable[[Maker], None]) -> None:
        """Share what the turn hears of the answer; then the connection need not keep the conversation."""
        remembering.heard = self._turn.heard
        self._turn.leave_to_memory()
        super().remember(remembering, keep)

    def _hear(self, block: bytes) -> None:
        """Do nothing, as the turn has heard the block."""

    def _numbered(self, failure: bytes, status: int) -> bytes:
        """Return an error's event with a status, which marks it as the last event, as the connection stays open.

        Without a status, Codex takes an error for a notice, and waits on for minutes (0.171, tried on 2026-11-29). If
        ``response.failed`` follows, that is the last event, and Codex reads its code.
        """
        event = super()._numbered(failure, status)
        return event if _FAILED in event else event.replace(_ERROR, b'%b,"status":%d' % (_ERROR, status), 1)

    async def _prepare(self, fields: dict[str, str]) -> None:
        self._turn.headers = headers.left_out(fields)  # there are no others
        self.response = web.StreamResponse()  # never sent: the events are the answer

    def _forward(self, events: bytes) -> bool:
        if self._turn.socket.is_slow:
            return False
        try:
            self._turn.send(events)
        except ClientGone:
            return False
        if self._keeping is not None:
            self._keeping.sent()
        self._latest = events
        if self.delivered is not None:
            self.delivered.add(events)
        return True

    async def _send(self, block: bytes) -> None:
        self._turn.send(block)
        await self._turn.socket.drain()
        if self._keeping is not None:
            self._keeping.sent()

    async def _finish(self, last: bytes) -> None:
        if self._keeping is not None:
            self._keeping.end()
        await self._send(last)


def answer_to(turn: SocketTurn) -> MakeAnswer:
    """Return the function that makes the answer to a turn."""

    def make(
        context: Context,
        request: web.Request,
        parsed: ParsedRequest,
        client_context: ClientContext,
        made_by: StoredAt | None,
    ) -> Responder:
        envelope = client_context.envelope
        if _THIS_WAY in envelope.headers.get(_BETA, ""):
            passed = {name: value for name, value in envelope.headers.items() if name != _BETA}
            envelope = msgspec.structs.replace(envelope, headers=passed)
            client_context = msgspec.structs.replace(client_context, envelope=envelope)
        answer = Responder(context, request, parsed, client_context, made_by)
        answer.streaming = partial(_Sink, turn)
        return answer

    return make
