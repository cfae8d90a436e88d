"""Limits of several processes on one real Redis."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from itertools import count

import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs

from gateway.limits.errors import LimitReached
from gateway.limits.lease_script import USUAL, Times
from gateway.limits.limits import Limits, Payer, Use
from gateway.limits.shared_leases import SharedLeases
from gateway.steering.redis_commands import connect
from tests.services.relay import Relay
from tests.services.servers import redis_server
from tests.unit.limits.test_limits import attempt, record

MODEL = Payer("llama", "llama")
QUICK = Times(lease_s=0.3, process_s=0.5, silent_s=0.4, restoring_s=0.2, round_s=0.05, repeat_s=0.1)
PATIENCE_S = 30.0


class Process:
    """One gateway process and its calls."""

    def __init__(self, url: str, number: int, times: Times) -> None:
        self.redis = connect(url, 1.0)
        self.leases = SharedLeases(
            self.redis, clock=time.monotonic, unix_clock=time.time, new_id=lambda: f"p{number}", times=times
        )
        self.limits = Limits(self.leases, clock=time.monotonic, unix_clock=time.time)
        self._numbers = count()
        self._name = number

    async def begin(self, limits: dict[str, float], **use: float) -> str:
        call_id = f"{self._name}-{next(self._numbers)}"
        await self.limits.hold(call_id, "team", limits, MODEL, Use(**use))
        return call_id

    def end(self, call_id: str, usd: float = 0.0) -> None:
        self.limits.call_finished(record(call_id, attempt(usd), tokens=(0, 0)))

    async def kill(self) -> None:
        """End without a word, as a process does that is killed."""
        assert self.leases._task is not None  # the task is its life
        self.leases._task.cancel()
        await self.redis.aclose()


NewProcess = Callable[..., Awaitable[Process]]


@pytest.fixture
def own_redis() -> Iterator[str]:
    with redis_server() as url:
        yield url


@pytest.fixture
async def process(own_redis: str) -> AsyncIterator[NewProcess]:
    numbers = count(1)
    async with AsyncExitStack() as stack:

        async def make(times: Times = USUAL, url: str = own_redis) -> Process:
            made = Process(url, next(numbers), times)
            await made.leases.start()
            stack.push_async_callback(made.leases.close)
            return made

        yield make


def reported(process: Process) -> float:
    """What Redis was last told that the process has spent."""
    (quota,) = process.limits._clients["team"].quotas(time.time())
    return 0.0 if quota.reported is None else quota.reported.used


async def until(holds: Callable[[], bool]) -> None:
    """Return once it holds: it is for another process, or for Redis' clock, to make it true."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


async def spend(process: Process, limits: dict[str, float], *, usd: float, cost: float) -> float:
    """Make calls until the limit is reached for good; return what they cost."""
    spent, refused = 0.0, 0
    async with asyncio.timeout(PATIENCE_S):
        while refused < 20:
            try:
                call = await process.begin(limits, usd=usd)
            except LimitReached:
                refused += 1
                await asyncio.sleep(0.05)
                continue
            await asyncio.sleep(0)
            process.end(call, cost)
            spent += cost
    return spent


async def test_all_processes_together_use_a_limit_up_and_do_not_pass_it(process: NewProcess) -> None:
    processes = [await process() for _ in range(4)]
    spent = await asyncio.gather(*(spend(each, {"usd_per_day": 10.0}, usd=0.01, cost=0.01) for each in processes))
    assert sum(spent) <= 10.0 + 1e-6
    assert sum(spent) >= 9.9


async def test_one_process_alone_may_use_all_of_it(process: NewProcess) -> None:
    one, _, _ = [await process() for _ in range(3)]
    assert await spend(one, {"usd_per_day": 5.0}, usd=0.05, cost=0.05) == pytest.approx(5.0)


