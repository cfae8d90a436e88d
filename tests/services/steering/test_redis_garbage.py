"""A real Redis in which anything may stand: it steers nobody, stops nobody, and is said once."""

import json
from collections.abc import AsyncIterator, Callable
from math import inf, isfinite
from random import Random
from typing import Any

import msgspec
import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs

from gateway.api import StoredResponses
from gateway.core.calls import Objective
from gateway.core.prompt_classes import answer_class
from gateway.settings import RaceSettings
from gateway.steering import RedisBoard, Spending, Steering, Terms, slot_of
from gateway.steering.board import slot_keys
from gateway.steering.redis_board import MOST_BYTES, MOST_FIELDS
from gateway.topology import connect
from tests.patience import PATIENCE_S

START_S = 1_800_000_000.0
MODEL = "m"
DAY = "2027-01-15"
SLOT, PARTS = slot_keys(MODEL, slot_of(START_S))
DOLLARS = f"holeshot:{{{MODEL}}}:usd:{DAY}"
DEPLOYMENTS = ("a", "b")
COSTLY = RaceSettings(usd_per_day=10.0)
TERMS = (
    Terms(Objective.FIRST_TOKEN, 100),
    Terms(Objective.READING, 100),
    Terms(Objective.COMPLETION, 100),
    Terms(Objective.COST, 100, 50),
)

NUMBERS: list[Any] = [
    "1e308", "-1e308", "1e400", "inf", "-inf", "nan", "-1", "-0.0", "1e-320", "1e13", "99999999999999999999999999", "0",
    "5", "0.5", "abc", "", "1_000", "0x10", "١٢", "5 ", "\x00", "9" * 5000, b"\xff\xfe", "1e12", "1e-12", "true", "[]",
]  # fmt: skip
FIELDS: list[Any] = [
    "a|n", "a|err", "a|lim", "a|won", "a|tok", "a|sec", "a|gtok", "a|gsec", "a|etok", "a|esec", "a|ans", "a|burst",
    "a|0|e17", "a|0|e111", "a|0|c111", "a|0|c0", "a|0|ae3", "a|0|ac90", "a|1|e5", "b|0|e20", "b|n", "calls", "raced",
    "req", "out", "a|0|e999999999999", "a|99999999999999999999|e1", "a|" + "9" * 5000 + "|e1", "a|²|e1", "a|0|e٣",
    "|", "||", "|n", "a|0|", "a|0|e", "a|0|e-1", "@", "@x", "@since", "@version", "", "x" * 10_000, b"\xff|n", "a|0|z1",
    "z|n", "z|0|e10",
]  # fmt: skip


class Replica:
    """A gateway's board and steering, as far as Redis goes."""

    def __init__(self, redis_url: str, now: Callable[[], float] = lambda: START_S) -> None:
        self.spending = Spending(now)
        self.board = RedisBoard(connect(redis_url, PATIENCE_S), unix_clock=now, spending=self.spending)
        self.steering = Steering(self.board, clock=now, unix_clock=now, random=Random(1), spending=self.spending)
        self.steering.reset({MODEL: DEPLOYMENTS})

    async def use(self) -> list[Any]:
        """Keep in step, plan every kind of call, and write the leaderboard as the gateway does; return its rows."""
        assert await self.board.sync()
        for terms in TERMS:
            race = COSTLY.model_copy(update={"ttft_ms": 500.0}) if terms.objective is Objective.COST else COSTLY
            for prompt_class in (answer_class(0), answer_class(2)):
                plan = self.steering.plan(MODEL, DEPLOYMENTS, race, terms, prompt_class, explain=True)
                assert {launch.deployment for launch in plan.launches} <= set(DEPLOYMENTS)
                assert all(isfinite(launch.delay_s) and launch.delay_s >= 0 for launch in plan.launches)
                msgspec.json.encode(plan.explanation)
        written = msgspec.json.encode(self.steering.leaderboard(MODEL))
        json.loads(written, parse_constant=_refuse)
        return list(msgspec.json.decode(written)["deployments"])

    async def close(self) -> None:
        await self.board.close()


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


