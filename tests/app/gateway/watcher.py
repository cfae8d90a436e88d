"""A client of the live stream, which keeps the events it was sent."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
import msgspec


class Watcher:
    """The events so far, in order, each with its kind; waits for those to come."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.comments = 0
        self.is_over = False
        self.broke = False  # without an end
        self._response = response
        self._news = asyncio.Condition()

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        """Return the events of these kinds."""
        return [data for kind, data in self.events if kind in kinds]

    @property
    def kinds(self) -> list[str]:
        """The kinds of the events, but for those that come at any time."""
        return [kind for kind, _ in self.events if kind != "tokens"]

    async def until(self, happened: Callable[["Watcher"], object]) -> None:
        """Wait until the events make ``happened`` true."""
        async with self._news:
            await self._news.wait_for(lambda: happened(self))

    async def seen(self, kind: str, number: int = 1) -> list[dict[str, Any]]:
        """Wait for so many events of a kind, and return all of it."""
        await self.until(lambda watcher: len(watcher.of(kind)) >= number)
        return self.of(kind)

    async def read(self) -> None:
        """Keep what comes until the stream ends."""
        try:
            while block := await self._response.content.readuntil(b"\n\n"):
                await self._keep(block)
        except asyncio.IncompleteReadError:
            pass
        except aiohttp.ClientError:
            self.broke = True
        finally:
            async with self._news:
                self.is_over = True
                self._news.notify_all()

    async def _keep(self, block: bytes) -> None:
        async with self._news:
            lines = block.decode().strip("\n").split("\n")
            if lines[0].startswith(":"):
                self.comments += 1
            else:
                [kind, data] = lines
                self.events.append((kind.removeprefix("event: "), msgspec.json.decode(data.removeprefix("data: "))))
            self._news.notify_all()


@asynccontextmanager
async def watching(
    http: aiohttp.ClientSession, url: str, headers: Mapping[str, str] | None = None, **wanted: str
) -> AsyncIterator[Watcher]:
    """Watch a gateway's calls until the block ends; its hello has come by then."""
    async with http.get(f"{url}/api/live", params=wanted, headers=headers or {}) as response:
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        watcher = Watcher(response)
        reading = asyncio.create_task(watcher.read())
        try:
            await watcher.seen("hello")
            yield watcher
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading
