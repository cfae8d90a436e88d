"""A receiver of webhooks on loopback, which does what a test says."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Receiver:
    """``received`` has the headers and the body of each request; ``answer`` answers them."""

    def __init__(self) -> None:
        self.url = ""
        self.received: list[tuple[dict[str, str], bytes]] = []
        self.answer: Answer = self.status(200)
        self.asked = asyncio.Event()
        self._over = asyncio.Event()

    def status(self, *codes: int, body: str = "") -> Answer:
        """Answer with these statuses, one after the other, then with the last one."""
        rest = list(codes)

        async def answer(_: web.Request) -> web.Response:
            return web.Response(status=rest.pop(0) if len(rest) > 1 else rest[0], text=body)

        return answer

    async def hang(self, _: web.Request) -> web.StreamResponse:
        await self._over.wait()
        return web.Response()

    async def drop(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.received.append((headers, await request.read()))
        self.asked.set()
        return await self.answer(request)

    @property
    def ids(self) -> list[str]:
        """The ``webhook-id`` of each request."""
        return [headers["webhook-id"] for headers, _ in self.received]

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator["Receiver"]:
        receiver = cls()
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", receiver._handle)
        runner = web.AppRunner(application, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        receiver.url = f"http://{host}:{port}/hook/T0P-S3CRET"
        try:
            yield receiver
        finally:
            receiver._over.set()
            await runner.cleanup()
