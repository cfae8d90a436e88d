"""What many replicas share at the same cost as few: dollars are a sum in Redis, and all of them ask less often."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from math import inf
from random import Random
from time import time

import pytest
from redis.asyncio import Redis

from gateway.steering import STRIKES_KEY, RedisBoard, Spending, Strikes, redis_board
from gateway.steering.constants import FLUSH_S
from gateway.topology import connect
from tests.patience import PATIENCE_S

START_S = 1_800_000_000.0
DOLLARS = "holeshot:{m}:usd:2027-01-15"

Purse = tuple[Spending, RedisBoard]
NewPurse = Callable[[], Purse]


def now() -> float:
    return START_S


@pytest.fixture
async def purse(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[NewPurse]:
    monkeypatch.setattr(redis_board, "REDIS_TIMEOUT_S", PATIENCE_S)
    async with AsyncExitStack() as stack:

        def make() -> Purse:
            spending = Spending(now)
            board = RedisBoard(connect(redis_url, PATIENCE_S), unix_clock=now, spending=spending, strikes=Strikes(now))
            stack.push_async_callback(board.close)
            return spending, board

        yield make


async def test_what_a_replica_reads_of_dollars_does_not_grow_with_the_replicas(
    purse: NewPurse, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_board, "USD_SUMMED_S", 3600.0)
    await redis.hset(DOLLARS, mapping={f"@replica{number}": "0.5" for number in range(200)})
    spending, board = purse()
    spending.charge("m", 1.0)
    await board.sync()
    await redis.config_resetstat()
    await board.sync()
    assert "cmdstat_hgetall" not in await redis.info("commandstats")
    assert spending.today_usd("m") == 101.0


async def test_the_sum_of_dollars_is_that_of_all_replicas(
    purse: NewPurse, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_board, "USD_SUMMED_S", 3600.0)
    random, purses, spent = Random(36), [purse() for _ in range(5)], 0.0
    for turn in range(100):
        spending, board = random.choice(purses)
        usd = random.random()
        spending.charge("m", usd)
        spent += usd
        await board.sync()
        if turn == 60:
            await redis.delete(f"{DOLLARS}:sum")
    for spending, board in purses:
        await board.sync()
        assert spending.today_usd("m") == pytest.approx(spent)


async def test_dollars_of_older_gateways_which_know_no_sum_count_when_it_is_made_again(
    purse: NewPurse, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    spending, board = purse()
    spending.charge("m", 1.0)
    await board.sync()
    await redis.hset(DOLLARS, "@older", "2.5")
    monkeypatch.setattr(redis_board, "USD_SUMMED_S", -1.0)
    await board.sync()
    assert spending.today_usd("m") == 3.5


@pytest.mark.parametrize("key", [DOLLARS, f"{DOLLARS}:sum"])
@pytest.mark.parametrize("garbage", ["another type", "text", "1e3 nan", "inf 1", "5 99999999999999"])
async def test_garbage_where_dollars_are_stops_nobody_and_counts_nothing(
    purse: NewPurse, redis: Redis, key: str, garbage: str
) -> None:
    spending, board = purse()
    spending.charge("m", 1.0)
    await board.sync()
    await redis.delete(key)
    if garbage == "another type":
        await redis.lpush(key, "x")
    elif key == DOLLARS:
        await redis.hset(key, "@other", garbage)
    else:
        await redis.set(key, garbage)
    assert await board.sync()
    assert spending.today_usd("m") == 1.0


async def test_the_more_replicas_report_the_longer_each_waits_between_two_rounds(purse: NewPurse, redis: Redis) -> None:
    _, board = purse()
    await board.sync()
    assert board.round_s == FLUSH_S
    report = f'{{"at_s":{time()},"strikes":{{}}}}'
    await redis.hset(STRIKES_KEY, mapping={f"@replica{number}": report for number in range(999)})
    await board.sync()
    assert 1.8 <= board.round_s <= 2.0
    await redis.delete(STRIKES_KEY)
    await redis.lpush(STRIKES_KEY, "no hash")
    await board.sync()
    assert board.round_s == FLUSH_S


async def test_many_replicas_read_standings_in_every_other_round(
    redis_url: str, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_board, "REDIS_TIMEOUT_S", PATIENCE_S)
    clock_s = START_S
    boards = [
        RedisBoard(connect(redis_url, PATIENCE_S), unix_clock=lambda: clock_s, strikes=Strikes(lambda: clock_s))
        for _ in range(2)
    ]
    one, other = boards
    await redis.hset(STRIKES_KEY, mapping={f"@replica{number}": "{}" for number in range(999)})
    for board in boards:
        board.version("m", clock_s)
        await board.sync()
    known = []
    for _ in range(6):
        clock_s += 2.0
        one.add("m", {"a|n": 1.0}, clock_s)
        await one.sync()
        await other.sync()
        known.append(other.counts("m", clock_s, half_life_s=inf).get("a|n", 0.0))
    assert known == [0.0, 2.0, 2.0, 4.0, 4.0, 6.0]
    assert one.counts("m", clock_s, half_life_s=inf) == {"a|n": 6.0}  # its own at once
    for board in boards:
        await board.close()
