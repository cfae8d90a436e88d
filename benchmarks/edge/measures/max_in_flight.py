"""50 calls at once for a server with ``max_in_flight: 5``: how many were in flight there, and what became of them."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from benchmarks.edge.edge import HOST, Edge, Figure, Running
from tests.support.measured import gateways
from tests.support.measured.serving import Serving

CALLS, LIMIT = 50, 5
ANSWER_S = 0.3  # so that not all can be answered within the two seconds for which a call waits
FULL = 429


_EVENTS = (
    b'data: {"id":"1","choices":[{"index":0,"delta":{"role":"assistant","content":"Hello"}}]}\n\n'
    b'data: {"id":"1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(_EVENTS) + _EVENTS


async def measure(edge: Edge) -> list[Figure]:
    figures = []
    for name, number in (("alone", 1), ("race of two", 2)):
        counts = [Counter[str]() for _ in range(number)]
        async with contextlib.AsyncExitStack() as stack:
            urls = [await stack.enter_async_context(_serving(each)) for each in counts]
            gateway = await stack.enter_async_context(edge.gateway(_settings(urls)))
            statuses, retries = await _crowd(gateway)
        figures += [
            Figure(f"{name}: most in flight at a server", float(max(each["most"] for each in counts))),
            Figure(f"{name}: answered", float(statuses.count(200))),
            Figure(f"{name}: refused with 429", float(statuses.count(FULL))),
            Figure(f"{name}: of these with retry-after", float(retries)),
        ]
    return figures


class _Server(Serving):
    """Answers each request after ``ANSWER_S``, and counts those under way with its own eyes."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self._counts = counts
        self._is_busy = False

    def answer(self, request: bytes) -> None:
        """Count it; who asks hangs up, or waits."""
        del request
        self._is_busy = True
        self._counts["now"] += 1
        self._counts["most"] = max(self._counts["most"], self._counts["now"])
        self.after(ANSWER_S, self._finish)

    def lost(self) -> None:
        """Count it as ended."""
        self._counts["now"] -= self._is_busy
        self._is_busy = False

    def _finish(self) -> None:
        self.lost()
        self.write(_ANSWER)


@asynccontextmanager
async def _serving(counts: Counter[str]) -> AsyncIterator[str]:
    """Serve until the block ends, on the address that is given."""
    server = await asyncio.get_running_loop().create_server(lambda: _Server(counts), HOST, 0)
    async with server:
        yield f"http://{HOST}:{server.sockets[0].getsockname()[1]}/v1"


def _settings(base_urls: list[str]) -> dict[str, Any]:
    names = [f"own-{number}" for number in range(len(base_urls))]
    race = {"mode": "race", "width": len(names)} if len(names) > 1 else {"mode": "single"}
    return {
        "providers": {name: {"base_url": url} for name, url in zip(names, base_urls, strict=True)},
        "models": {
            "full": {
                "deployments": [{"deployment": f"{name}/m", "max_in_flight": LIMIT} for name in names],
                "race": race,
            }
        },
    }


async def _crowd(gateway: Running) -> tuple[list[int], int]:
    """Return each call's status, and how many refusals said when to come back."""
    url = f"http://{HOST}:{gateway.port}{gateways.PATH}"
    body = {"model": "full", "stream": True, "messages": [{"role": "user", "content": "?"}]}

    async def call(http: aiohttp.ClientSession) -> tuple[int, bool]:
        async with http.post(url, json=body, headers=gateway.headers) as response:
            await response.read()
            return response.status, "retry-after" in response.headers

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        answers = await asyncio.gather(*(call(http) for _ in range(CALLS)))
    return [status for status, _ in answers], sum(retry for status, retry in answers if status == FULL)
