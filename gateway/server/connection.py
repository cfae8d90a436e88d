"""A client connection: aiohttp's own, which also reports when a request's head begins and when it is complete."""

import asyncio
import fcntl
import socket
import ssl
import struct
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Protocol, cast

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod, HttpProcessingError, LineTooLong
from aiohttp.http_parser import RawRequestMessage

from gateway.access import DIGEST
from gateway.api import Refusals, RefusedRequest
from gateway.core.errors import (
    ApiError,
    ClientDisconnected,
    HeadersTooLarge,
    InternalError,
    InvalidRequest,
    TooMuchFraming,
)
from gateway.core.tasks import forget_frames
from gateway.http import SERVER, ServerConnection, forget_itself, has_answer, message_of
from gateway.server.fast_refusal import FastRefusal
from gateway.server.framing import LARGEST_SLICE_BYTES, SLICE_BYTES, Framing, FramingPace

# Handles errors that aiohttp reports outside our handlers: invalid HTTP, incomplete bodies, bugs. aiohttp would
# log each with a traceback that quotes the client's bytes (a malformed header may contain its key), and quote them in
# a plain-text answer as well.

# Error 400 malformed_request: What arrived is not a valid HTTP/1.1 request.
# Retry: no.
# Caller: Use `https://` for a port with TLS, else `http://`.
# Operator: A proxy in front must speak HTTP/1.1 to the gateway.
MALFORMED_REQUEST = "malformed_request"
# Refusal malformed_body: The connection ended, or what was sent is not HTTP, in the middle of a body. Nobody is told.
MALFORMED_BODY = "malformed_body"
_CLIENTS_FAULTS = (HttpProcessingError, web.RequestPayloadError, web.PayloadAccessError, ConnectionError)