async def test_calls_in_parallel_are_limited_over_all_processes(process: NewProcess) -> None:
    processes = [await process(QUICK) for _ in range(3)]
    running: list[tuple[Process, str]] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(running) < 5:
            for each in processes:
                try:
                    running.append((each, await each.begin({"max_parallel": 5.0})))
                except LimitReached:
                    await asyncio.sleep(0.01)
    assert len(running) == 5
    for each in processes:
        with pytest.raises(LimitReached):
            await each.begin({"max_parallel": 5.0})
    owner, call = running.pop()
    owner.end(call)
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await processes[0].begin({"max_parallel": 5.0})
                break
            except LimitReached:
                await asyncio.sleep(0.01)


async def test_a_killed_process_gives_back_what_it_held_but_not_what_it_spent(process: NewProcess) -> None:
    dead, alive = await process(QUICK), await process(QUICK)
    limits = {"usd_per_day": 10.0}
    dead.end(await dead.begin(limits, usd=4.0), 4.0)
    await dead.begin(limits, usd=5.0)
    await until(lambda: reported(dead) == 4.0)
    with pytest.raises(LimitReached):
        await alive.begin(limits, usd=3.0)
    await dead.kill()
    assert await spend(alive, limits, usd=0.5, cost=0.5) == pytest.approx(6.0)


async def test_after_a_flush_nothing_is_spent_twice(process: NewProcess, own_redis: str) -> None:
    dead = await process(QUICK)
    limits = {"usd_per_day": 10.0}
    dead.end(await dead.begin(limits, usd=2.0), 2.0)
    await until(lambda: reported(dead) == 2.0)
    await dead.kill()
    processes = [await process(QUICK) for _ in range(2)]
    for each in processes:
        each.end(await each.begin(limits, usd=1.0), 1.0)
    await asyncio.sleep(3 * QUICK.silent_s)  # Redis' clock decides that the dead one is silent
    async with Redis.from_url(own_redis) as redis:
        await redis.flushall()
    spent = await asyncio.gather(*(spend(each, limits, usd=0.1, cost=0.1) for each in processes))
    assert 4.0 + sum(spent) <= 10.0 + 1e-6
    assert 4.0 + sum(spent) >= 9.5


async def test_without_redis_each_process_has_its_share_of_what_was_left(own_redis: str, process: NewProcess) -> None:
    host, port = own_redis.removeprefix("redis://").partition("/")[0].split(":")
    relay = Relay(host, int(port))
    await relay.listen()
    try:
        processes = [await process(QUICK, f"redis://127.0.0.1:{relay.port}/0") for _ in range(4)]
        limits = {"usd_per_day": 8.0}
        for each in processes:
            each.end(await each.begin(limits, usd=1.0), 1.0)
        await until(lambda: all(each.leases.processes == 4 and reported(each) == 1.0 for each in processes))
        await asyncio.sleep(4 * QUICK.round_s)  # all have heard of what the others reported
        relay.hang()
        with capture_logs() as logs:
            spent = await asyncio.gather(*(spend(each, limits, usd=0.1, cost=0.1) for each in processes))
        assert 4.0 + sum(spent) <= 8.0 + 1e-6
        assert min(spent) >= 0.5
        assert "limits.redis_away" in [log["event"] for log in logs]
        relay.resume()
        await until(lambda: all(each.leases.connected for each in processes))
        more = await asyncio.gather(*(spend(each, limits, usd=0.1, cost=0.1) for each in processes))
        assert 4.0 + sum(spent) + sum(more) == pytest.approx(8.0, abs=0.15)
    finally:
        await relay.cut()


async def test_garbage_in_redis_is_overwritten(process: NewProcess, own_redis: str) -> None:
    one = await process(QUICK)
    async with Redis.from_url(own_redis) as redis:
        await redis.set("holeshot:limits:processes", "x")
        await one.begin({"usd_per_day": 1.0}, usd=0.5)
        for key in await redis.keys("holeshot:limit:*"):
            await redis.delete(key)
            await redis.set(key, "not a hash")
    assert await spend(one, {"usd_per_day": 1.0}, usd=0.1, cost=0.1) == pytest.approx(0.5)
