"""A client's connection to a server: bare HTTP/1.1, one call after the other, timed to the first token."""

import asyncio
import re
import time
from collections.abc import Callable
from typing import cast

import msgspec

TOKEN_MARK = b'"delta":{"content":'  # once per token; the role-only chunk has other fields before it

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_LAST_CHUNK = b"\r\n0\r\n\r\n"


def is_whole(received: bytes | bytearray) -> bool:
    """Tell whether a response has all that its head promises."""
    head_end = received.find(b"\r\n\r\n")
    if head_end < 0:
        return False
    length = _LENGTH.search(received, 0, head_end)
    return received.endswith(_LAST_CHUNK) if length is None else len(received) >= head_end + 4 + int(length[1])


class NothingReceived(Exception):
    """The connection could not be made, or was closed before the first byte."""


class Refused(NothingReceived):
    """Nobody listens there."""


class Connection(asyncio.Protocol):
    """One connection to one server, one call after the other."""

    def __init__(self, dropped: Callable[["Connection"], None]) -> None:
        self._dropped = dropped
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._ended: asyncio.Future[None] | None = None
        self.first_token_at: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class is none of asyncio's

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self._transport = None
        self._dropped(self)
        self._end()

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        if self.first_token_at is None and TOKEN_MARK in received:
            self.first_token_at = time.perf_counter()
        if is_whole(received):
            self._end()

    async def exchange(self, request: bytes) -> bytes:
        """Send a request and return all that came: the whole response, or what there was before it broke off.

        Raises:
            NothingReceived: there was nothing.

        """
        self._received.clear()
        self.first_token_at = None
        if self._transport is None:
            raise NothingReceived
        self._ended = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        await self._ended
        if not self._received:
            raise NothingReceived
        return bytes(self._received)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _end(self) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)


class Received(msgspec.Struct, frozen=True):
    """An answer, perhaps a part of one; instants are of ``time.perf_counter``."""

    data: bytes
    sent_at: float
    first_token_at: float | None


class Connections:
    """Kept connections to any number of servers."""

    def __init__(self) -> None:
        self._idle: dict[int, list[Connection]] = {}

    async def ask(self, port: int, request: bytes, limit_s: float) -> Received:
        """Send a request over a free connection, or a new one, which is kept if the answer is whole.

        Raises:
            Refused: nobody listens.
            NothingReceived: there was no answer within ``limit_s``.

        """
        idle = self._idle.setdefault(port, [])
        connection = idle.pop() if idle else await self._connected(port, idle)
        sent_at = time.perf_counter()
        is_kept = False
        try:
            async with asyncio.timeout(limit_s):
                data = await connection.exchange(request)
            is_kept = is_whole(data)
            return Received(data, sent_at, connection.first_token_at)
        except TimeoutError as error:
            raise NothingReceived from error
        finally:
            if is_kept:
                idle.append(connection)
            else:
                connection.abort()

    async def _connected(self, port: int, idle: list[Connection]) -> Connection:
        def dropped(connection: Connection) -> None:
            if connection in idle:
                idle.remove(connection)

        try:
            loop = asyncio.get_running_loop()
            return (await loop.create_connection(lambda: Connection(dropped), "127.0.0.1", port))[1]
        except OSError as error:
            raise Refused from error

    def close(self) -> None:
        """Close every one that is free."""
        for connection in [each for idle in self._idle.values() for each in idle]:
            connection.abort()
