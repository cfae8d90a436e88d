"""What providers of benchmarks have in common: kept-alive connections of HTTP/1.1, one request at a time, with timers.

A request costs a tenth of what it costs over aiohttp, as at a scripted provider: what is measured is the gateway.
"""

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any, cast

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
BACKLOG = 4096  # a crowd comes at once
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


class Requests:
    """Cuts what arrives into requests. The next one comes only after the answer, so one at a time is enough."""

    def __init__(self) -> None:
        self._received = bytearray()

    def next(self, data: bytes) -> bytes | None:
        """Add ``data``; return the request, head and body, once it is complete."""
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return None
        length = _LENGTH.search(self._received, 0, end)
        whole = end + 4 + (int(length[1]) if length else 0)
        if len(self._received) < whole:
            return None
        request = bytes(self._received[:whole])
        del self._received[:whole]
        return request


class Serving(asyncio.Protocol):
    """One connection; what it does with a request is ``answer``, and with a client that hangs up, ``lost``."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self._requests = Requests()
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's does not derive from it

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self.transport = None
        self.stop()
        self.lost()

    def data_received(self, data: bytes) -> None:
        if (request := self._requests.next(data)) is not None:
            self.answer(request)

    def answer(self, request: bytes) -> None:
        """Answer a request, head and body."""
        raise NotImplementedError

    def lost(self) -> None:
        """Hear that the connection has ended."""

    def after(self, delay_s: float, act: Callable[..., object], *arguments: Any) -> None:
        """Do this next, and nothing else that was to come."""
        self.at(self.loop.time() + delay_s, act, *arguments)

    def at(self, instant_s: float, act: Callable[..., object], *arguments: Any) -> None:
        """Do this next, at an instant of the loop's clock, and nothing else that was to come."""
        self.stop()
        self._timer = self.loop.call_at(instant_s, act, *arguments)

    def stop(self) -> None:
        """Do nothing of what was to come."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def write(self, data: bytes) -> None:
        """Send, unless nobody is there any more."""
        if self.transport is not None:
            self.transport.write(data)


def framed(data: bytes) -> bytes:
    """Return ``data`` as one chunk of HTTP/1.1: providers send each event as one."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def response(body: object, status: str = "200 OK", more: str = "") -> bytes:
    """Return a whole answer in JSON; ``more`` are further lines of its head."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{more}content-length: {len(raw)}\r\n\r\n"
    return head.encode() + raw


async def serve(port: int, connection: Callable[[], asyncio.Protocol]) -> None:
    """Serve on loopback until killed."""
    server = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", port, backlog=BACKLOG)
    await server.serve_forever()
