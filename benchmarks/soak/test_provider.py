"""The soak's simulated providers over real sockets: each plays the fault that a prompt names, once or everywhere."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from benchmarks.soak.jobs import Ending, Fault, Job, Kind, asked, judged
from benchmarks.soak.provider import Connection, Fleet

STREAM, VECTORS = Kind("raced", streamed=True), Kind("relayed")
PLAYED = [each for each in Fault if each not in {Fault.REFUSED, Fault.LEAVES, Fault.HANG, Fault.STALL}]
SILENT = [Fault.HANG, Fault.STALL]


class Told(set[int]):
    """Numbers of calls, which says when one arrives."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived = asyncio.Event()

    def add(self, number: int) -> None:
        super().add(number)
        self.arrived.set()


@pytest.fixture
def arrivals() -> Told:
    return Told()


@pytest.fixture
async def port(arrivals: Told) -> AsyncIterator[int]:
    fleet = Fleet(1)
    fleet.calls = arrivals
    server = await asyncio.get_running_loop().create_server(lambda: Connection(fleet), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def ask(port: int, job: Job, provider: str = "swift") -> Ending:
    path, body = asked(job)
    url = f"http://127.0.0.1:{port}/{provider}{path}"
    try:
        async with aiohttp.ClientSession() as session, session.post(url, json=body) as response:
            return judged(job, response.status, await response.read())
    except aiohttp.ClientError:
        return Ending.CUT


@pytest.mark.parametrize("kind", [STREAM, VECTORS])
async def test_who_is_to_play_nothing_answers(port: int, kind: Kind) -> None:
    assert await ask(port, Job(1, kind)) is Ending.ANSWERED


@pytest.mark.parametrize("fault", PLAYED)
async def test_a_fault_that_is_met_once_is_met_by_who_asks_first(port: int, fault: Fault) -> None:
    job = Job(1, STREAM, fault)
    met = await ask(port, job)
    assert (met is Ending.ANSWERED) == (fault is Fault.GARBLED)  # whose other events are whole
    assert await ask(port, job, "slow") is Ending.ANSWERED


@pytest.mark.parametrize("fault", [Fault.BROKEN, Fault.ENDS_EARLY, Fault.FAILS, Fault.RESET])
async def test_a_fault_of_everywhere_is_met_at_each_provider(port: int, fault: Fault) -> None:
    for provider in ("swift", "slow", "moody"):
        assert await ask(port, Job(1, VECTORS, fault, is_everywhere=True), provider) is not Ending.ANSWERED


@pytest.mark.parametrize("fault", SILENT)
async def test_who_is_silent_stays_so(port: int, arrivals: Told, fault: Fault) -> None:
    waiting = asyncio.ensure_future(ask(port, Job(1, STREAM, fault)))
    await arrivals.arrived.wait()
    assert await ask(port, Job(1, STREAM, fault), "slow") is Ending.ANSWERED
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
