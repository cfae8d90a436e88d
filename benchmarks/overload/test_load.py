"""The load of the overload benchmark, over real sockets: answers, refusals, and calls that never end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from benchmarks.overload.load import Order, carry_out
from tests.patience import PATIENCE_S
from tests.support.measured.answers import STREAM
from tests.support.measured.load import LoadError, Question
from tests.support.measured.serving import Requests

REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\n{}"


@asynccontextmanager
async def serving(answer: Callable[[int], bytes]) -> AsyncIterator[int]:
    """Serve what ``answer`` returns for the number of a request; yield the port."""
    number = 0

    class Connection(asyncio.Protocol):
        def __init__(self) -> None:
            self._requests = Requests()

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self._transport = transport

        def data_received(self, data: bytes) -> None:
            nonlocal number
            if self._requests.next(data) is not None:
                number += 1
                self._transport.write(answer(number))

    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def order(port: int, **more: float) -> Order:
    question = Question(port=port, path="/v1/chat/completions", model="m", streamed=True)
    return Order(question=question, **{"for_s": 0.2, "patience_s": PATIENCE_S, **more})  # type: ignore[arg-type] # fields of an order


async def test_answers_and_refusals_are_told_apart() -> None:
    async with serving(lambda number: STREAM if number % 2 else REFUSAL) as port:
        outcome = await carry_out(order(port, rate_per_s=200.0))
    assert len(outcome.ended) == len(outcome.due) > 10
    statuses = [each.status for each in outcome.ended]
    assert abs(statuses.count(200) - statuses.count(503)) <= 1
    assert all(0 < each.ttft_s <= each.ended_s - each.due_s for each in outcome.ended)


async def test_a_closed_loop_keeps_to_its_connections() -> None:
    async with serving(lambda _: STREAM) as port:
        outcome = await carry_out(order(port, connections=2, for_s=1.0))
    assert len(outcome.ended) == len(outcome.due) > 2


async def test_calls_that_never_end_are_due_and_have_no_end() -> None:
    async with serving(lambda _: b"") as port:
        outcome = await carry_out(order(port, rate_per_s=100.0, patience_s=0.05))
    assert outcome.due
    assert outcome.ended == []


async def test_a_client_that_waits_too_long_hangs_up() -> None:
    async with serving(lambda _: b"") as port:
        outcome = await carry_out(order(port, rate_per_s=100.0, gives_up_s=0.05, patience_s=600.0))
    assert outcome.due
    assert outcome.ended == []


async def test_anything_else_breaks_it_off() -> None:
    async with serving(lambda _: REFUSAL.replace(b"503", b"500")) as port:
        with pytest.raises(LoadError, match="neither a whole answer nor a refusal"):
            await carry_out(order(port, rate_per_s=100.0))
