"""A client connection: aiohttp's own, which also reports when a request's head begins and when it is complete."""

import asyncio
import fcntl
import gc
import socket
import ssl
import struct
import termios
from collections.abc import Iterator
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Protocol, cast

from aiohttp import web
from aiohttp.http_parser import RawRequestMessage

from gateway.connections.answering import AnsweringHandler
from gateway.connections.door import Door
from gateway.errors import ApiError, ClientDisconnected
from gateway.ingress.admission import DIGEST
from gateway.ingress.headers import SERVER
from gateway.ingress.refusals import Refusals, Refused

UNTAKEN_BYTES = 32 * 1024  # unsent, besides the last write: with more, the writer of an answer waits for its client
TLS_CLOSE_S = 5.0  # for a peer to answer the end of TLS
_receive = AnsweringHandler.data_received  # called directly: `super()` is slower, and this is called for every read
_INT = struct.Struct("i")
_NO_LINGER = struct.pack("ii", 1, 0)


class Watch(Protocol):
    """Receives the events of connections."""

    def head_grows(self, connection: "Connection", number: int) -> None:
        """``number`` more bytes of an incomplete request head were received."""

    def head_came(self, connection: "Connection") -> None:
        """A complete request head was received on a connection that is ``watched``."""

    def admitted(self, connection: "Connection") -> None:
        """The first request of a connection was admitted."""

    def ended(self, connection: "Connection") -> None:
        """The connection has ended; called once."""


