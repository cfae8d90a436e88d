"""Clients that do not read an endless stream: what each of them costs the gateway, and when it is cut."""

import asyncio
import contextlib
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.edge.edge import HOST, Edge, Figure, Running
from tests.support.measured import nginx
from tests.support.measured.answers import TOKEN
from tests.support.measured.load import asking
from tests.support.measured.serving import STREAM_HEAD, Serving, framed

_CHUNK = b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n'
_EVENTS = (_CHUNK % TOKEN.encode()) * 150
CLIENTS = 40
PATIENCE_S = 90.0  # until they are cut
_LOOK_S = 0.25
_STILL_LOOKS = 8  # without a new byte of memory
_WARM_UP = 10  # clients that come and go before
MODEL = "endless"


class _Flood(Serving):
    """One connection. Every request is answered by a stream without end."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self._counts = counts
        self._begun = False
        self._open = True  # for more

    def answer(self, request: bytes) -> None:
        del request
        self._begun = True
        self._counts["begun"] += 1
        self.write(STREAM_HEAD)
        self._send()

    def pause_writing(self) -> None:
        self._open = False

    def resume_writing(self) -> None:
        self._open = True
        self._send()

    def lost(self) -> None:
        self._open = False
        self._counts["cut"] += self._begun

    def _send(self) -> None:
        if self._open:
            self.write(framed(_EVENTS))
            self.loop.call_soon(self._send)


async def measure(edge: Edge) -> list[Figure]:
    counts: Counter[str] = Counter()  # streams that were ``begun``, and that were ``cut`` by who asked
    server = await asyncio.get_running_loop().create_server(lambda: _Flood(counts), HOST, 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        figures = await _measured(edge, f"http://{HOST}:{port}", None, counts, "HTTP/1.1")
        try:
            with nginx.origin(port, edge.folder / "origin") as origin:
                url = f"https://{HOST}:{origin.server.port}"
                figures += await _measured(edge, url, origin.authority, counts, "HTTP/2 over TLS")
        except nginx.Missing as missing:
            figures.append(Figure(f"HTTP/2 over TLS: needs {missing}", None))
        return figures


async def _measured(edge: Edge, url: str, authority: Path | None, counts: Counter[str], name: str) -> list[Figure]:
    """Measure with a provider at ``url``; that clients are cut is waited for where it is spoken to in the clear."""
    patience_s = PATIENCE_S if authority is None else 0.0
    settings = {
        "providers": {"flood": {"kind": "openai_compatible", "base_url": f"{url}/v1", "api_key": "sk-mock-flood"}},
        "models": {MODEL: {"deployments": ["flood/benchmark-model"], "race": {"mode": "single"}}},
    }
    environ = {} if authority is None else {"SSL_CERT_FILE": str(authority)}
    async with edge.gateway(settings, environ=environ) as gateway:
        async with _stalled(gateway, _WARM_UP):
            await _settled(gateway)
        await asyncio.sleep(2 * _LOOK_S)
        before_mb, cut = gateway.rss_mb(), counts["cut"]
        began = time.monotonic()
        async with _stalled(gateway, CLIENTS):
            held_mb = await _settled(gateway)
            figures = [Figure(f"{name}: memory of each", (held_mb - before_mb) / CLIENTS * 1000, "kB")]
            while time.monotonic() - began < patience_s and counts["cut"] - cut < CLIENTS:  # noqa: ASYNC110 - another process has no event
                await asyncio.sleep(_LOOK_S)
            if patience_s:
                gone = counts["cut"] - cut
                figures.append(Figure(f"{name}: cut at the provider, of {CLIENTS}", float(gone)))
                figures.append(Figure(f"{name}: after", time.monotonic() - began if gone == CLIENTS else None, "s"))
    return figures


@asynccontextmanager
async def _stalled(gateway: Running, number: int) -> AsyncIterator[None]:
    """Have so many clients ask for a stream, and read nothing."""
    request = asking(gateway.port, gateway.headers, MODEL).rendered()
    loop = asyncio.get_running_loop()
    held: list[socket.socket] = []
    try:
        for _ in range(number):
            sock = socket.socket()
            held.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.setblocking(False)  # noqa: FBT003 - its only argument
            await loop.sock_connect(sock, (HOST, gateway.port))
            await loop.sock_sendall(sock, request)
        yield
    finally:
        for sock in held:
            with contextlib.suppress(OSError):
                sock.close()


async def _settled(gateway: Running) -> float:
    """Return the resident memory, in 10^6 bytes, once it grows no more."""
    most, still = 0.0, 0
    while still < _STILL_LOOKS:
        await asyncio.sleep(_LOOK_S)
        now = gateway.rss_mb()
        still = still + 1 if now <= most + 0.1 else 0
        most = max(most, now)
    return most
