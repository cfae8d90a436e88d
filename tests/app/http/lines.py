"""A server that a test drives by hand: the connections made to it, and the exchanges on them, over either protocol.

It knows of its client only what the wire tells it, and like ``origin.py``, on which it stands, it takes no notice of
TLS's close_notify: only the end of the TCP connection, or RST_STREAM, ends a request.
"""

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from providers.http.message import Field
from tests.app.providers.origin import Connection, Origin, soon


class Exchange:
    """One request as the server sees it, from the moment its head is in, and the answer to it."""

    def __init__(self, line: "Line", stream_id: int, method: str, target: str, fields: Sequence[Field]) -> None:
        self.line = line
        self.stream_id = stream_id
        self.method = method
        self.target = target
        self.fields = fields
        self.body = bytearray()
        self.whole = asyncio.Event()  # all of the request is here
        self.cut = asyncio.Event()  # the client has dropped it
        self.sent_bytes = 0  # of the answer's body, as far as it was let go
        self.plain = False  # the answer's body is not in chunks
        self.over = False  # all of the answer has been said

    def field(self, name: bytes) -> bytes | None:
        found = [value for each, value in self.fields if each.lower() == name]
        assert len(found) <= 1, f"{name!r} was sent more than once"
        return found[0] if found else None

    async def received(self) -> bytes:
        """Wait for all of the request, and return its body."""
        await soon(self.whole.wait())
        return bytes(self.body)

    def begin(self, status: int = 200, fields: Sequence[Field] = (), *, length: int | None = None) -> None:
        """Say the head of the answer, or of an interim one; ``length`` is that of its body, where it is told."""
        self.line.begin(self, status, fields, length)

    async def say(self, data: bytes, *, piece: int = 16_384) -> None:
        """Say a part of the body, ``piece`` bytes at a time, as fast as the client takes it."""
        for at in range(0, len(data), piece):
            await self.line.say(self, data[at : at + piece])
            self.sent_bytes += len(data[at : at + piece])

    def end(self, trailers: Sequence[Field] = ()) -> None:
        self.over = True
        self.line.end(self, trailers)

    async def answer(self, body: bytes = b"", status: int = 200, fields: Sequence[Field] = ()) -> None:
        """Read the request to its end, and answer it."""
        await self.received()
        self.begin(status, fields, length=len(body))
        await self.say(body)
        self.end()


class Line(Connection, ABC):
    """One connection as the server sees it."""

    def __init__(self, server: "Server", tls: ssl.SSLContext | None) -> None:
        super().__init__(tls)
        self.exchanges: dict[int, Exchange] = {}
        self._server = server
        self._writable = asyncio.Event()
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        try:
            plain = self._decrypted(data) if self._tls else data
        except ssl.SSLError as error:
            self._server.refusals.put_nowait(error)
            self.drop()
            return
        if plain:
            self.heard(plain)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._writable.set()
        for exchange in self.exchanges.values():
            if not exchange.over:
                exchange.cut.set()

    def stop_reading(self) -> None:
        assert self._transport is not None
        self._transport.pause_reading()

    def read_on(self) -> None:
        assert self._transport is not None
        self._transport.resume_reading()

    async def drained(self) -> None:
        await soon(self._writable.wait())
        if self.lost.is_set():
            raise ConnectionResetError

    def arrived(self, exchange: Exchange) -> None:
        self.exchanges[exchange.stream_id] = exchange
        self._server.arrivals.put_nowait(exchange)

    @abstractmethod
    def heard(self, data: bytes) -> None:
        """Take what the client says, decrypted."""

    @abstractmethod
    def begin(self, exchange: Exchange, status: int, fields: Sequence[Field], length: int | None) -> None: ...

    @abstractmethod
    async def say(self, exchange: Exchange, data: bytes) -> None: ...

    @abstractmethod
    def end(self, exchange: Exchange, trailers: Sequence[Field]) -> None: ...


class Server(Origin):
    """A server on loopback whose connections are of ``kind``; what arrives on them, in the order it came."""

    def __init__(self, kind: type[Line], tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self.lines: list[Line] = []
        self.arrivals: asyncio.Queue[Exchange] = asyncio.Queue()
        self.refusals: asyncio.Queue[ssl.SSLError] = asyncio.Queue()  # clients that broke off the handshake
        self._kind = kind

    @property
    def origin(self) -> str:
        return f"{'https' if self._tls else 'http'}://localhost:{self.port}"

    @asynccontextmanager
    async def listening(self, host: str = "127.0.0.1") -> AsyncIterator["Server"]:
        """Serve on ``host``, which is of loopback."""
        server = await asyncio.get_running_loop().create_server(self._accept, host, 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for line in self.lines:
                line.drop()
            await server.wait_closed()

    async def exchange(self) -> Exchange:
        """Wait for the next request."""
        return await soon(self.arrivals.get())

    async def line(self) -> Connection:
        """Wait for the next connection."""
        return await self.connection()

    def _accept(self) -> Line:
        line = self._kind(self, self._tls)
        self.lines.append(line)
        self.accepted.append(line)
        self._arrivals.put_nowait(line)
        return line
