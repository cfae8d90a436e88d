"""The load generator, the mock upstream and the delaying relay that tests and benchmarks share, over real sockets."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from tests.patience import PATIENCE_S
from tests.support.measured import gateways
from tests.support.measured.delay import NearEnd
from tests.support.measured.load import LoadError, Order, Question, carry_out
from tests.support.measured.mock_upstream import Connection


class Told(Counter[str]):
    """Counts that say when they change."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = asyncio.Event()

    def __setitem__(self, what: str, number: int) -> None:
        super().__setitem__(what, number)
        self.changed.set()


class Mock:
    """The mock upstream on a free port, and what it counted."""

    def __init__(self) -> None:
        self.counts = Told()
        self.port = 0
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self.counts), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self.until("hung_up", self.counts["connections"])

    async def until(self, what: str, number: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.counts[what] < number:
                self.counts.changed.clear()
                await self.counts.changed.wait()


@pytest.fixture
async def mock() -> AsyncIterator[Mock]:
    made = Mock()
    await made.start()
    yield made
    await made.close()


def question(port: int, behaviour: str = "burst", *, streamed: bool = True, model: str = "m") -> Question:
    return Question(port=port, path=f"/{behaviour}{gateways.PATH}", model=model, streamed=streamed)


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_closed_loop_makes_all_calls_over_as_many_connections_as_it_may(mock: Mock, streamed: bool) -> None:
    outcome = await carry_out(Order(question=question(mock.port, streamed=streamed), calls=30, concurrency=3))

    assert len(outcome.latencies_ms) == 30
    assert (mock.counts["answered"], mock.counts["connections"]) == (30, 3)


async def test_a_crowd_calls_once_each_over_connections_of_its_own(mock: Mock) -> None:
    outcome = await carry_out(Order(question=question(mock.port), calls=20, concurrency=20, together=True))

    assert len(outcome.latencies_ms) == 20
    assert (mock.counts["answered"], mock.counts["connections"]) == (20, 20)


async def test_an_open_loop_opens_another_connection_rather_than_wait_for_an_answer(mock: Mock) -> None:
    order = Order(question=question(mock.port, "late"), calls=30, concurrency=1, rate_per_s=100_000)

    outcome = await carry_out(order)

    assert len(outcome.latencies_ms) == mock.counts["answered"] == 30
    assert mock.counts["connections"] > 1


async def test_a_paced_answer_is_whole_when_its_last_token_is_there(mock: Mock) -> None:
    outcome = await carry_out(Order(question=question(mock.port, "paced"), calls=2, concurrency=2))

    assert len(outcome.latencies_ms) == 2
    assert outcome.wall_s * 1000 > max(outcome.latencies_ms)


async def test_an_answer_that_is_not_what_was_asked_for_ends_the_run(mock: Mock) -> None:
    raced = Question(port=mock.port, path=f"/burst{gateways.PATH}", model="m", streamed=True, launched=2)

    with pytest.raises(LoadError, match="not raced as it should be"):
        await carry_out(Order(question=raced, calls=1, concurrency=1))


async def test_a_prompt_is_as_long_as_it_should_be_and_arrives_whole(mock: Mock) -> None:
    long = Question(port=mock.port, path=f"/burst{gateways.PATH}", model="m", streamed=True, prompt_bytes=400_000)

    assert 400_000 < len(long.rendered()) < 400_500
    await carry_out(Order(question=long, calls=2, concurrency=1))
    assert mock.counts["answered"] == 2


async def test_the_mock_counts_whoever_hangs_up_before_the_first_byte_and_after(mock: Mock) -> None:
    for behaviour, what in (("never", "cut_before_first_byte"), ("held", "cut_later")):
        reader, writer = await asyncio.open_connection("127.0.0.1", mock.port)
        begun = mock.counts["begun"]
        writer.write(question(mock.port, behaviour).rendered())
        await mock.until("begun", begun + 1)
        if behaviour == "held":
            await reader.readuntil(b'" token"')
        writer.transport.abort()
        await mock.until(what, 1)

    assert mock.counts["answered"] == 0


async def test_a_behaviour_can_be_named_by_the_model(mock: Mock) -> None:
    await carry_out(Order(question=question(mock.port, "named", model="burst"), calls=1, concurrency=1))

    assert mock.counts["answered"] == 1


async def test_a_relay_passes_everything_on_in_order_and_the_end_as_well(mock: Mock) -> None:
    loop = asyncio.get_running_loop()
    relay = await loop.create_server(lambda: NearEnd(mock.port, 0.001), "127.0.0.1", 0)
    port = relay.sockets[0].getsockname()[1]

    outcome = await carry_out(Order(question=question(port, "paced"), calls=2, concurrency=1))
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(question(port, "never").rendered())
    await mock.until("begun", 3)
    writer.transport.abort()
    await mock.until("cut_before_first_byte", 1)

    assert len(outcome.latencies_ms) == 2
    relay.close()
