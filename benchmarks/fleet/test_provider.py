"""The fleet benchmark's provider over real sockets: what it draws, and how it misbehaves when told."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random

import pytest

from benchmarks.fleet.course import Answer, Clients
from benchmarks.fleet.provider import Connection, Provider
from benchmarks.fleet.world import World
from providers.simulator import Fate

WORLD = World("calm", 3)
QUICK = min(
    (number for number in range(500) if WORLD.draw("alpha", number, 0.0).fate is Fate.ANSWER),
    key=lambda number: WORLD.draw("alpha", number, 0.0).ttft_s,
)

Call = Callable[[], Awaitable[Answer]]


@pytest.fixture
def provider() -> Provider:
    return Provider("alpha", WORLD, lambda: 1.0)


@pytest.fixture
async def call(provider: Provider) -> AsyncIterator[Call]:
    clients = Clients(Random(1))
    server = await asyncio.get_running_loop().create_server(lambda: Connection(provider), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield lambda: clients.call([port], "fleet-model", QUICK, "Hello", time.perf_counter())
        clients.close()


async def test_an_answer_is_whole_and_not_sooner_than_drawn(call: Call) -> None:
    answer = await call()

    drawn = WORLD.draw("alpha", QUICK, 1.0)
    assert answer.whole
    assert answer.ttft_s is not None
    assert answer.ttft_s > drawn.ttft_s - 0.002  # the loop's own clock has milliseconds


async def test_a_429_machine_says_when_to_come_back(provider: Provider, call: Call) -> None:
    provider.fault = "limit"

    answer = await call()

    assert (answer.status, answer.whole) == (429, False)
