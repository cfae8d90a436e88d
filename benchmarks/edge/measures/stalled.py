"""Clients that do not read an endless stream: what each of them costs the gateway, and when it is cut."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from benchmarks.edge.client import HOST
from benchmarks.edge.edge import Edge, Running
from benchmarks.edge.figure import Figure
from benchmarks.edge.flood import Flood, flooding
from benchmarks.harness.gateways import PATH

CLIENTS = 40
PATIENCE_S = 90.0  # until they are cut
_LOOK_S = 0.25
_STILL_LOOKS = 8  # without a new byte of memory
_WARM_UP = 10  # clients that come and go before
MODEL = "endless"


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
    body = msgspec.json.encode({"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "Hi"}]})
    fields = {**gateway.headers, "host": HOST, "content-type": "application/json", "content-length": str(len(body))}
    head = f"POST {PATH} HTTP/1.1\r\n" + "".join(f"{key}: {value}\r\n" for key, value in fields.items())
    request = head.encode() + b"\r\n" + body
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
