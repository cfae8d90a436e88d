"""The fleet benchmark's provider over real sockets: what it draws, logs and counts, and how it misbehaves when told."""

import asyncio
import io
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random

import pytest

from benchmarks.fleet.course import Answer, Clients
from benchmarks.fleet.provider import Connection, Provider
from benchmarks.fleet.world import World
from providers.simulator.persona import Fate

WORLD = World("calm", 3)
QUICK = min(
    (number for number in range(500) if WORLD.draw("alpha", number, 0.0).fate is Fate.ANSWER),
    key=lambda number: WORLD.draw("alpha", number, 0.0).ttft_s,
)

Call = Callable[[], Awaitable[Answer]]


class Log(io.StringIO):
    """What the provider logs, and when it did."""

    def __init__(self) -> None:
        super().__init__()
        self.written = asyncio.Event()

    def write(self, line: str) -> int:
        self.written.set()
        return super().write(line)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def asked() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
def provider(log: Log, asked: asyncio.Event) -> Provider:
    def age_s() -> float:
        asked.set()
        return 1.0

    return Provider("alpha", WORLD, age_s, log)


@pytest.fixture
async def call(provider: Provider) -> AsyncIterator[Call]:
    clients = Clients(Random(1))
    server = await asyncio.get_running_loop().create_server(lambda: Connection(provider), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield lambda: clients.call([port], "fleet-model", QUICK, "Hello", time.perf_counter())
        clients.close()


async def test_an_answer_is_whole_not_sooner_than_drawn_and_logged(provider: Provider, log: Log, call: Call) -> None:
    answer = await call()

    drawn = WORLD.draw("alpha", QUICK, 1.0)
    assert answer.whole
    assert answer.ttft_s is not None
    assert answer.ttft_s > drawn.ttft_s - 0.002  # the loop's own clock has milliseconds
    assert provider.counts == {"requests": 1, "answered": 1}
    assert log.getvalue().startswith(f"{QUICK},1.0,{drawn.ttft_s * 1000!r},answer,answered,")


async def test_a_429_machine_says_when_to_come_back(provider: Provider, call: Call) -> None:
    provider.fault = "limit"

    answer = await call()

    assert (answer.status, answer.whole) == (429, False)
    assert provider.counts == {"requests": 1, "limited": 1}


async def test_who_hangs_up_on_a_hung_provider_is_counted(
    provider: Provider, log: Log, asked: asyncio.Event, call: Call
) -> None:
    provider.fault = "hang"
    waiting = asyncio.ensure_future(call())
    await asked.wait()

    waiting.cancel()
    await log.written.wait()

    assert provider.counts == {"requests": 1, "cut_before_first_token": 1}
