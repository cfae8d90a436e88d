"""Pages and scrapes of a gateway with 2,000 models and 5,000 keys: how long a stream beside them stands still."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from benchmarks.edge.edge import HOST, Edge, Figure, Running
from tests.support.measured.gateways import KEY, hashed
from tests.support.measured.load import asking
from tests.support.measured.serving import STREAM_HEAD, Serving, framed

MODELS, KEYS = 2_000, 5_000
EACH_S = 0.005  # between two tokens
STREAMED = "streamed"
CALLERS = 16
PAGES = (
    "/metrics",
    "/leaderboard",
    "/leaderboard?explain=1",
    "/api/leaderboard",
    "/api/explain",
    "/api/configuration",
    "/api/keys",
    "/api/usage",
    "/api/teams",
    "/api/history",
    "/api/alerts",
    "/v1/models",
    "/health/ready",
    "/openapi.json",
)
_TOKEN = framed(
    b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":" token"}}]}\n\n'
)
_CHAT = {"max_tokens": 100, "messages": [{"role": "user", "content": "?"}]}


class _Pacer(Serving):
    """One connection. Every request is answered by a stream without end, a token at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._next: asyncio.TimerHandle | None = None

    def answer(self, request: bytes) -> None:
        del request
        self.write(STREAM_HEAD)
        self._send()

    def lost(self) -> None:
        if self._next is not None:
            self._next.cancel()

    def _send(self) -> None:
        self.write(_TOKEN)
        self._next = self.loop.call_later(EACH_S, self._send)


async def measure(edge: Edge) -> list[Figure]:
    """Measure the pauses of a stream while nothing is asked, and while each page is."""
    server = await asyncio.get_running_loop().create_server(_Pacer, HOST, 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with edge.gateway(_settings(port, edge.upstream.port)) as gateway, _session(gateway) as session:
            await _call_each_model(session)
            return await _measured(gateway, session)


def _settings(port: int, upstream: int) -> Mapping[str, Any]:
    behaviour = f"http://{HOST}:{upstream}/burst/v1"
    providers = {
        "pacer": {"kind": "openai_compatible", "base_url": f"http://{HOST}:{port}/v1", "api_key": "sk-mock-pacer"},
        **{
            name: {"kind": "openai_compatible", "base_url": behaviour, "api_key": f"sk-mock-{name}"}
            for name in ("red", "blue")
        },
    }
    models = {
        f"model-{number}": {"deployments": [f"red/m-{number}", f"blue/m-{number}"], "race": {"mode": "single"}}
        for number in range(MODELS)
    }
    models[STREAMED] = {"deployments": ["pacer/m"], "race": {"mode": "single"}}
    clients = {f"client-{number}": {"key_sha256": hashed(f"hs-client-{number}"), "rpm": 60} for number in range(KEYS)}
    return {"providers": providers, "models": models, "clients": clients, "log_level": "error"}


@asynccontextmanager
async def _session(gateway: Running) -> AsyncIterator[aiohttp.ClientSession]:
    headers = {"authorization": f"Bearer {KEY}"}
    async with aiohttp.ClientSession(f"http://{HOST}:{gateway.port}", headers=headers) as session:
        yield session


async def _call_each_model(session: aiohttp.ClientSession) -> None:
    """Call each model, so that it has standings and series."""
    numbers = iter(range(MODELS))

    async def call(numbers: Iterator[int]) -> None:
        for number in numbers:
            async with session.post(
                "/v1/chat/completions", json=_CHAT | {"model": f"model-{number}", "stream": True}
            ) as answer:
                await answer.read()

    async with asyncio.TaskGroup() as group:
        for _ in range(CALLERS):
            group.create_task(call(numbers))


async def _measured(gateway: Running, session: aiohttp.ClientSession) -> list[Figure]:
    reader, writer = await asyncio.open_connection(HOST, gateway.port)
    writer.write(asking(gateway.port, gateway.headers, STREAMED).rendered())
    longest_s = 0.0

    async def read() -> None:
        nonlocal longest_s
        last_s = time.perf_counter()
        while await reader.read(65_536):
            now_s = time.perf_counter()
            longest_s, last_s = max(longest_s, now_s - last_s), now_s

    reading = asyncio.create_task(read())
    figures = []
    try:
        await asyncio.sleep(1)
        for page in ("", *PAGES):
            longest_s = 0.0
            began_s = time.perf_counter()
            if page:
                async with session.get(page) as answer:
                    await answer.read()
                    if not answer.ok:
                        raise ConnectionError(f"{page} answered {answer.status}")
            else:
                await asyncio.sleep(2)
            took_s = time.perf_counter() - began_s
            await asyncio.sleep(0.3)
            figures.append(Figure(f"longest pause, {page or 'nothing asked'}", longest_s * 1000, "ms"))
            if page:
                figures.append(Figure(f"  {page} took", took_s * 1000, "ms"))
    finally:
        reading.cancel()
        writer.close()
    return figures