async def begin(redis: Redis, slot: int = slot_of(START_S)) -> None:
    """Make the hashes of a slot look as if a gateway had begun it."""
    for key in slot_keys(MODEL, slot):
        await redis.hset(key, "@since", "@another1")


@pytest.fixture
async def replica(redis_url: str) -> AsyncIterator[Replica]:
    made = Replica(redis_url)
    yield made
    await made.close()


@pytest.mark.parametrize("number", [each for each in NUMBERS if each not in {"0", "5", "0.5"}])
@pytest.mark.parametrize("field", ["a|n", "a|0|e17", "a|sec", "a|0|c111"])
async def test_no_number_stops_the_board(redis: Redis, replica: Replica, field: str, number: str | bytes) -> None:
    await begin(redis)
    await redis.hset(SLOT, field, number)
    replica.board.add(MODEL, {"b|n": 4.0, "b|0|e10": 4.0}, START_S)
    for _ in range(2):
        rows = {row["deployment"]: row for row in await replica.use()}
        assert rows["b"]["n"] == 4
        assert rows["b"]["ttft_p50_ms"] is not None


async def test_what_cannot_be_a_count_is_counted_and_said_once(redis: Redis, replica: Replica) -> None:
    await begin(redis)
    await redis.hset(SLOT, mapping={"a|n": "1e308", "a|err": "nan", "b|n": "-3", "b|won": "text", "a|lim": "2"})
    with capture_logs() as logged:
        for _ in range(3):
            await replica.use()
    assert replica.board.ignored >= 4
    assert [entry["event"] for entry in logged] == ["steering.redis_garbage"]
    assert replica.board.counts(MODEL, START_S, half_life_s=inf) == {"a|lim": 2.0}


async def test_what_is_counted_here_goes_over_garbage_once_and_is_shared(redis_url: str, redis: Redis) -> None:
    one, other = Replica(redis_url), Replica(redis_url)
    await begin(redis)
    await redis.hset(SLOT, mapping={"a|n": "text", "a|won": "nan", "b|n": "1"})
    one.board.add(MODEL, {"a|n": 3.0, "b|n": 1.0, "a|won": 2.0}, START_S)
    for replica in (one, one, other, one):
        await replica.use()
    expected = {"a|n": 3.0, "b|n": 2.0, "a|won": 2.0}
    for replica in (one, other):
        assert replica.board.counts(MODEL, START_S, half_life_s=inf) == expected
        await replica.close()


@pytest.mark.parametrize("mine", ["text", "-1", "9" * 5000, "1.5", "", "999999999999"])
async def test_another_number_of_ones_own_part_costs_no_counts(redis: Redis, replica: Replica, mine: str) -> None:
    replica.board.add(MODEL, {"a|n": 1.0}, START_S)
    await replica.use()
    await redis.hset(PARTS, replica.board._field, mine)
    replica.board.add(MODEL, {"a|n": 1.0}, START_S)
    for _ in range(3):
        await replica.use()
    [row] = [row for row in await replica.use() if row["deployment"] == "a"]
    assert row["n"] >= 2
    settled = await redis.hget(SLOT, "a|n")
    await replica.use()
    assert await redis.hget(SLOT, "a|n") == settled  # not sent again and again


@pytest.mark.parametrize("key", [SLOT, PARTS, DOLLARS])
@pytest.mark.parametrize("kind", ["string", "list", "set", "zset", "stream"])
async def test_a_key_of_another_type_stops_nobody(redis: Redis, replica: Replica, key: str, kind: str) -> None:
    if kind == "string":
        await redis.set(key, "garbage")
    elif kind == "list":
        await redis.rpush(key, "garbage")
    elif kind == "set":
        await redis.sadd(key, "garbage")
    elif kind == "zset":
        await redis.zadd(key, {"garbage": 1.0})
    else:
        await redis.xadd(key, {"garbage": "1"})
    replica.spending.charge(MODEL, 1.0)
    replica.board.add(MODEL, {"a|n": 4.0, "a|0|e10": 4.0}, START_S)
    for _ in range(3):
        [row] = [row for row in await replica.use() if row["deployment"] == "a"]
        assert row["n"] == 4
    assert replica.spending.today_usd(MODEL) == 1.0


