"""The provider and the clients of the limits benchmark, over real sockets and without a gateway between them."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from benchmarks.limits.course import Clients
from benchmarks.limits.provider import FIRST_S, TOKEN_S, Connection, Seen
from benchmarks.limits.trials import PROMPT_TOKENS, Job, Use
from tests.patience import until
from tests.support.servers import free_port


@pytest.fixture
def log() -> list[Seen]:
    return []


@pytest.fixture
async def port(log: list[Seen]) -> AsyncIterator[int]:
    server = await asyncio.get_running_loop().create_server(lambda: Connection(log), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_an_answer_has_the_length_that_its_call_asks_for_and_says_so(port: int, log: list[Seen]) -> None:
    clients = Clients([port], [1], {"rpm": ("m", "hs-key")})
    jobs = [Job(number, "rpm", 0.0, tokens, 0.5) for number, tokens in enumerate((1, 20))]
    made = await clients.make(jobs, time.monotonic())
    clients.close()
    assert [each.use for each in made] == [Use(PROMPT_TOKENS, 1), Use(PROMPT_TOKENS, 20)]
    assert [each.status for each in made] == [200, 200]
    assert sorted(each.number for each in log) == [0, 1]
    for each in log:
        assert each.is_whole
        assert each.first_s is not None
        assert each.ended_s is not None
        assert each.first_s - each.arrived_s >= FIRST_S * 0.9
        assert each.ended_s - each.first_s >= TOKEN_S * 0.9


async def test_a_call_that_is_cut_ends_for_the_provider_too(port: int, log: list[Seen]) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    body = b'{"user": "limits-7-10000"}'
    writer.write(b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
    await until(lambda: log)
    writer.transport.abort()
    await until(lambda: log[0].ended_s is not None)
    assert (log[0].number, log[0].is_whole) == (7, False)


async def test_a_replica_that_is_away_is_left_to_the_others(port: int) -> None:
    clients = Clients([free_port(), port], [1, 1], {"rpm": ("m", "hs-key")})
    made = await clients.make([Job(number, "rpm", 0.0, 1, 0.0) for number in range(3)], time.monotonic())
    clients.close()
    assert [(each.replica, each.status) for each in made] == [(1, 200)] * 3
