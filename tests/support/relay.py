"""A TCP relay in front of a server, so that a test can take the server away and give it back."""

import asyncio
from contextlib import suppress

from tests.support.servers import free_port


class Relay:
    """Listens on a port of loopback and passes everything on to ``host:port``, unless it is cut or hangs."""

    def __init__(self, host: str, port: int) -> None:
        self.port = 0  # chosen by the first ``listen``, kept by the next ones
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._passing: set[asyncio.Task[None]] = set()
        self._passes = asyncio.Event()
        self._passes.set()

    async def listen(self) -> None:
        self.port = self.port or free_port()  # nobody else is given it while the relay is cut
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    def lead_to(self, host: str, port: int) -> None:
        """Pass new connections on to another server, as a name does that leads elsewhere."""
        self._target = (host, port)

    async def cut(self) -> None:
        """Refuse new connections and abort the present ones, also those that hang."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        self._passes.set()
        await asyncio.gather(*self._passing, return_exceptions=True)

    def hang(self) -> None:
        """Accept connections and take bytes, but pass nothing on, neither way."""
        self._passes.clear()

    def resume(self) -> None:
        """Pass on again, also what was held back."""
        self._passes.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        self._writers.add(writer)
        try:
            await self._passes.wait()
            if writer.is_closing():
                return
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            pair = {writer, far_writer}
            self._writers |= pair
            try:
                await asyncio.gather(self._pass_on(reader, far_writer), self._pass_on(far_reader, writer))
            finally:
                self._writers -= pair
                for end in pair:
                    end.transport.abort()
        finally:
            self._writers.discard(writer)
            self._passing.discard(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while block := await reader.read(65_536):
                await self._passes.wait()
                writer.write(block)
                await writer.drain()
        writer.transport.abort()
