"""Clients of a gateway over bare sockets: one request on a connection of its own, and connections that say nothing."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import msgspec

HOST = "127.0.0.1"
PATIENCE_S = 60.0


class Answer(msgspec.Struct, frozen=True):
    """Seconds since the connection was begun, and the answer's first bytes; no status: closed without an answer."""

    connected_s: float
    first_byte_s: float
    status: int | None
    start: bytes


def get(path: str, headers: Mapping[str, str] | None = None) -> bytes:
    """Return a GET as HTTP/1.1 writes it; the connection is to be closed after its answer."""
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    return f"GET {path} HTTP/1.1\r\nhost: {HOST}\r\n{more}connection: close\r\n\r\n".encode()


async def ask(port: int, request: bytes, *, source: str | None = None, patience_s: float = PATIENCE_S) -> Answer:
    """Send ``request`` on a connection of its own, from the address ``source``; return when the first byte is there.

    Raises:
        TimeoutError: it did not come.
        OSError: the connection was refused or reset.

    """
    began = time.perf_counter()
    async with asyncio.timeout(patience_s):
        reader, writer = await asyncio.open_connection(HOST, port, local_addr=(source, 0) if source else None)
        try:
            connected_s = time.perf_counter() - began
            writer.write(request)
            start = await reader.read(65_536)
            first_byte_s = time.perf_counter() - began
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
    return Answer(connected_s, first_byte_s, int(start[9:12]) if start.startswith(b"HTTP/1.1 ") else None, start)


@asynccontextmanager
async def silent(port: int, number: int, *, source: str | None = None) -> AsyncIterator[list[socket.socket]]:
    """Hold ``number`` connections on which nothing is said; those that are refused at once are among them, too."""
    held = [socket.socket() for _ in range(number)]
    try:
        for each in held:
            if source is not None:
                each.bind((source, 0))
            each.setblocking(False)  # noqa: FBT003 - its only argument
            each.connect_ex((HOST, port))
        yield held
    finally:
        for each in held:
            each.close()