class AnsweringHandler(ServerConnection):
    """aiohttp's connection; it answers such requests in our format and counts them as refusals."""

    __slots__ = ("_refusals",)

    def __init__(self, server: web.Server, refusals: Refusals, **options: Any) -> None:
        super().__init__(server, **options)
        self._refusals = refusals

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - aiohttp's message, which quotes the client
    ) -> web.StreamResponse:
        """Return the answer to a request that is not HTTP, or whose handler has a bug; close the connection.

        Raises:
            ConnectionError: an answer has already begun.

        """
        refused = RefusedRequest(peer=request.remote)
        if isinstance(exc, HttpProcessingError):
            is_large = isinstance(exc, LineTooLong)
            error: ApiError = too_large(self.max_field_size) if is_large else _malformed(exc)
            self._refusals.add(error.status, error.kind, refused)
        else:
            error = InternalError("internal error; the log of the gateway has the details")
            self._refusals.add(status, error.kind, refused, defect=exc or RuntimeError("a handler timed out"))
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun already")
        fields = {"server": SERVER, "x-content-type-options": "nosniff"}
        body, status = error.body(), error.status_code
        response = web.Response(body=body, status=status, content_type="application/json", headers=fields)
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Record an error that ended a connection without an answer."""
        problem = kw.get("exc_info")
        if isinstance(problem, _CLIENTS_FAULTS):
            self._refusals.add(InvalidRequest.status, MALFORMED_BODY, RefusedRequest(peer=self._peer))
        else:
            defect = problem if isinstance(problem, BaseException) else RuntimeError(*args[:1])
            self._refusals.add(InternalError.status, "internal_error", RefusedRequest(peer=self._peer), defect=defect)

    @property
    def _peer(self) -> str | None:
        address = None if self.transport is None else self.transport.get_extra_info("peername")
        return str(address[0]) if isinstance(address, tuple) else None


def too_large(limit: int) -> HeadersTooLarge:
    """Return the error for headers that are longer than ``limit`` bytes, or a path that is longer than 8 KB."""
    return HeadersTooLarge(
        f"the headers are longer than {limit // 1024} KB (connections.headers_max_kb), or the path than 8 KB"
    )


def _malformed(error: BaseException, *, is_body: bool = False) -> InvalidRequest:
    """Return the error for a request that is not HTTP, with a description that does not quote it."""
    if isinstance(error, BadHttpMethod):
        words = "this is not an HTTP request; is it TLS, or HTTP/2, sent to a port that speaks HTTP/1.1?"
    elif isinstance(error, LineTooLong):
        words = "one of the body's trailers is too long"
    elif is_body:
        words = "the body cannot be read: its chunks or trailers are not valid HTTP/1.1"
    else:
        words = "the head of the request is malformed: its request line or one of its headers"
    malformed = InvalidRequest(words)
    malformed.code = MALFORMED_REQUEST
    return malformed


# The limit on bytes pipelined behind a request that is still being answered. No client needs more, as answers come one
# after the other, and parsed heads take many times their bytes.
AHEAD_BYTES = 64 * 1024
_TCP_INFO, _ESTABLISHED = getattr(socket, "TCP_INFO", None), 1  # the state of a connection, on Linux
UNREAD_BYTES = 32 * 1024  # unsent, besides the last write: beyond this, writing an answer waits for the client
TLS_CLOSE_S = 5.0  # for a peer to answer the end of TLS
_receive = AnsweringHandler.data_received  # called directly: `super()` is slower, and this is called for every read
_INT = struct.Struct("i")
_NO_LINGER = struct.pack("ii", 1, 0)


class ConnectionEvents(Protocol):
    """Receives the events of connections."""

    pace: FramingPace

    def head_grows(self, connection: "Connection", number: int) -> None:
        """``number`` more bytes of an incomplete request head were received."""

    def head_came(self, connection: "Connection") -> None:
        """A complete request head was received on a connection that is ``watched``."""

    def admitted(self, connection: "Connection") -> None:
        """The first request of a connection was admitted."""

    def sent_ahead(self, connection: "Connection") -> None:
        """More than ``AHEAD_BYTES`` were received behind a request that is still being answered."""

    def ended(self, connection: "Connection") -> None:
        """The connection has ended; called once."""


class Connection(AnsweringHandler):
    """An accepted connection, from before its TLS handshake.

    ``awaits_head``: the head of a request is awaited, with a time limit; ``head_bytes`` of it have arrived.
    ``is_stranger``: no request on it has been admitted yet. ``watched``: the watch gets heads. ``cut_as``: the error
    of its call if it was cut during one.
    """

    __slots__ = (
        "_ahead_bytes",
        "_ahead_of",
        "_dropped",
        "_ended",
        "_fast_refusal",
        "_framing",
        "_intake",
        "_is_deaf",
        "_is_held",
        "_next_slice",
        "_opening",
        "_unread",
        "_watch",
        "_wire",
        "awaits_head",
        "cut_as",
        "head_bytes",
        "is_stranger",
        "watched",
    )

    def __init__(
        self, watch: ConnectionEvents, server: web.Server, refusals: Refusals, fast_refusal: FastRefusal, **options: Any
    ) -> None:
        super().__init__(server, refusals, **options)
        self._fast_refusal, self._intake = fast_refusal, fast_refusal.intake
        self._is_held = False  # whether a request waits in this connection for the rest of its body
        self._framing: Framing | None = None  # of the chunked body that is being parsed
        self._unread = memoryview(b"")  # received, and not parsed yet
        self._next_slice: asyncio.Handle | None = None  # parses on
        self._is_deaf = False  # whether all further bytes are dropped
        self._dropped: Callable[[int], object] | None = None  # counts dropped bytes
        self._ahead_bytes = self._ahead_of = 0  # bytes pipelined behind the request with this ``id``
        self.awaits_head = self.is_stranger = self.watched = True
        self.head_bytes = 0
        self.cut_as: type[ClientDisconnected] | None = None
        self._wire: asyncio.Transport | None = None  # also while it is being closed
        self._watch = watch
        self._opening: asyncio.Task[None] | None = None
        self._ended = False

    @property
    def is_idle(self) -> bool:
        """Whether no request is running, no answer is being sent, and no body is being read."""
        return self._opening is not None or (self.waiter is not None and not self.waiter.done())

    @property
    def is_spare(self) -> bool:
        """Whether the connection can be closed without loss: idle, and its client has the whole answer."""
        socket = self.socket_reader
        return (self.is_idle if socket is None else socket.is_idle) and self.read_progress is None

    @property
    def quiet_since(self) -> float:
        """The time of its opening or its last answer, in seconds of the loop's clock."""
        return self.idle_until - self.keepalive_timeout

    def is_unused(self, since_s: float) -> bool:
        """Whether the connection is idle since then: open, and no byte of another request has arrived, read or not."""
        return (
            self._wire is not None
            and self._opening is None
            and self.quiet_since <= since_s
            and self.is_spare
            and not _in_the_kernel(self._wire, termios.FIONREAD)
        )

    @property
    def heads(self) -> Iterator[RawRequestMessage]:
        """The requests that were received and not handled yet, without invalid ones."""
        return (message for message, _ in self.messages if isinstance(message, RawRequestMessage))

    @property
    def read_progress(self) -> int | None:
        """A number that changes when the client reads data; None if no data is waiting to be read."""
        if self._wire is None or not (size := self._wire.get_write_buffer_size()):
            return None
        size += _in_the_kernel(self._wire)  # megabytes, for which a slow client may take a minute
        request = self.current_request  # None: its answer is complete, and nothing more is written
        return -size if request is None else request.writer.output_size - size

    @property
    def has_left(self) -> bool:
        """Whether the client has left unnoticed: after much pipelining, nothing is read from the connection."""
        paused = self.reading_paused or self.buffer_paused
        if not paused or self.current_request is None or self._wire is None or _TCP_INFO is None:
            return False
        with suppress(OSError):
            info: bytes = self._wire.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)
            return info[0] != _ESTABLISHED
        return False

    def open(self, sock: socket.socket, ssl_context: ssl.SSLContext | None, handshake_s: float) -> asyncio.Task[None]:
        """Start to serve ``sock``; the returned task ends when the connection is open or has failed."""
        self._opening = self.loop.create_task(self._open(sock, ssl_context, handshake_s))
        self._opening.add_done_callback(lambda _: self._opened(sock))  # also if the task is cancelled before it begins
        return self._opening

    def admitted(self) -> None:
        """Record that a request was admitted."""
        if self.is_stranger:
            self._watch.admitted(self)

    def cut(self) -> None:
        """Close at once, even during a request."""
        self._hear_no_more()
        if self._opening is not None:
            self._opening.cancel()
        elif self.transport is not None:
            self.transport.abort()

    @property
    def digest(self) -> bytes | None:
        """The digest of the key with which the running request was admitted; None if none runs, or without a key."""
        request = self.current_request
        return None if request is None else request.get(DIGEST)

    def reset(self, reason: type[ClientDisconnected]) -> None:
        """Reset the connection, which cancels the running request: the client does not read, or its key ended."""
        self.cut_as = reason
        self._hear_no_more()
        if self._wire is not None:
            sock = self._wire.get_extra_info("socket")
            with suppress(OSError):  # a reset, so that the kernel drops the unsent megabytes
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self._wire.abort()

    def refuse(self, error: ApiError) -> None:
        """Send an error and close, even before a request is complete."""
        self._hear_no_more()
        if self.transport is None:
            self.cut()
            return
        self._refusals.add(error.status_code, error.kind, RefusedRequest(peer=self._peer))
        body = error.body()
        head = (
            f"HTTP/1.1 {error.status_code} {HTTPStatus(error.status_code).phrase}\r\nserver: {SERVER}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
            "x-content-type-options: nosniff\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start; called by the event loop."""
        self._opening = None
        self._wire = cast("asyncio.Transport", transport)  # uvloop's does not derive from it
        self._wire.set_write_buffer_limits(high=UNREAD_BYTES)
        super().connection_made(transport)
        if self.serving is not None:
            self.serving.add_done_callback(forget_frames)

    def connection_lost(self, exc: BaseException | None) -> None:
        """End; called by the event loop."""
        self._hear_no_more()
        self._framing = self._dropped = None
        super().connection_lost(exc)
        if self._wire is not None:
            forget_itself(self._wire)
        self._wire = None
        self._end()

    def drop_rest(self, dropped: Callable[[int], object]) -> None:
        """Parse nothing more: whatever comes is dropped, and the number of its bytes passed to ``dropped``.

        The client is told that no more answers come, so that it may close.
        """
        self._hear_no_more()
        self._dropped = dropped
        if self.transport is not None:
            with suppress(OSError, RuntimeError):
                if self.transport.can_write_eof():
                    self.transport.write_eof()
        super().resume_wire()

    def data_received(self, data: bytes) -> None:
        """Read data; called by the event loop, and with nothing by aiohttp, to parse on."""
        if self._is_deaf:
            if self._dropped is not None:
                self._dropped(len(data))
        elif not data or (self._framing is None and len(data) <= 2 * SLICE_BYTES and not self._unread):
            self._read(data)
        elif self.socket_reader is not None and not self._unread:  # a WebSocket has bounds of its own
            _receive(self, data)
        else:
            self._unread = memoryview(bytes(self._unread) + data if self._unread else data)
            self._read_slices()

    def _read_slices(self) -> None:
        """Parse what is unread, in slices, until a pause is due."""
        self._cancel_next_slice()
        delay_s = 0.0
        while self._unread and not (self.reading_paused or self.buffer_paused or self.transport is None):
            framing = self._framing
            if framing is not None and (delay_s := self._watch.pace.delay_s()):
                break
            number = self._slice_bytes() if framing is None else framing.slice_bytes
            piece, self._unread = bytes(self._unread[:number]), self._unread[number:]
            self._read(piece)
            if framing is not None and framing is self._framing:  # else the next request has begun in this piece
                self._count_framing(framing, len(piece))
                if framing.payload.is_eof():
                    self._framing = None
        self._cancel_next_slice()
        if self._unread:
            self.pause_wire()
            if delay_s:
                self._next_slice = self.loop.call_later(delay_s, self._read_slices)
        elif not (self.reading_paused or self.buffer_paused):
            super().resume_wire()

    def _count_framing(self, framing: Framing, number: int) -> None:
        """Count the framing in bytes of a chunked body that were passed to the parser; refuse the request if too many.

        Its handler gets the error instead of the body, or else has refused the request already.
        """
        framing.unseen += number
        if self.reading_paused:  # the parser may have kept a part of them
            return
        try:
            self._watch.pace.add(framing.count())
        except TooMuchFraming as error:
            self._hear_no_more()
            framing.payload.set_exception(error.with_traceback(None))

    def _slice_bytes(self) -> int:
        """Return how many of the unread bytes may be parsed in one go: none of a chunked body."""
        message, payload = self.messages[-1] if self.messages else (None, None)
        if message is None and (running := self.current_request) is not None:
            message, payload = message_of(running), running.content
        if isinstance(message, RawRequestMessage) and payload is not None and not payload.is_eof():
            length = message.headers.get("content-length", "")
            return int(length) - payload.total_bytes if length.isdecimal() else LARGEST_SLICE_BYTES
        unread = bytes(self._unread)
        chunked = unread.lower().find(b"chunked")
        end = -1 if chunked < 0 else unread.find(b"\r\n\r\n", chunked)
        return len(unread) if end < 0 else end + 4

    def resume_wire(self) -> None:
        """Receive more, once all was parsed. aiohttp calls this, also while it parses."""
        if not self._unread:
            super().resume_wire()
        elif self._next_slice is None:
            self._next_slice = self.loop.call_soon(self._read_slices)

    def _hear_no_more(self) -> None:
        """Drop unread bytes, and all later ones."""
        self._is_deaf = True
        self._unread = memoryview(b"")
        self._cancel_next_slice()

    def _cancel_next_slice(self) -> None:
        if self._next_slice is not None:
            self._next_slice.cancel()
            self._next_slice = None

    def _read(self, data: bytes) -> None:
        """Parse data, and report heads; refuse a call for which there is no room."""
        waiter, intake = self.waiter, self._intake
        if (intake.in_flight >= intake.limit.open or self._is_held) and waiter is not None and not waiter.done():
            self._read_without_room(data, waiter)
            return
        running = self.current_request
        is_ahead = running is not None and running.content.is_eof() and not has_answer(running)
        _receive(self, data)
        if self.messages:
            self._note_message()
        if is_ahead or len(self.messages) > 1:
            self._count_ahead(len(data))
        waiter = self.waiter
        if waiter is not None and not waiter.done():  # no request was running, so not all bytes are part of a head
            self._watch.head_grows(self, len(data))
        elif self.watched and self.messages:
            self._watch.head_came(self)

    def _count_ahead(self, number: int) -> None:
        """Count bytes behind a request with a complete body, or that came in one read with the request."""
        if self.socket_reader is not None:
            return  # they are a WebSocket's
        running = id(self.current_request)
        self._ahead_bytes = number + (self._ahead_bytes if running == self._ahead_of else 0)
        self._ahead_of = running
        if self._ahead_bytes > AHEAD_BYTES:
            self._watch.sent_ahead(self)

    def _read_without_room(self, data: bytes, waiter: "asyncio.Future[None]") -> None:
        """Read data while there is no room for calls; ``waiter`` wakes aiohttp's task, which waits for a request."""
        self.parse_unseen(data, waiter)
        if self.messages:
            self._note_message()
        if len(self.messages) > 1:
            self._count_ahead(len(data))
        message, payload = self.messages[0] if self.messages else (None, None)
        self._is_held = (
            isinstance(message, RawRequestMessage)
            and payload is not None
            and not payload.is_eof()
            and self._fast_refusal.awaits_body(message)
        )
        if message is None or self._is_held:
            if data:
                self._watch.head_grows(self, len(data))
            return
        if self.watched:
            self._watch.head_came(self)
        if not self._is_refused():
            waiter.set_result(None)

    def _note_message(self) -> None:
        """Count the framing of the newest request from now on, if its body is chunked; or stop at an error."""
        message, payload = self.messages[-1]
        if not isinstance(message, RawRequestMessage):
            self._hear_no_more()
            message.exc.__traceback__ = None  # its frames have the error, and what was received
            if self._framing is not None and not self._framing.payload.is_eof():
                self.messages.pop()
                self._framing.payload.set_exception(_malformed(message.exc, is_body=True))
            else:
                self.restore_requests()
        elif message.chunked and not payload.is_eof():
            self._framing = Framing(payload)
        else:
            self._framing = None

    def _is_refused(self) -> bool:
        """Refuse the request if there is no room, but for special cases; return whether it was refused."""
        message, payload = self.messages[0]
        if (
            not isinstance(message, RawRequestMessage)
            or len(self.messages) > 1
            or not payload.is_eof()
            or self.transport is None
            or self.writing_paused
            or (client := self._fast_refusal.client_of(message, self._peer)) is None
        ):
            return False
        self.admitted()
        self.take_first()
        payload.read_nowait()  # so that reading goes on, if it was paused
        self.transport.write(self._fast_refusal.refusal(message, client, self._peer))
        return True

    async def _open(self, sock: socket.socket, ssl_context: ssl.SSLContext | None, handshake_s: float) -> None:
        tls: dict[str, Any] = {}
        if ssl_context is not None:
            tls = {"ssl": ssl_context, "ssl_handshake_timeout": handshake_s, "ssl_shutdown_timeout": TLS_CLOSE_S}
        with suppress(OSError):  # it has gone already, or does not speak TLS
            await self.loop.connect_accepted_socket(lambda: self, sock, **tls)

    def _opened(self, sock: socket.socket) -> None:
        if self.transport is None:
            sock.close()
            self._end()

    def _end(self) -> None:
        self._opening = None
        if not self._ended:
            self._ended = True
            self._watch.ended(self)


def _in_the_kernel(wire: asyncio.Transport, which: int = termios.TIOCOUTQ) -> int:
    """Return the number of bytes that were sent and not yet acknowledged; with FIONREAD, that were not yet read."""
    number = bytearray(_INT.size)
    with suppress(OSError):  # macOS supports it for terminals only: there a very slow reader seems to read nothing
        fcntl.ioctl(wire.get_extra_info("socket").fileno(), which, number)
    return int(_INT.unpack(number)[0])
