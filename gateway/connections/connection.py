"""A connection from a client: aiohttp's own, which also says when a request's head is begun, and when it is whole."""

import asyncio
import fcntl
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
from gateway.errors import ApiError
from gateway.ingress.headers import SERVER
from gateway.ingress.refusals import Refusals, Refused

UNTAKEN_BYTES = 32 * 1024  # of an answer, beside the last write, before its writer waits for the client
TLS_CLOSE_S = 5.0  # for a peer to answer the end of TLS
_receive = AnsweringHandler.data_received  # called as such: `super()` takes longer, and every read comes by
_INT = struct.Struct("i")
_NO_LINGER = struct.pack("ii", 1, 0)


class Watch(Protocol):
    """Who hears of what happens on connections."""

    def head_grows(self, connection: "Connection", number: int) -> None:
        """Hear that a connection has sent so many bytes that are not yet the whole head of a request."""

    def head_came(self, connection: "Connection") -> None:
        """Hear of the whole head of a request on a connection that is ``watched``."""

    def admitted(self, connection: "Connection") -> None:
        """Hear of the first request that was admitted."""

    def ended(self, connection: "Connection") -> None:
        """Hear that it is no more; once."""


class Connection(AnsweringHandler):
    """An accepted connection, from before its TLS handshake on.

    ``owes_head``: it must send the whole head of a request in time; ``head_bytes`` of it have come. ``is_stranger``: no
    request on it has been admitted yet. ``watched``: the heads of its requests are told of. ``stalled``: it was cut
    because its client took nothing of an answer.
    """

    __slots__ = (
        "_ended",
        "_opening",
        "_watch",
        "_wire",
        "head_bytes",
        "is_stranger",
        "owes_head",
        "stalled",
        "watched",
    )

    def __init__(self, watch: Watch, server: web.Server, refusals: Refusals, **options: Any) -> None:
        super().__init__(server, refusals, **options)
        self.owes_head = self.is_stranger = self.watched = True
        self.head_bytes = 0
        self.stalled = False
        self._wire: asyncio.Transport | None = None  # also while it is being closed
        self._watch = watch
        self._opening: asyncio.Task[None] | None = None
        self._ended = False

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way, nor its answer, nor what is left of its body."""
        return self._opening is not None or (self._waiter is not None and not self._waiter.done())

    @property
    def heads(self) -> Iterator[RawRequestMessage]:
        """The requests that came and are not handled yet; what was no HTTP is left out."""
        return (message for message, _ in self._messages if isinstance(message, RawRequestMessage))

    @property
    def taken(self) -> int | None:
        """A number that changes whenever the client takes something, None while nothing waits to be taken."""
        if self._wire is None or not (size := self._wire.get_write_buffer_size()):
            return None
        size += _in_the_kernel(self._wire)  # megabytes, which a slow client may take a minute for
        request = self._current_request  # None: its answer is complete, and nothing more is written
        return -size if request is None else request.writer.output_size - size

    def open(self, sock: socket.socket, ssl_context: ssl.SSLContext | None, handshake_s: float) -> asyncio.Task[None]:
        """Begin to serve ``sock``; the task ends when that is so, or has failed."""
        self._opening = self._loop.create_task(self._open(sock, ssl_context, handshake_s))
        self._opening.add_done_callback(lambda _: self._opened(sock))  # though it be cancelled before it begins
        return self._opening

    def admitted(self) -> None:
        """Note that a request was admitted."""
        if self.is_stranger:
            self._watch.admitted(self)

    def cut(self) -> None:
        """Hang up, whatever is under way."""
        if self._opening is not None:
            self._opening.cancel()
        elif self.transport is not None:
            self.transport.abort()

    def give_up(self) -> None:
        """Hang up on a client that does not take its answer."""
        self.stalled = True
        if self._wire is not None:
            sock = self._wire.get_extra_info("socket")
            with suppress(OSError):  # a reset, so that the kernel does not keep megabytes for it any longer
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self._wire.abort()

    def refuse(self, error: ApiError) -> None:
        """Hang up with an answer, though it be to the beginning of a request."""
        if self.transport is None:
            self.cut()
            return
        self._refusals.refuse(error.status_code, error.kind, Refused(peer=self._peer))
        body = error.body()
        head = (
            f"HTTP/1.1 {error.status_code} {HTTPStatus(error.status_code).phrase}\r\nserver: {SERVER}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._opening = None
        self._wire = cast("asyncio.Transport", transport)  # uvloop's does not derive from it
        self._wire.set_write_buffer_limits(high=UNTAKEN_BYTES)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """End."""
        self._wire = None
        super().connection_lost(exc)
        self._end()

    def data_received(self, data: bytes) -> None:
        """Read, and tell of heads."""
        _receive(self, data)
        waiter = self._waiter
        if waiter is not None and not waiter.done():  # no request is under way, so these were not all bytes of a head
            self._watch.head_grows(self, len(data))
        elif self.watched and self._messages:
            self._watch.head_came(self)

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
    """Return how many bytes were sent and not yet acknowledged by the other side."""
    number = bytearray(_INT.size)
    with suppress(OSError):
        fcntl.ioctl(wire.get_extra_info("socket").fileno(), termios.TIOCOUTQ, number)
    return int(_INT.unpack(number)[0])