@pytest.mark.parametrize("usd", ["nan", "inf", "-inf", "-1000", "1e308", "text", ""])
async def test_no_replica_can_spend_less_than_nothing_or_more_than_there_is(
    redis: Redis, replica: Replica, usd: str
) -> None:
    await redis.hset(DOLLARS, mapping={"@other": usd, "@another": "4.0"})
    replica.spending.charge(MODEL, 1.0)
    await replica.use()
    assert replica.spending.today_usd(MODEL) == 5.0
    assert replica.spending.may_spend(MODEL, 5.0, 10.0)
    assert not replica.spending.may_spend(MODEL, 5.1, 10.0)


@pytest.mark.parametrize("what", ["fields", "bytes"])
async def test_a_hash_too_large_to_be_ours_is_not_read(redis: Redis, replica: Replica, what: str) -> None:
    await begin(redis)
    if what == "fields":
        await redis.hset(SLOT, mapping={f"d{number}|n": "1" for number in range(MOST_FIELDS + 1)})
    else:
        await redis.hset(SLOT, "a|n", "1" * (MOST_BYTES + 1))
    replica.board.add(MODEL, {"a|0|e10": 4.0}, START_S)
    await replica.use()
    assert replica.board.ignored == 2  # for each time it was read
    assert set(replica.board.counts(MODEL, START_S, half_life_s=inf)) == {"a|0|e10"}


async def test_no_crowd_of_deployments_is_estimated(redis: Redis, replica: Replica) -> None:
    await begin(redis)
    await redis.hset(SLOT, mapping={f"d{number}|0|e3": "1" for number in range(MOST_FIELDS - 10)})
    replica.board.add(MODEL, {"a|0|e10": 4.0}, START_S)
    await replica.use()
    assert len(replica.steering._snapshots.of(MODEL, answer_class(0)).estimates) <= 256


async def test_anything_at_all_in_redis_stops_neither_plans_nor_the_leaderboard(redis_url: str, redis: Redis) -> None:
    random = Random(20_261_120)
    for _ in range(250):
        await redis.flushdb()
        for _ in range(random.randrange(1, 4)):
            slot = slot_of(START_S) - random.choice([0, 0, 1, 5, 19])
            if random.random() < 0.8:
                await begin(redis, slot)
            key = random.choice(slot_keys(MODEL, slot))
            fields = random.sample(FIELDS, random.randrange(1, len(FIELDS)))
            await redis.hset(key, mapping={field: random.choice(NUMBERS) for field in fields})
        if random.random() < 0.3:
            await redis.hset(DOLLARS, mapping={field: random.choice(NUMBERS) for field in random.sample(FIELDS, 5)})
        replica = Replica(redis_url)
        replica.board.add(MODEL, {random.choice(FIELDS[:25]): random.choice([1.0, 0.25]) for _ in range(5)}, START_S)
        await replica.use()
        for field in random.sample(FIELDS, 5):
            await redis.hset(SLOT, field, random.choice(NUMBERS))
        await replica.use()
        await replica.close()


@pytest.mark.parametrize("value", [b"\xff\xfe", "x" * 100_000, "", "a\r\nset-cookie: b", "\x00"])
async def test_a_stored_response_names_a_deployment_or_nobody(redis_url: str, redis: Redis, value: str | bytes) -> None:
    store = connect(redis_url)
    responses = StoredResponses(60.0, clock=lambda: 0.0, store=store)
    await redis.set("holeshot:response:ann:resp_1", value)
    found = await responses.find("ann", "resp_1")
    assert found is None or (found.isprintable() and len(found) < 1000)
    await redis.delete("holeshot:response:ann:resp_1")
    await redis.rpush("holeshot:response:ann:resp_1", "x")
    assert await responses.find("ann", "resp_1") is None
    await store.aclose()
