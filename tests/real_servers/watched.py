"""Our client, with its connections, retries and GOAWAYs counted, and calls whose every byte is checked."""

import asyncio
import os
import socket
import ssl
import stat
import statistics
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from yarl import URL

from providers.http import Connecting, HttpClient, HttpRequest, Response, TlsContexts, Versions
from providers.http.client import Pool
from providers.http.http2 import Http2Connection
from providers.http.message import ConnectionOwner, UpstreamConnection
from tests.real_servers.application import Application, Script, seal

CONNECT_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 30.0
_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")


class WrongAnswerError(Exception):
    """An answer is not what the application said."""


class Way(NamedTuple):
    """How the client speaks to the server."""

    versions: Versions
    over_tls: bool

    def __str__(self) -> str:
        spoken = {"1.1": "HTTP/1.1", "2": "HTTP/2", "auto": "auto"}[self.versions]
        if self.over_tls:
            return f"{spoken} TLS"
        return "h2c" if self.versions == "2" else spoken


class Watched(HttpClient):
    """A client of one server that keeps count."""

    def __init__(self, port: int, way: Way, trust: Callable[[], ssl.SSLContext], proxies: Mapping[str, str]) -> None:
        self.port = port
        self.retries = 0
        self.connections: list[UpstreamConnection] = []
        self.connect_ms: list[float] = []
        self.goaways: Counter[int] = Counter()  # by code
        origin = URL(f"{'https' if way.over_tls else 'http'}://localhost:{port}")
        for name in _PROXY_VARIABLES:
            os.environ.pop(name, None)
            os.environ.pop(name.lower(), None)
        os.environ.update(proxies)
        try:
            super().__init__(
                origin,
                headers={"authorization": "Bearer key"},
                connecting=Connecting(versions=way.versions, tls=TlsContexts(trust)),
            )
        finally:
            for name in proxies:
                del os.environ[name]

    @property
    def connect_p50_ms(self) -> float:
        return statistics.median(self.connect_ms) if self.connect_ms else 0.0

    @property
    def resets(self) -> list[int]:
        """How many streams were reset by us on each HTTP/2 connection."""
        return [each._receiving.resets for each in self.connections if isinstance(each, Http2Connection)]

    async def quiet(self, application: Application) -> bool:
        """Wait until nothing is under way."""

        def busy() -> bool:
            pools = self._pools.values()
            return any(pool._dials or pool._waiting or any(c.streams for c in pool._all) for pool in pools)

        return await application.until(lambda: not busy())

    def _open_pool(self, versions: Versions, loop: asyncio.AbstractEventLoop) -> Pool:
        pool = super()._open_pool(versions, loop)
        pool._dial = self._watching(pool._dial)
        return pool

    def _watching(
        self, dial: Callable[[ConnectionOwner, float], Awaitable[UpstreamConnection]]
    ) -> Callable[[ConnectionOwner, float], Awaitable[UpstreamConnection]]:
        async def watched(owner: ConnectionOwner, timeout_s: float) -> UpstreamConnection:
            connection = await dial(owner, timeout_s)
            self.connections.append(connection)
            if connection.connect_ms is not None:
                self.connect_ms.append(connection.connect_ms)
            if isinstance(connection, Http2Connection):
                self._listen(connection)
            return connection

        return watched

    def _listen(self, connection: Http2Connection) -> None:
        go_away = connection.go_away

        def counted(last_id: int) -> None:
            self.goaways[connection._receiving.goaway or 0] += 1
            go_away(last_id)

        connection.go_away = counted  # type: ignore[method-assign] # it is only listened to

    def _refused(self, pool: Pool, now_s: float) -> None:
        self.retries += 1
        super()._refused(pool, now_s)


def open_sockets(ports: set[int]) -> int:
    """Return how many sockets of this process lead to one of ``ports``."""
    found = 0
    for path in Path("/dev/fd").iterdir():
        with suppress(OSError):  # what listed them is gone, and who listens has no peer
            if not stat.S_ISSOCK(os.fstat(int(path.name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(path.name))) as copy:
                found += copy.family in {socket.AF_INET, socket.AF_INET6} and copy.getpeername()[1] in ports
    return found


async def begin(client: Watched, script: Script, body: bytes = b"{}") -> Response:
    """Send a call; return its answer once the head is in and was found right."""
    head = client.head("POST", script.target, {})
    response = await client.send(HttpRequest(head, (), body), CONNECT_TIMEOUT_S)
    if response.status != 200:
        response.abort()
        raise WrongAnswerError(f"status {response.status}")
    said, received = seal(len(body), crc32(body)), response.headers.get("x-received")
    if received != said:
        response.abort()
        raise WrongAnswerError(f"the application received {received}, not {said}")
    return response


async def call(client: Watched, script: Script, body: bytes = b"{}", pause_s: float = 0.0) -> None:
    """Make a whole call, reading slowly if ``pause_s`` says so, and check each byte of its answer."""
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        response = await begin(client, script, body)
        try:
            wanted, at = memoryview(script.body), 0
            while piece := await response.read():
                if piece != wanted[at : at + len(piece)]:
                    raise WrongAnswerError(f"other bytes than were sent, from {at} on")
                at += len(piece)
                if pause_s:
                    await asyncio.sleep(pause_s)
            if at != len(wanted):
                raise WrongAnswerError(f"{at} bytes instead of {len(wanted)}, and no error")
        finally:
            response.abort()
