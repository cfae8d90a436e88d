"""Conversations of 7 MB over three WebSockets, one turn after the other, beside another client's short calls."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from benchmarks.edge.edge import HOST, Edge, Figure, Running, ask
from tests.support.measured.gateways import hashed
from tests.support.measured.load import asking
from tests.support.measured.servers import ROOT
from tests.support.servers import free_port

SOCKETS, SIZE = 3, 7_000_000
MODEL = "long"
TALKER = "hs-talker"
CALLS, EACH_S = 400, 0.025
WARM_UP = 40


async def measure(edge: Edge) -> list[Figure]:
    provider = free_port()
    settings = {
        "clients": {"talker": {"key_sha256": hashed(TALKER)}},
        "providers": {
            "talker": {
                "kind": "openai_compatible",
                "base_url": f"http://{HOST}:{provider}/v1",
                "api_key": "sk-mock-talker",
                "apis": ["responses"],
            }
        },
        "models": {MODEL: {"deployments": ["talker/m"], "race": {"mode": "single"}}},
    }
    async with edge.gateway(settings) as gateway:
        await _waits(gateway, WARM_UP)
        alone = await _waits(gateway, CALLS)
        async with _talking(gateway, provider) as turns:
            began = len(turns)
            beside = await _waits(gateway, CALLS)
            number = len(turns) - began
    ratio = _p99(beside) / _p99(alone)
    return [
        Figure("others' p99, alone", _p99(alone) * 1000, "ms"),
        Figure(f"others' p99, beside {SOCKETS} conversations of {SIZE // 10**6} MB", _p99(beside) * 1000, "ms"),
        Figure("others' p99, beside them over alone", ratio),
        Figure("turns of them meanwhile", float(number)),
    ]


async def _waits(gateway: Running, number: int) -> list[float]:
    """Call so often, one call each 25 ms whatever becomes of the others; return the seconds to each first byte."""
    request = asking(gateway.port, {**gateway.headers, "connection": "close"}, "burst-single").rendered()
    calls = []
    for _ in range(number):
        calls.append(asyncio.create_task(ask(gateway.port, request)))
        await asyncio.sleep(EACH_S)
    answers = await asyncio.gather(*calls)
    if bad := {each.status for each in answers} - {200}:
        raise ConnectionError(f"another client's calls got {bad}")
    return [each.first_byte_s for each in answers]


@asynccontextmanager
async def _talking(gateway: Running, provider: int) -> AsyncIterator[list[float]]:
    """Have the conversations go on; yield when each turn ended, so far, once all have begun."""
    arguments = (str(provider), str(gateway.port), TALKER, MODEL, str(SIZE), str(SOCKETS))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.edge.talkers", *arguments), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    turns: list[float] = []
    assert process.stdout is not None
    output = process.stdout
    await output.readline()

    async def count() -> None:
        while await output.readline():
            turns.append(time.monotonic())

    counting = asyncio.create_task(count())
    try:
        while len(turns) < 2 * SOCKETS:
            if counting.done():
                raise ConnectionError("the conversations have ended")
            await asyncio.sleep(EACH_S)
        yield turns
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await counting


def _p99(waits: list[float]) -> float:
    return sorted(waits)[len(waits) * 99 // 100]
