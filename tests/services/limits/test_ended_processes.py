"""What processes that have ended leave in Redis."""

import pytest
from redis.asyncio import Redis

from gateway.limits import USUAL
from gateway.limits.lease_scripts import LEASE
from tests.patience import eventually
from tests.services.limits.test_shared_leases import Process, spend, started


async def test_of_dead_processes_nothing_is_kept_in_the_slots_of_a_deployment(redis_url: str) -> None:
    async with Redis.from_url(redis_url, decode_responses=True) as redis:

        async def lease(process: str) -> None:
            told = ("0.05", "0.1", "300", "0", "1", "1", "0", "1")
            await redis.eval(LEASE, 2, "q", "q:turns", process, "0", "1", "0", "9", *told)

        dead = {f"p{number}" for number in range(5)}
        for process in dead:
            await lease(process)

        async def none_is_kept() -> bool:  # Redis' clock says when
            await lease("alive")
            return not dead & {*await redis.hkeys("q")}

        await eventually(none_is_kept)
        assert {*await redis.hkeys("q")} == {"alive", "sums"}


async def test_what_a_process_has_used_that_ended_counts_without_a_field_of_its_own(redis_url: str) -> None:
    limits = {"usd_per_day": 10.0, "max_parallel": 5.0}
    async with Redis.from_url(redis_url, decode_responses=True) as redis:
        for number in range(3):
            one = Process(redis_url, number, USUAL)
            await one.leases.start()
            one.end(await started(one, limits, usd=1.0), 1.0)
            await one.leases.close()
        for key in await redis.keys("holeshot:limit:*"):
            assert {*await redis.hkeys(key)} == {"base", "sums"}
    last = Process(redis_url, 3, USUAL)
    await last.leases.start()
    assert await spend(last, limits, usd=0.5, cost=0.5) == pytest.approx(7.0)
    await last.leases.close()
