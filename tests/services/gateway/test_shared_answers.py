"""Recent answers that another replica goes on from: in a real Redis, where nobody can read them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis

from gateway.memory import AnswerScope, SealedAnswers
from gateway.memory.sealed import Link
from gateway.topology import Nodes, connect
from strict_vendors import running_vendor
from tests.app.gateway.access.test_admission import clients, key_of
from tests.app.gateway.refusals.test_kept_words import CANARY, betrayals, is_written
from tests.app.gateway.responses.test_named_items import NAME, OPENAI, Talk, calls_of, text_of
from tests.app.gateway.running_gateway import RunningGateway, serving
from tests.patience import eventually
from tests.support.relay import Relay

ANN, BOB, ID = AnswerScope("ann"), AnswerScope("bob"), "resp_0123456789abcdef01234567"


@pytest.fixture
async def nodes(redis_url: str) -> AsyncIterator[Nodes]:
    nodes = connect(redis_url)
    yield nodes
    await nodes.aclose()


@asynccontextmanager
async def two_replicas(
    folder: Path, redis_url: str, **settings: Any
) -> AsyncIterator[tuple[RunningGateway, RunningGateway]]:
    async with AsyncExitStack() as stack:
        vendor = await stack.enter_async_context(running_vendor("openai"))
        config: dict[str, Any] = {
            "redis_url": redis_url,
            "providers": {"openai": {"preset": "openai", "base_url": vendor.base_url, "api_key": vendor.key}},
            "models": {NAME: {"deployments": [f"openai/{OPENAI[1]}"]}},
            **clients(plain={}, guest={}),
            **settings,
        }
        one, other = [
            await stack.enter_async_context(serving(folder / name, {"alpha": None}, **config))
            for name in ("one", "other")
        ]
        yield one, other


async def shared(redis: Redis, number: int) -> None:
    """Wait until so many values are in Redis."""

    async def has() -> bool:
        return len(await redis.keys("holeshot:answer:*")) >= number

    await eventually(has)


async def test_a_conversation_goes_on_at_another_replica_in_each_turn(
    tmp_path: Path, redis_url: str, redis: Redis
) -> None:
    async with two_replicas(tmp_path, redis_url) as replicas:
        talks = [Talk(each, "whole", "plain") for each in replicas]
        answer = await talks[0].ask("weather?")
        told, there = calls_of(answer), 0
        for turn in range(1, 13):  # more than one chain
            there += 1 + len(answer["output"])
            await shared(redis, there)
            answer = await talks[turn % 2].ask(told, previous_response_id=answer["id"])
            told = [{"role": "user", "content": f"say: {turn}"}]
        assert text_of(answer)


async def test_an_answer_can_be_read_again_at_another_replica(tmp_path: Path, redis_url: str, redis: Redis) -> None:
    async with two_replicas(tmp_path, redis_url) as (one, other):
        answer = await Talk(one, "whole", "plain").ask("weather?")
        await shared(redis, 1 + len(answer["output"]))
        answer = await Talk(one, "whole", "plain").ask(calls_of(answer), previous_response_id=answer["id"])
        await shared(redis, 2 + 2 * len(answer["output"]))
        async with other.get(f"/v1/responses/{answer['id']}", headers=key_of("plain")) as response:
            found = await response.json()
        assert found == {name: value for name, value in answer.items() if name not in {"instructions", "tools"}}


async def test_an_item_is_found_at_another_replica_and_by_its_client_alone(
    tmp_path: Path, redis_url: str, redis: Redis
) -> None:
    async with two_replicas(tmp_path, redis_url) as (one, other):
        answer = await Talk(one, "streamed", "plain").ask("weather?")
        await shared(redis, 1 + len(answer["output"]))
        history = [
            {"role": "user", "content": "weather?"},
            *({"type": "item_reference", "id": item["id"]} for item in answer["output"]),
            *calls_of(answer),
        ]
        status, _ = await Talk(other, "whole", "guest").tried(history)
        assert status == 404
        await Talk(other, "whole", "plain").ask(history)


async def test_nothing_that_was_said_can_be_read_anywhere(tmp_path: Path, redis_url: str, redis: Redis) -> None:
    async with two_replicas(tmp_path, redis_url) as (one, other):
        answer = await Talk(one, "whole", "plain").ask(f"{CANARY}\nsay: {CANARY}", tools=[])
        assert CANARY in text_of(answer)
        await shared(redis, 1 + len(answer["output"]))
        again = await Talk(other, "streamed", "plain").ask("And?", previous_response_id=answer["id"], tools=[])
        await one.gateway.ledger.flush()
        await other.gateway.ledger.flush()
        keys = await redis.keys("*")
        values = [await redis.dump(key) for key in keys]
        lives = [await redis.ttl(key) for key in await redis.keys("holeshot:answer:*")]
    files = await asyncio.to_thread(lambda: [each.read_bytes() for each in tmp_path.rglob("*") if is_written(each)])
    seen = b"\n".join([*(str(each).encode() for each in [*keys, *values]), *files])
    assert not betrayals(seen)
    ids = [answer["id"], again["id"], *(item["id"] for item in [*answer["output"], *again["output"]])]
    assert not [each for each in ids if each.encode() in seen]
    assert all(0 < each <= 3600 for each in lives)


async def test_a_deleted_response_is_forgotten_by_all_replicas(tmp_path: Path, redis_url: str, redis: Redis) -> None:
    async with two_replicas(tmp_path, redis_url) as (one, other):
        talk = Talk(one, "whole", "plain")
        answer = await talk.ask("weather?")
        await shared(redis, 1 + len(answer["output"]))
        url = f"{other.url}/v1/responses/{answer['id']}"
        async with other.http.delete(url, headers=talk.headers) as response:
            assert response.status == 200
        assert not await redis.keys("holeshot:answer:*")


async def test_a_response_is_told_as_deleted_when_all_replicas_have_forgotten_it(
    tmp_path: Path, redis_url: str, redis: Redis
) -> None:
    server = urlsplit(redis_url)
    relay = Relay(str(server.hostname), int(server.port or 0))
    await relay.listen()
    through = redis_url.replace(f":{server.port}", f":{relay.port}")
    async with two_replicas(tmp_path, through) as (one, other):
        talk = Talk(one, "whole", "plain")
        answer = await talk.ask("weather?")
        await shared(redis, 1 + len(answer["output"]))

        async def deleted() -> tuple[int, Any]:
            url = f"{one.url}/v1/responses/{answer['id']}"
            async with one.http.delete(url, headers=talk.headers) as response:
                return response.status, await response.json()

        await relay.cut()
        status, said = await deleted()
        assert (status, said["error"]["code"]) == (503, "stored_names_unreachable")
        await relay.listen()
        status, said = await deleted()
        assert (status, said["deleted"]) == (200, True)
        assert not await redis.keys("holeshot:answer:*")
        asked = {"previous_response_id": answer["id"]}
        assert (await Talk(other, "whole", "plain").tried(calls_of(answer), **asked))[0] == 400
    await relay.cut()


@pytest.mark.parametrize("setting", ["off", {"redis": False}])
async def test_one_setting_keeps_redis_free_of_it(tmp_path: Path, redis_url: str, redis: Redis, setting: Any) -> None:
    async with two_replicas(tmp_path, redis_url, responses_memory=setting) as (one, other):
        answer = await Talk(one, "whole", "plain").ask("weather?")
        status, _ = await Talk(other, "whole", "plain").tried(calls_of(answer), previous_response_id=answer["id"])
    assert status == 400
    assert not await redis.keys("holeshot:answer:*")


def sealed(nodes: Nodes, most_bytes: float = 2**20) -> SealedAnswers:
    return SealedAnswers(nodes, ttl_s=lambda: 60.0, most_bytes=lambda: most_bytes, clock=lambda: 0.0)


async def test_an_id_that_can_be_guessed_is_not_shared(nodes: Nodes, redis: Redis) -> None:
    for name in ("resp_1", "resp_123", "chatcmpl-42", "v1_chatcmpl-42"):
        assert not await sealed(nodes).put(ANN, name, Link([b"{}"]))
    assert not await redis.keys("*")
    assert await sealed(nodes).put(ANN, f"v1_{ID}", Link([b"{}"]))  # as Google's interactions are called


async def test_a_process_has_no_more_in_redis_than_it_may(nodes: Nodes, redis: Redis) -> None:
    sealing = sealed(nodes, 3_000)
    told = [await sealing.put(ANN, f"{ID}{number}", Link([b"x" * 500])) for number in range(9)]
    assert told == [True, True, *[False] * 7]
    assert len(await redis.keys("*")) == 2


async def test_a_value_that_somebody_changed_or_moved_is_not_known(nodes: Nodes, redis: Redis) -> None:
    sealing = sealed(nodes)
    assert await sealing.put(ANN, ID, Link([b"{}"]))
    [name] = await redis.keys("*")
    value = str(await redis.get(name))
    for wrong in (value[:-8], "no base64", "", value[::-1]):
        await redis.set(name, wrong)
        assert await sealing.chain(ANN, ID) is None
    assert await sealing.put(BOB, ID, Link([b"[]"]))
    [other] = [each for each in await redis.keys("*") if each != name]
    await redis.set(name, str(await redis.get(other)))
    assert await sealing.chain(ANN, ID) is None
    await redis.set(name, value)
    assert await sealing.chain(ANN, ID) == [Link([b"{}"])]
