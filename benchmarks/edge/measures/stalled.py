"""Clients that do not read an endless stream: what each of them costs the gateway, and when it is cut."""

import asyncio
import contextlib
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import trustme
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived, StreamReset, WindowUpdated

from benchmarks.edge.edge import HOST, Edge, Figure, Running
from tests.support.measured.answers import TOKEN
from tests.support.measured.load import asking
from tests.support.measured.serving import STREAM_HEAD, Serving, framed

_CHUNK = b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n'
_EVENTS = (_CHUNK % TOKEN.encode()) * 150  # as much as one frame holds
_TYPE = b"text/event-stream"
CLIENTS = 40
PATIENCE_S = 90.0  # until they are cut
_LOOK_S = 0.25
_STILL_LOOKS = 8  # without a new byte of memory
_WARM_UP = 10  # clients that come and go before
MODEL = "endless"


class Flood:
    """The provider. ``counts``: streams that were ``begun``, and that were ``cut`` by who asked."""

    def __init__(self, port: int, authority: bytes | None, counts: Counter[str]) -> None:
        self.port = port
        self.authority = authority  # vouches for it, as PEM; None: it is spoken to in the clear
        self.counts = counts

    @property
    def base_url(self) -> str:
        """Where it is."""
        return f"{'http' if self.authority is None else 'https'}://{HOST}:{self.port}/v1"


@asynccontextmanager
async def flooding(*, secure: bool) -> AsyncIterator[Flood]:
    """Run it until the block ends; ``secure``: over TLS, which speaks HTTP/2 alone."""
    counts: Counter[str] = Counter()
    context, authority = None, None
    if secure:
        trust = trustme.CA()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["h2"])
        trust.issue_cert(HOST).configure_cert(context)
        authority = trust.cert_pem.bytes()
    protocol = _Http2 if secure else _Http1
    server = await asyncio.get_running_loop().create_server(lambda: protocol(counts), HOST, 0, ssl=context)
    async with server:
        yield Flood(server.sockets[0].getsockname()[1], authority, counts)


class _Http1(Serving):
    """One connection. Every request is answered by a stream without end."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self._counts = counts
        self._begun = False
        self._open = True  # for more

    def answer(self, request: bytes) -> None:
        """Begin."""
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
        """Count it."""
        self._open = False
        self._counts["cut"] += self._begun

    def _send(self) -> None:
        if self._open:
            self.write(framed(_EVENTS))
            self.loop.call_soon(self._send)


class _Http2(asyncio.Protocol):
    """One connection, which carries several such streams, each as far as its window goes."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self._streams: set[int] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._h2.initiate_connection()
        self._transport.write(self._h2.data_to_send())

    def data_received(self, data: bytes) -> None:
        for event in self._h2.receive_data(data):
            if isinstance(event, RequestReceived):
                self._counts["begun"] += 1
                self._streams.add(event.stream_id)
                self._h2.send_headers(event.stream_id, [(b":status", b"200"), (b"content-type", _TYPE)])
            elif isinstance(event, StreamReset):
                self._counts["cut"] += event.stream_id in self._streams
                self._streams.discard(event.stream_id)
            elif isinstance(event, WindowUpdated):
                pass
        self._send()

    def resume_writing(self) -> None:
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._counts["cut"] += len(self._streams)
        self._streams.clear()

    def _send(self) -> None:
        for stream_id in sorted(self._streams):
            room = min(self._h2.local_flow_control_window(stream_id), self._h2.max_outbound_frame_size, len(_EVENTS))
            if room == len(_EVENTS):
                self._h2.send_data(stream_id, _EVENTS)
        if data := self._h2.data_to_send():
            self._transport.write(data)
            asyncio.get_running_loop().call_soon(self._send)


async def measure(edge: Edge) -> list[Figure]:
    figures: list[Figure] = []
    for secure, name in ((False, "HTTP/1.1"), (True, "HTTP/2 over TLS")):
        async with flooding(secure=secure) as flood:
            figures += await _measured(edge, flood, name, patience_s=0.0 if secure else PATIENCE_S)
    return figures


async def _measured(edge: Edge, flood: Flood, name: str, *, patience_s: float) -> list[Figure]:
    settings = {
        "providers": {"flood": {"kind": "openai_compatible", "base_url": flood.base_url, "api_key": "sk-mock-flood"}},
        "models": {MODEL: {"deployments": ["flood/benchmark-model"], "race": {"mode": "single"}}},
    }
    environ = {}
    if flood.authority is not None:
        path = edge.folder / "authority.pem"
        path.write_bytes(flood.authority)
        environ["SSL_CERT_FILE"] = str(path)
    async with edge.gateway(settings, environ=environ) as gateway:
        async with _stalled(gateway, _WARM_UP):
            await _settled(gateway)
        await asyncio.sleep(2 * _LOOK_S)
        before_mb, cut = gateway.rss_mb(), flood.counts["cut"]
        began = time.monotonic()
        async with _stalled(gateway, CLIENTS):
            held_mb = await _settled(gateway)
            figures = [Figure(f"{name}: memory of each", (held_mb - before_mb) / CLIENTS * 1000, "kB")]
            while time.monotonic() - began < patience_s and flood.counts["cut"] - cut < CLIENTS:  # noqa: ASYNC110 - another process has no event
                await asyncio.sleep(_LOOK_S)
            if patience_s:
                gone = flood.counts["cut"] - cut
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
