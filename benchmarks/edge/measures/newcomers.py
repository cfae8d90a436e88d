"""1,000 kept connections that call without a pause, a race of two each, and new connections meanwhile."""

import asyncio
import contextlib
from statistics import median

from benchmarks.edge.edge import Edge, Figure, Running, ask, get
from benchmarks.harness.report import quantile
from tests.support.measured import load
from tests.support.measured.load import Order, asking
from tests.support.measured.servers import count

CALLERS, CALLS = 1000, 6000
PACED_CALLS, PACED_CALLERS, TOKENS = 400, 100, 100
MODEL = "edge-race"  # its upstreams' first bytes come after 60 and 100 ms
SETTINGS = {
    "models": {
        MODEL: {
            "deployments": ["near/benchmark-model", "late/benchmark-model"],
            "race": {"mode": "race", "width": 2, "budget": 2, "max_prompt_tokens": 1_000_000},
        }
    }
}
PAUSE_S = 0.1  # between newcomers
SETTLING_S = 3.0  # until all callers are connected and in their rhythm


async def measure(edge: Edge) -> list[Figure]:
    async with edge.gateway(SETTINGS) as gateway:
        idle_mb = gateway.rss_mb()
        question = asking(gateway.port, gateway.headers, MODEL)
        await asyncio.to_thread(load.run, Order(question=question, calls=200, concurrency=20))
        asked = count(edge.upstream, "begun")
        before_s = gateway.cpu_s()
        crowd = asyncio.create_task(
            asyncio.to_thread(load.run, Order(question=question, calls=CALLS, concurrency=CALLERS, together=True))
        )
        healths, chats = await _newcomers(gateway, crowd)
        outcome = await crowd
        cpu_s = gateway.cpu_s() - before_s
        return [
            Figure("kept connections, TTFT p50", quantile(outcome.latencies_ms, 0.5), "ms"),
            Figure("kept connections, TTFT max", max(outcome.latencies_ms), "ms"),
            *_told("new connection, /health/live", healths),
            *_told("new connection, chat", chats),
            Figure(
                "new / kept, p50",
                median(healths + chats) / quantile(outcome.latencies_ms, 0.5) if healths and chats else None,
                "x",
            ),
            Figure("calls per second", CALLS / outcome.wall_s),
            Figure("upstream requests of a call", (count(edge.upstream, "begun") - asked) / (CALLS + len(chats))),
            Figure("CPU of a call", cpu_s / (CALLS + len(chats)) * 1000, "ms"),
            Figure("CPU of a token, streams at 200 tok/s", await _token_us(gateway), "µs"),
            Figure("start to first answer", gateway.started_s, "s"),
            Figure("resident, idle", idle_mb, "MB"),
            Figure("resident after the crowd", gateway.rss_mb(), "MB"),
        ]


async def _newcomers(gateway: Running, crowd: asyncio.Task[load.Outcome]) -> tuple[list[float], list[float]]:
    """Come, one after the other, with a question of health and a call in turn; return the times in milliseconds."""
    chat = asking(gateway.port, {**gateway.headers, "connection": "close"}, MODEL).rendered()
    found: dict[bytes, list[float]] = {get("/health/live"): [], chat: []}
    visits: set[asyncio.Task[None]] = set()

    async def visit(request: bytes) -> None:
        answer = await ask(gateway.port, request)
        if answer.status == 200 and not crowd.done():
            found[request].append(answer.first_byte_s * 1000)

    await asyncio.wait([crowd], timeout=SETTLING_S)
    while not crowd.done():
        visits.update(asyncio.create_task(visit(request)) for request in found)
        await asyncio.wait([crowd], timeout=PAUSE_S)
    for each in visits:
        with contextlib.suppress(OSError, TimeoutError):
            await each
    health, called = found.values()
    return health, called


async def _token_us(gateway: Running) -> float:
    question = asking(gateway.port, gateway.headers, "paced-race")
    order = Order(question=question, calls=PACED_CALLS, concurrency=PACED_CALLERS)
    before_s = gateway.cpu_s()
    await asyncio.to_thread(load.run, order)
    return (gateway.cpu_s() - before_s) / (PACED_CALLS * TOKENS) * 1e6


def _told(name: str, taken_ms: list[float]) -> list[Figure]:
    return [
        Figure(f"{name}, p50", median(taken_ms) if taken_ms else None, "ms"),
        Figure(f"{name}, max", max(taken_ms) if taken_ms else None, "ms"),
    ]
