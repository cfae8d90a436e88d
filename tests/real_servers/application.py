"""The application behind every server: it answers as each request's target says, and counts what becomes of each call.

``/call?id=7&wait=20&pieces=3&size=100&gap=5``: the head after 20 ms (never, for -1), then three pieces (without end,
for -1) of 100 bytes, 5 ms apart. What a call's pieces are follows from its id, so nothing has to be remembered.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import NamedTuple, cast
from urllib.parse import parse_qsl
from zlib import crc32

from httptools import HttpRequestParser

NEVER = -1


class Script(NamedTuple):
    """How one call is to be answered."""

    id: int
    wait_ms: int = 0
    pieces: int = 1
    size_bytes: int = 100
    gap_ms: int = 0

    @property
    def target(self) -> str:
        return f"/call?id={self.id}&wait={self.wait_ms}&pieces={self.pieces}&size={self.size_bytes}&gap={self.gap_ms}"

    @property
    def body(self) -> bytes:
        return b"".join(self.piece(number) for number in range(self.pieces))

    def piece(self, number: int) -> bytes:
        words = b"%d/%d;" % (self.id, number)
        return (words * (self.size_bytes // len(words) + 1))[: self.size_bytes]


def seal(size_bytes: int, crc: int) -> str:
    """Return what the answer says of the request's body."""
    return f"{size_bytes}-{crc:08x}"


class Application:
    """Counts by call: how often each was begun, answered to its end, and cut before it."""

    def __init__(self) -> None:
        self.begun: Counter[int] = Counter()
        self.answered: Counter[int] = Counter()
        self.cut: Counter[int] = Counter()
        self.port = 0
        self.refused: set[int] = set()  # calls that are broken off as soon as they begin
        self._connections: set[_Connection] = set()
        self._changes: set[asyncio.Future[None]] = set()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Application"]:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", 0, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.drop(None)
            await self.until(lambda: not self._connections)

    def open(self, ids: Iterable[int]) -> list[int]:
        """Return those of ``ids`` that still run."""
        return [each for each in ids if self.begun[each] > self.answered[each] + self.cut[each]]

    def drop(self, ids: Iterable[int] | None) -> None:
        """Break the connections of these calls, of all for None, as a server would never do by itself."""
        wanted = None if ids is None else set(ids)
        for connection in list(self._connections):
            if wanted is None or (connection.script is not None and connection.script.id in wanted):
                connection.drop()

    def refuse(self, call_id: int) -> None:
        """Break off a call that runs, or that a server which knows no better still brings."""
        self.refused.add(call_id)
        self.drop([call_id])

    async def until(self, condition: Callable[[], bool], timeout_s: float = 10.0) -> bool:
        """Wait until ``condition`` holds; return whether it does in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while not condition():
            change: asyncio.Future[None] = loop.create_future()
            self._changes.add(change)
            await asyncio.wait([change], timeout=min(0.05, deadline - loop.time()))  # not all that changes is ours
            self._changes.discard(change)
            if loop.time() >= deadline:
                return condition()
        return True

    def made(self, connection: "_Connection") -> None:
        self._connections.add(connection)

    def lost(self, connection: "_Connection") -> None:
        self._connections.discard(connection)
        self._changed()

    def count(self, counter: Counter[int], call_id: int) -> None:
        counter[call_id] += 1
        self._changed()

    def _changed(self) -> None:
        for change in self._changes:
            if not change.done():
                change.set_result(None)


class _Connection(asyncio.Protocol):
    def __init__(self, application: Application) -> None:
        self.script: Script | None = None  # of the call under way
        self._application = application
        self._transport: asyncio.Transport | None = None
        self._parser = HttpRequestParser(self)
        self._answering: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._target = b""
        self._size = self._crc = 0
        self._keep = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._application.made(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._writable.set()
        if self._answering is not None:
            self._answering.cancel()
        if self.script is not None:
            self._application.count(self._application.cut, self.script.id)
        self._application.lost(self)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def drop(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_headers_complete(self) -> None:
        self._keep = self._parser.should_keep_alive()
        said = dict(parse_qsl(self._target.decode().partition("?")[2]))
        self.script = Script(*(int(said[name]) for name in ("id", "wait", "pieces", "size", "gap")))
        self._target = b""
        self._size = self._crc = 0
        self._application.count(self._application.begun, self.script.id)
        if self.script.id in self._application.refused:
            self.drop()

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        self._crc = crc32(body, self._crc)

    def on_message_complete(self) -> None:
        assert self.script is not None
        self._answering = asyncio.create_task(self._answer(self.script))

    async def _answer(self, script: Script) -> None:
        if script.wait_ms == NEVER:
            return
        await asyncio.sleep(script.wait_ms / 1000)
        received = seal(self._size, self._crc)
        self._say(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
            b"transfer-encoding: chunked\r\nconnection: %b\r\nx-received: %b\r\n\r\n"
            % (b"keep-alive" if self._keep else b"close", received.encode())
        )
        number = 0
        while number != script.pieces:
            piece = script.piece(number)
            self._say(b"%x\r\n%b\r\n" % (len(piece), piece))
            await self._writable.wait()
            number += 1
            if script.gap_ms:
                await asyncio.sleep(script.gap_ms / 1000)
        self._say(b"0\r\n\r\n")
        if self._transport is not None:
            self.script = None
            self._application.count(self._application.answered, script.id)
            if not self._keep:
                self._transport.close()

    def _say(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)
