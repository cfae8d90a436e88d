"""The server's side of HTTP/1.1 connections, which a test speaks byte by byte, and the dialling of them."""

import asyncio
from typing import Any

from providers.http import Head, HttpRequest
from providers.http.http1 import BoundedReads, Http1Connection
from providers.http.message import ConnectionOwner
from tests.unit.providers.http.inside.h2_server import Wire

HEAD = Head("POST", "https", "api.example", "/v1/chat", {"Authorization": "Bearer k"}, absolute=False)
POST = HttpRequest(HEAD, (), b"{}")
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Plug(Wire):
    """A transport whose reading can be paused, and which tells its protocol of its end."""

    def __init__(self, extra: dict[str, Any] | None = None) -> None:
        super().__init__(extra)
        self._reading = True

    def is_reading(self) -> bool:
        return self._reading

    def abort(self) -> None:
        if not self.aborted:
            super().abort()
            assert self.protocol is not None
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def pause_reading(self) -> None:
        assert self._reading, "paused twice"
        self._reading = False

    def resume_reading(self) -> None:
        assert not self._reading, "resumed twice"
        self._reading = True

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, BoundedReads)
        assert not self._reading, "changed while it reads"
        self.protocol = protocol  # type: ignore[assignment] # buffered, which is none of its bases

    def get_write_buffer_size(self) -> int:
        return self.unsent if self.full_at is not None else 0


class Line:
    """One connection and its server."""

    def __init__(self, owner: ConnectionOwner, connect_ms: float | None = 12.5, *, secure: bool = False) -> None:
        self.wire = Plug({"ssl_object": self} if secure else None)
        self.client = Http1Connection(owner, asyncio.get_running_loop(), connect_ms)
        self.wire.protocol = self.client
        self.client.connection_made(self.wire)

    def heard(self) -> bytes:
        """Return what has come since the last time."""
        data = b"".join(self.wire.writes)
        self.wire.writes.clear()
        return data

    def say(self, data: bytes) -> None:
        self.client.data_received(data)

    def hang_up(self, error: Exception | None = None) -> None:
        self.wire.aborted = True
        self.client.connection_lost(error)


class Dialling:
    """Makes lines, each when the test says so, or at once."""

    def __init__(self, *, takes_s: float = 0.0) -> None:
        self.lines: list[Line] = []
        self.begun = 0
        self.errors: list[Exception] = []  # of the next dials
        self.takes_s = takes_s
        self.timeouts_s: list[float] = []
        self.stillborn = False  # connections are gone when they are there

    async def dial(self, owner: ConnectionOwner, timeout_s: float) -> Http1Connection:
        self.begun += 1
        self.timeouts_s.append(timeout_s)
        await asyncio.sleep(self.takes_s)
        if self.errors:
            raise self.errors.pop(0)
        line = Line(owner)
        self.lines.append(line)
        if self.stillborn:
            line.hang_up()
        return line.client
