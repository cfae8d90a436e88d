"""A proxy that opens tunnels, or does not."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.app.providers.origin import soon

_OPENED = b"HTTP/1.1 200 Connection established\r\n\r\n"


class TunnelProxy:
    """Answers each CONNECT with ``answer``; what is 2xx leads to ``port`` on loopback, whatever was asked for."""

    def __init__(
        self, port: int, *, answer: bytes = _OPENED, closing: bool = False, tls: ssl.SSLContext | None = None
    ) -> None:
        self.heads: list[bytes] = []
        self.port = 0
        self.asked = asyncio.Event()
        self._target = port
        self._answer = answer
        self._closing = closing  # after an answer that opens no tunnel
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://localhost:{self.port}"

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["TunnelProxy"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await soon(asyncio.wait(set(self._tasks)))
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                self.asked.set()
                writer.write(self._answer)
                if self._answer == _OPENED:
                    await self._join(reader, writer)
                elif self._closing:
                    writer.close()
                await reader.read()
        finally:
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry bytes both ways until one side ends; then end the other as abruptly."""
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target)
        ways = [
            asyncio.create_task(_carry(reader, there_writer)),
            asyncio.create_task(_carry(there_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            there_writer.transport.abort()
            writer.transport.abort()
            await asyncio.wait(ways)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