class Connection(AnsweringHandler):
    """An accepted connection, from before its TLS handshake.

    ``owes_head``: the complete head of a request must arrive in time; ``head_bytes`` of it have arrived.
    ``is_stranger``: no request on it has been admitted yet. ``watched``: heads are reported. ``cut_as``: the error of
    its call if it was cut during one.
    """

    __slots__ = (
        "_door",
        "_ended",
        "_intake",
        "_is_held",
        "_opening",
        "_watch",
        "_wire",
        "cut_as",
        "head_bytes",
        "is_stranger",
        "owes_head",
        "watched",
    )

    def __init__(self, watch: Watch, server: web.Server, refusals: Refusals, door: Door, **options: Any) -> None:
        super().__init__(server, refusals, **options)
        self._door, self._intake = door, door.intake
        self._is_held = False  # a request that lacks the rest of its body
        self.owes_head = self.is_stranger = self.watched = True
        self.head_bytes = 0
        self.cut_as: type[ClientDisconnected] | None = None
        self._wire: asyncio.Transport | None = None  # also while it is being closed
        self._watch = watch
        self._opening: asyncio.Task[None] | None = None
        self._ended = False

    @property
    def is_idle(self) -> bool:
        """Whether no request is running, no answer is being sent, and no body is being read."""
        return self._opening is not None or (self._waiter is not None and not self._waiter.done())

    @property
    def heads(self) -> Iterator[RawRequestMessage]:
        """The requests that were received and not handled yet; those that were not HTTP are left out."""
        return (message for message, _ in self._messages if isinstance(message, RawRequestMessage))

    @property
    def taken(self) -> int | None:
        """A number that changes whenever the client reads something; None if nothing is waiting to be read."""
        if self._wire is None or not (size := self._wire.get_write_buffer_size()):
            return None
        size += _in_the_kernel(self._wire)  # megabytes, for which a slow client may take a minute
        request = self._current_request  # None: its answer is complete, and nothing more is written
        return -size if request is None else request.writer.output_size - size

    def open(self, sock: socket.socket, ssl_context: ssl.SSLContext | None, handshake_s: float) -> asyncio.Task[None]:
        """Start to serve ``sock``; the returned task ends when the connection is open or has failed."""
        self._opening = self._loop.create_task(self._open(sock, ssl_context, handshake_s))
        self._opening.add_done_callback(lambda _: self._opened(sock))  # also if it is cancelled before it begins
        return self._opening

    def admitted(self) -> None:
        """Record that a request was admitted."""
        if self.is_stranger:
            self._watch.admitted(self)

    def cut(self) -> None:
        """Close at once, whatever is running."""
        if self._opening is not None:
            self._opening.cancel()
        elif self.transport is not None:
            self.transport.abort()

    @property
    def digest(self) -> bytes | None:
        """The digest of the key with which the running request was admitted; None if none runs, or without a key."""
        request = self._current_request
        return None if request is None else request.get(DIGEST)

    def give_up(self, reason: type[ClientDisconnected]) -> None:
        """Reset the connection, and with it cancel the running request: its client does not read, or its key ended."""
        self.cut_as = reason
        if self._wire is not None:
            sock = self._wire.get_extra_info("socket")
            with suppress(OSError):  # a reset, so that the kernel drops the unsent megabytes
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self._wire.abort()

    def refuse(self, error: ApiError) -> None:
        """Send an error and close, even before a request is complete."""
        if self.transport is None:
            self.cut()
            return
        self._refusals.add(error.status_code, error.kind, Refused(peer=self._peer))
        body = error.body()
        head = (
            f"HTTP/1.1 {error.status_code} {HTTPStatus(error.status_code).phrase}\r\nserver: {SERVER}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start: aiohttp calls it."""
        self._opening = None
        self._wire = cast("asyncio.Transport", transport)  # uvloop's does not derive from it
        self._wire.set_write_buffer_limits(high=UNTAKEN_BYTES)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """End: aiohttp calls it."""
        self._wire = None
        super().connection_lost(exc)
        self._end()

    def data_received(self, data: bytes) -> None:
        """Read data, and report heads; refuse a call for which there is no room."""
        waiter, intake = self._waiter, self._intake
        if (intake.in_flight >= intake.limit.each or self._is_held) and waiter is not None and not waiter.done():
            self._read_at_door(data, waiter)
            return
        _receive(self, data)
        if self._messages and not isinstance(self._messages[-1][0], RawRequestMessage):
            self._restore_requests()
        waiter = self._waiter
        if waiter is not None and not waiter.done():  # no request was running, so not all bytes are part of a head
            self._watch.head_grows(self, len(data))
        elif self.watched and self._messages:
            self._watch.head_came(self)

    def _read_at_door(self, data: bytes, waiter: "asyncio.Future[None]") -> None:
        """Read data while there is no room for calls; ``waiter`` wakes up aiohttp's task, which waits for a request."""
        self._waiter = None  # so that aiohttp does not wake it up
        _receive(self, data)
        if self._messages and not isinstance(self._messages[-1][0], RawRequestMessage):
            self._restore_requests()
        self._waiter = waiter
        message, payload = self._messages[0] if self._messages else (None, None)
        self._is_held = (
            isinstance(message, RawRequestMessage)
            and payload is not None
            and not payload.is_eof()
            and self._door.awaits_body(message)
        )
        if message is None or self._is_held:
            if data:
                self._watch.head_grows(self, len(data))
            return
        if self.watched:
            self._watch.head_came(self)
        if not self._is_refused():
            waiter.set_result(None)

    def _restore_requests(self) -> None:
        """Put the complete requests that came in one read with something malformed before its error.

        aiohttp's parser keeps them to itself when it raises, and gives no other access to them.
        """
        error = self._messages.pop()
        for held in gc.get_referents(self._parser):
            if (
                isinstance(held, list)
                and held
                and isinstance(held[0], tuple)
                and isinstance(held[0][0], RawRequestMessage)
            ):
                self._messages.extend(each for each in held if each[1].is_eof())
                held.clear()
        self._messages.append(error)

    def _is_refused(self) -> bool:
        """Refuse the request if it is a plain one and there is no room for it; return whether it was refused."""
        message, payload = self._messages[0]
        if (
            not isinstance(message, RawRequestMessage)
            or len(self._messages) > 1
            or not payload.is_eof()
            or self.transport is None
            or self.writing_paused
            or (client := self._door.client_of(message, self._peer)) is None
        ):
            return False
        self.admitted()
        self._messages.clear()
        if self._parser is not None:
            self._parser.message_consumed()
        payload.read_nowait()  # so that reading goes on, if it was paused
        self._next_keepalive_close_time = self._loop.time() + self.keepalive_timeout
        self.transport.write(self._door.refusal(message, client, self._peer))
        return True

    async def _open(self, sock: socket.socket, ssl_context: ssl.SSLContext | None, handshake_s: float) -> None:
        tls: dict[str, Any] = {}
        if ssl_context is not None:
            tls = {"ssl": ssl_context, "ssl_handshake_timeout": handshake_s, "ssl_shutdown_timeout": TLS_CLOSE_S}
        with suppress(OSError):  # it has gone already, or does not speak TLS
            await self._loop.connect_accepted_socket(lambda: self, sock, **tls)

    def _opened(self, sock: socket.socket) -> None:
        if self.transport is None:
            sock.close()
            self._end()

    def _end(self) -> None:
        self._opening = None
        if not self._ended:
            self._ended = True
            self._watch.ended(self)


def _in_the_kernel(wire: asyncio.Transport) -> int:
    """Return the number of bytes that were sent and not yet acknowledged."""
    number = bytearray(_INT.size)
    with suppress(OSError):
        fcntl.ioctl(wire.get_extra_info("socket").fileno(), termios.TIOCOUTQ, number)
    return int(_INT.unpack(number)[0])
