"""What a refusal has taught one replica, another knows through a real Redis."""

import copy
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
from redis.asyncio import Redis

from gateway.app.shared_facts import KEY
from providers import Fact, Kind
from tests.app.gateway.running_gateway import serving
from tests.app.gateway.test_refused_fields import QUESTION, refusing, told
from tests.patience import eventually, until

EFFORT = Fact(Kind.FIELD, "reasoning_effort", dialect="chat")


async def test_another_replica_does_not_send_what_was_refused_once(
    tmp_path: Path, redis_url: str, redis: Redis
) -> None:
    config: dict[str, Any] = {"redis_url": redis_url}
    asked = {"messages": QUESTION, "reasoning_effort": "low"}
    async with AsyncExitStack() as stack:
        one, other = [
            await stack.enter_async_context(serving(tmp_path / name, {"alpha": None}, **copy.deepcopy(config)))
            for name in ("one", "other")
        ]
        for each in (one, other):
            each["alpha"].answers = refusing("reasoning_effort")
        assert await told(one, asked) == (200, "reasoning_effort")
        await eventually(lambda: redis.hgetall(KEY))
        known = other.gateway.fleets.learnt("alpha")
        assert known is not None
        await until(lambda: known.of("m") == (EFFORT,))
        assert await told(other, asked) == (200, "reasoning_effort")
        assert len(other["alpha"].received) == 1
        assert 0 < await redis.ttl(KEY) <= 86_400


async def test_what_others_wrote_and_what_has_ended_is_left_out(tmp_path: Path, redis_url: str, redis: Redis) -> None:
    def named(**changes: str) -> str:
        return msgspec.json.encode(("alpha", "m", msgspec.structs.replace(EFFORT, **changes))).decode()

    garbage: dict[Any, Any] = {"x": "1", named(): "soon", '["alpha","m",{}]': "9e99", named(field="a" * 999): "9e99"}
    swapped = named(kind=Kind.VALUE, instead='1},"model":{', value='"low"')
    await redis.hset(KEY, mapping={**garbage, swapped: "9e99", named(field="user"): "9e99", named(field="n"): "1"})
    async with serving(tmp_path, {"alpha": None}, redis_url=redis_url) as running:
        known = running.gateway.fleets.learnt("alpha")
        assert known is not None
        await until(lambda: bool(known.of("m")))
        assert [fact.field for fact in known.of("m")] == ["user"]
        await eventually(lambda: _lacks(redis, named(field="n")))
        running["alpha"].answers = refusing("user")
        assert await told(running, {"messages": QUESTION, "user": "u"}) == (200, "user")
        assert len(running["alpha"].received) == 1


async def _lacks(redis: Redis, name: str) -> bool:
    return not await redis.hexists(KEY, name)


async def test_a_fact_that_was_wrong_is_taken_back(tmp_path: Path, redis_url: str, redis: Redis) -> None:
    said = "Unsupported parameter: '{}' is not supported with this model."
    async with serving(tmp_path, {"alpha": None}, redis_url=redis_url) as running:
        for refused in ("max_tokens", "max_completion_tokens"):
            running["alpha"].answers = refusing(refused, said=said)
            assert await told(running, {"messages": QUESTION, "max_tokens": 9}) == (200, None)
        await eventually(lambda: _only(redis, "max_completion_tokens"))


async def _only(redis: Redis, field: str) -> bool:
    names = await redis.hkeys(KEY)
    return [msgspec.json.decode(name)[2]["field"] for name in names] == [field]
