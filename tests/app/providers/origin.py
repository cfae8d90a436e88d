"""An origin that a test drives by hand, byte by byte, and that knows of a client only what TCP tells it.

Over TLS it behaves like nginx in front of an application: it terminates TLS itself and takes no notice of close_notify,
so that only the end of the TCP connection ends a request.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar, cast

import trustme

from tests.patience import PATIENCE_S

_T = TypeVar("_T")

STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


async def soon(awaitable: Awaitable[_T]) -> _T:
    """Wait for what must happen; fail instead of hanging when it does not."""
    return await asyncio.wait_for(awaitable, PATIENCE_S)


def chunked(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


def response(body: bytes, *, status: str = "200 OK", content_type: str = "application/json", **headers: str) -> bytes:
    fields = {"content-type": content_type, "content-length": str(len(body)), **headers}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body


class Connection(asyncio.Protocol):
    """One client connection as the origin sees it."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self.requests: asyncio.Queue[bytes] = asyncio.Queue()
        self.close_notified = asyncio.Event()
        self.made = asyncio.Event()
        self.lost = asyncio.Event()
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.wrap_bio(self._incoming, self._outgoing, server_side=True) if tls else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.made.set()

    def data_received(self, data: bytes) -> None:
        self._buffer += self._decrypted(data) if self._tls else data
        while (request := self._whole_request()) is not None:
            self.requests.put_nowait(request)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()

    def send(self, data: bytes) -> None:
        assert self._transport is not None
        if self._tls:
            self._tls.write(data)
            data = self._outgoing.read()
        self._transport.write(data)

    def close(self) -> None:
        """End the connection once what was sent has gone out."""
        assert self._transport is not None
        self._transport.close()

    def bid_farewell(self) -> None:
        """Do the same in the words of TLS as well, as most servers do: with a close_notify."""
        assert self._transport is not None
        if self._tls:
            with suppress(ssl.SSLWantReadError):  # of the client's own, which is not waited for
                self._tls.unwrap()
            self._transport.write(self._outgoing.read())
        self.close()

    def drop(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _whole_request(self) -> bytes | None:
        head, blank, rest = self._buffer.partition(b"\r\n\r\n")
        if not blank:
            return None
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        length = int(lengths[0].partition(b":")[2]) if lengths else 0
        if len(rest) < length:
            return None
        self._buffer = rest[length:]
        return head + blank + rest[:length]

    def _decrypted(self, data: bytes) -> bytes:
        assert self._tls is not None
        assert self._transport is not None
        self._incoming.write(data)
        plain = b""
        try:
            self._tls.do_handshake()
            while piece := self._tls.read(65536):
                plain += piece
            self.close_notified.set()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.close_notified.set()
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())
        return plain


class Origin:
    """A server on loopback; its connections, in the order they were made."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.accepted: list[Connection] = []
        self.port = 0
        self._tls = tls
        self._arrivals: asyncio.Queue[Connection] = asyncio.Queue()

    @property
    def base_url(self) -> str:
        return f"{'https' if self._tls else 'http'}://localhost:{self.port}/v1"

    async def connection(self) -> Connection:
        connection = await soon(self._arrivals.get())
        await soon(connection.made.wait())
        return connection

    async def request(self) -> tuple[Connection, bytes]:
        """Wait for the next connection and its first request."""
        connection = await self.connection()
        return connection, await soon(connection.requests.get())

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Origin"]:
        server = await asyncio.get_running_loop().create_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for connection in self.accepted:
                connection.drop()
            await server.wait_closed()

    def _accept(self) -> Connection:
        connection = Connection(self._tls)
        self.accepted.append(connection)
        self._arrivals.put_nowait(connection)
        return connection


def tls_pair() -> tuple[ssl.SSLContext, bytes]:
    """Return a server's context for localhost, and the certificate of the authority behind it, in PEM."""
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    return context, authority.cert_pem.bytes()
