"""Two ledgers beside one Redis are told, and neither several replicas of one nor a ledger that went."""

from typing import Any

import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs

from gateway.app.ledgers_on_redis import KEY, STALE, LedgersOnRedis, named
from gateway.topology import connect
from tests.app.gateway.running_gateway import serving
from tests.patience import eventually


class Clock:
    def __init__(self) -> None:
        self.now_s = 1e9

    def __call__(self) -> float:
        self.now_s += 20.0
        return self.now_s


class Processes:
    """Processes of ledgers, by their ids, that look in turn."""

    def __init__(self, redis_url: str, *ledgers: str) -> None:
        self._clock = Clock()
        self._nodes = connect(redis_url)
        self.each = [self.add(ledger) for ledger in ledgers]

    def add(self, ledger: str) -> LedgersOnRedis:
        async def ledger_id() -> str:
            return ledger

        return LedgersOnRedis(self._nodes, ledger_id, unix_clock=self._clock)

    async def look(self, times: int = 1) -> list[Any]:
        with capture_logs() as log:
            for _ in range(times):
                for each in self.each:
                    await each.look()
        return [(each["event"], each["ledger"]) for each in log]

    async def close(self) -> None:
        await self._nodes.aclose()


@pytest.mark.usefixtures("redis")
async def test_several_replicas_of_one_ledger_are_told_nothing(redis_url: str) -> None:
    processes = Processes(redis_url, "a", "a", "a")
    assert await processes.look(2 * STALE) == []
    assert not any(each.has_others for each in processes.each)
    await processes.close()


@pytest.mark.usefixtures("redis")
async def test_two_ledgers_that_are_in_use_are_told_to_both_once_an_hour_and_until_one_has_gone(redis_url: str) -> None:
    processes = Processes(redis_url, "a", "b")
    told = await processes.look(2 * STALE)
    assert sorted(told) == sorted(("ledger.two_on_redis", named(ledger)) for ledger in "ab")
    assert all(each.has_others for each in processes.each)
    del processes.each[1]
    assert await processes.look(STALE + 2) == [("ledger.former_on_redis", named("a"))]
    assert not processes.each[0].has_others
    assert await processes.look(STALE) == []
    await processes.close()


async def test_a_ledger_that_was_made_anew_is_told_once_by_one_of_its_replicas(redis_url: str, redis: Redis) -> None:
    processes = Processes(redis_url, "former")
    await processes.look()
    processes.each = [processes.add("new") for _ in range(3)]
    assert await processes.look(2 * STALE) == [("ledger.former_on_redis", named("new"))]
    assert not any(each.has_others for each in processes.each)
    processes.each = [processes.add("new")]  # a restart
    assert await processes.look(2 * STALE) == []
    assert [*await redis.hgetall(KEY)] == [named("new")]
    await processes.close()


async def test_what_others_wrote_there_does_no_harm(redis_url: str, redis: Redis) -> None:
    await redis.set(KEY, "x")
    processes = Processes(redis_url, "a")
    assert await processes.look(2) == []
    await redis.delete(KEY)
    await redis.hset(KEY, mapping={f"{number}": "" for number in range(200)})
    assert await processes.look(2 * STALE) == []
    await processes.close()


async def test_a_gateway_marks_its_ledger_and_says_whether_another_one_is_there(
    tmp_path: Any, postgres_url: str, redis_url: str, redis: Redis
) -> None:
    async with serving(tmp_path, {"alpha": None}, database_url=postgres_url, redis_url=redis_url) as running:
        [mark] = await eventually(lambda: redis.hgetall(KEY))
        ledgers = running.gateway._ledgers
        assert ledgers is not None
        await redis.hset(KEY, "other", "1")
        await ledgers.look()
        async with running.get("/health/ready") as ready:
            assert (await ready.json())["redis"] == {"connected": True, "topology": "redis"}
        await redis.hset(KEY, "other", "2")
        await ledgers.look()
        async with running.get("/health/ready") as ready:
            assert (await ready.json())["redis"]["other_ledger"] is True
            assert ready.status == 200
    async with serving(tmp_path, {"alpha": None}, database_url=postgres_url, redis_url=redis_url) as running:
        assert sorted(await redis.hgetall(KEY)) == sorted([mark, "other"])
