"""A provider of everything that is not raced, over real sockets: it answers each request as its next script says."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

import msgspec
from aiohttp import web

from providers.simulator.wire import json_response

Script = Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]
VECTOR = {"object": "embedding", "index": 0, "embedding": "AACAPwAAAEA="}
EMBEDDINGS = {"object": "list", "data": [VECTOR], "model": "m", "usage": {"prompt_tokens": 3, "total_tokens": 3}}


class Received(msgspec.Struct, frozen=True):
    """One request as it arrived."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def fields(self) -> Any:
        return msgspec.json.decode(self.body)


def says(
    body: Any, *, status: int = 200, kind: str = "application/json", headers: Mapping[str, str] | None = None
) -> Script:
    """Answer with JSON, or with these very bytes."""
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)

    async def answer(_: web.Request, __: bytes) -> web.StreamResponse:
        return web.Response(body=raw, status=status, headers={"content-type": kind, **(headers or {})})

    return answer


def to_keys(admitted: Collection[str], script: Script) -> Script:
    """Answer by ``script`` to these keys, as they are then; refuse others."""

    async def answer(request: web.Request, body: bytes) -> web.StreamResponse:
        if request.headers["authorization"].removeprefix("Bearer ") in admitted:
            return await script(request, body)
        return json_response({"error": {"message": "Incorrect API key provided"}}, status=401)

    return answer


def plays(*pieces: bytes | asyncio.Event, kind: str = "audio/mpeg", then: str = "end") -> Script:
    """Send pieces, waiting at each event; ``then`` end, break the connection, or hang."""

    async def answer(request: web.Request, _: bytes) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": kind})
        await response.prepare(request)
        for piece in pieces:
            await (piece.wait() if isinstance(piece, asyncio.Event) else response.write(piece))
        if then == "hang":
            await asyncio.Event().wait()
        if then == "break":
            assert request.transport is not None
            request.transport.abort()
        return response

    return answer


async def hangs(_: web.Request, __: bytes) -> web.StreamResponse:
    """Never answer."""
    await asyncio.Event().wait()
    raise AssertionError


class FakeUpstream:
    """The provider. ``answers`` are taken in turn, the last one again and again."""

    def __init__(self, *answers: Script) -> None:
        self.answers = deque(answers or [says(EMBEDDINGS)])
        self.received: list[Received] = []
        self.asked = asyncio.Event()
        self.left = asyncio.Event()  # a client hung up before the end
        self.base_url = ""
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=256 * 2**20)
        app.add_routes([web.post("/v1/{path:.+}", self._answer)])
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.received.append(Received(request.path.removeprefix("/v1/"), headers, body))
        script = self.answers.popleft() if len(self.answers) > 1 else self.answers[0]
        self.asked.set()
        try:
            return await script(request, body)
        except (asyncio.CancelledError, ConnectionError):
            self.left.set()
            raise


def no_such_path() -> Script:
    """Answer as a server that does not have the API."""

    async def answer(_: web.Request, __: bytes) -> web.StreamResponse:
        return json_response({"detail": "Not Found"}, status=404)

    return answer
