"""Who keeps a stored response, or made reasoning that only it can read: known to every replica through a real Redis.

A response is known to its client, and for as long as it may be.
"""

import asyncio
import copy
import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from redis.asyncio import Redis

from gateway.api import InBackground, StoredResponses
from gateway.core.calls import CallRecord
from gateway.limits import level_of_key
from gateway.topology import Command, Nodes, connect
from providers.simulator import Raw, Status
from tests.app.gateway.apis.test_dialects import MESSAGE_BYTES, event
from tests.app.gateway.responses.test_kept_responses import IN_BACKGROUND, Worker
from tests.app.gateway.running_gateway import MODEL, RunningGateway, serving
from tests.patience import eventually, until
from tests.services.limits.test_slots import STEADY
from tests.support.servers import free_port
from tests.unit.ledger.records import raced_call

TTL_S = 60.0
PROMPT = msgspec.structs.replace(STEADY, repeat_s=0.1)  # what is not in use is reported soon, too
KEYS = ("key-of-one-organisation", "key-of-another-organisation")


@pytest.fixture
async def nodes(redis_url: str) -> AsyncIterator[Nodes]:
    nodes = connect(redis_url)
    yield nodes
    await nodes.aclose()


async def test_what_one_replica_answered_another_can_go_on_from(nodes: Nodes, redis: Redis) -> None:
    one, other = (StoredResponses(TTL_S, clock=lambda: 0.0, store=nodes) for _ in range(2))
    await one.keep_all("ann", ["resp_1"], "openai/gpt")
    assert await other.find("ann", "resp_1") == "openai/gpt"
    assert 0 < await redis.ttl((await redis.keys())[0]) <= TTL_S


async def test_nobody_goes_on_from_another_clients_response(nodes: Nodes) -> None:
    one, other = (StoredResponses(TTL_S, clock=lambda: 0.0, store=nodes) for _ in range(2))
    await one.keep_all("ann", ["resp_1"], "openai/gpt")
    for replica in (one, other):
        assert await replica.find("bob", "resp_1") is None
        assert await replica.find(None, "resp_1") is None
        assert await replica.find(None, "ann:resp_1") is None


async def test_after_its_time_nobody_knows_it(redis: Redis) -> None:
    now_s = 0.0
    alone = StoredResponses(TTL_S, clock=lambda: now_s)
    await alone.keep_all(None, ["resp_1"], "openai/gpt")
    now_s = TTL_S - 1
    assert await alone.find(None, "resp_1") == "openai/gpt"
    now_s = TTL_S
    assert await alone.find(None, "resp_1") is None


async def test_without_redis_the_replica_that_answered_still_knows() -> None:
    away = connect(f"redis://127.0.0.1:{free_port()}/0")
    replica = StoredResponses(TTL_S, clock=lambda: 0.0, store=away)
    await replica.keep_all("ann", ["resp_1"], "openai/gpt")
    assert await replica.find("ann", "resp_1") == "openai/gpt"
    assert await replica.find("ann", "resp_2") is None
    await away.aclose()


async def test_other_ids_are_known_to_every_replica_and_only_their_hashes_are_in_redis(
    nodes: Nodes, redis: Redis
) -> None:
    one, other = (StoredResponses(TTL_S, clock=lambda: 0.0, store=nodes) for _ in range(2))
    names = [f"msg_{number}" for number in range(120)]
    await one.keep_all("ann", names, "openai/gpt")
    assert {await other.find("ann", name) for name in names} == {"openai/gpt"}
    assert await other.find("bob", "msg_1") is None
    assert not any("msg_" in str(key) for key in await redis.keys())


@asynccontextmanager
async def two_replicas(folder: Path, redis_url: str) -> AsyncIterator[tuple[RunningGateway, RunningGateway]]:
    config: dict[str, Any] = {
        "redis_url": redis_url,
        "providers": {
            "alpha": {"apis": ["messages"]},
            "beta": {"apis": ["messages"], "api_key": None, "api_keys": list(KEYS)},
        },
        "models": {MODEL: {"race": {"mode": "single"}}},
    }
    async with AsyncExitStack() as stack:
        one, other = [
            await stack.enter_async_context(
                serving(folder / name, {"alpha": None, "beta": None}, **copy.deepcopy(config))
            )
            for name in ("one", "other")
        ]
        yield one, other


async def test_another_replica_sends_a_conversation_to_the_key_that_made_its_reasoning(
    tmp_path: Path, redis_url: str, redis: Redis
) -> None:
    made = event("content_block_delta", index=0, delta={"type": "signature_delta", "signature": "bWFkZQ=="})
    thought = {"type": "thinking", "thinking": "Hm", "signature": "bWFkZQ=="}
    user = {"role": "user", "content": "Hi"}
    turns = [user, {"role": "assistant", "content": [thought, {"type": "text", "text": "Hello"}]}, user]
    body = {"model": MODEL, "max_tokens": 9, "stream": True}
    async with two_replicas(tmp_path, redis_url) as (one, other):
        one.prefer("beta", "alpha")
        other.prefer("alpha", "beta")
        one["beta"].script = [Raw(made + MESSAGE_BYTES, token=True)]
        one["beta"].once([Status(429, headers={"retry-after": "30"})])  # so its second key makes it
        async with one.post({**body, "messages": [user]}, path="/v1/messages") as response:
            await response.read()
        await eventually(lambda: redis.keys("holeshot:maker:*"))
        other["beta"].script = [Raw(MESSAGE_BYTES, token=True)]
        async with other.post({**body, "messages": turns}, path="/v1/messages") as response:
            await response.read()
        used = one["beta"].received[-1].headers["authorization"]
        assert (other["alpha"].received, len(other["beta"].received)) == ([], 1)
        assert other["beta"].received[0].headers["authorization"] == used


END = raced_call()


def row_of(begun: InBackground) -> CallRecord:
    assert begun == BEGUN
    return END


BEGUN = InBackground("a", MODEL, MODEL, 0.0, 0.1, ("client:ann",), 0, {"job": "night"})


async def test_the_end_of_a_response_in_the_background_is_told_to_one_replica_once(nodes: Nodes) -> None:
    one, other = (StoredResponses(TTL_S, clock=lambda: 0.0, store=nodes) for _ in range(2))
    await one.begin("ann", "resp_1", BEGUN)
    assert await other.end("bob", "resp_1", row_of) is None
    assert await other.end("ann", "resp_1", row_of) == (BEGUN, END)
    assert [await each.end("ann", "resp_1", row_of) for each in (other, one)] == [None, None]


class Unheard:
    """Nodes that do what they are told; their next answer gets lost."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes, self._is_heard = nodes, False

    async def call(self, key: str, command: Command) -> Any:
        reply = await self._nodes.call(key, command)
        if not self._is_heard:
            self._is_heard = True
            raise ConnectionResetError
        return reply


async def test_an_end_whose_taking_was_not_heard_of_is_told_at_the_next_look_and_to_nobody_else(nodes: Nodes) -> None:
    one = StoredResponses(TTL_S, clock=lambda: 0.0, store=nodes)
    other = StoredResponses(TTL_S, clock=lambda: 0.0, store=cast("Nodes", Unheard(nodes)))
    await one.begin("ann", "resp_1", BEGUN)
    assert await other.end("ann", "resp_1", row_of) is None
    assert await one.end("ann", "resp_1", row_of) is None
    assert [await other.end("ann", "resp_1", row_of) for _ in range(2)] == [(BEGUN, END), None]


async def test_the_end_is_told_by_whoever_is_asked_first_if_redis_was_away_at_the_beginning(nodes: Nodes) -> None:
    away = connect(f"redis://127.0.0.1:{free_port()}/0")
    replica = StoredResponses(TTL_S, clock=lambda: 0.0, store=away)
    await replica.begin("ann", "resp_1", BEGUN)
    assert [await replica.end("ann", "resp_1", row_of) for _ in range(2)] == [(BEGUN, END), None]
    await away.aclose()


async def test_what_ran_in_the_background_counts_once_in_the_limits_of_all_replicas(
    tmp_path: Path, redis_url: str
) -> None:
    limits, worker = {"usd_per_day": 1.0}, Worker(asyncio.Event())
    key = hashlib.sha256(b"ann").hexdigest()
    headers = {"authorization": "Bearer ann"}
    async with worker.serving() as base_url, AsyncExitStack() as stack:
        config: dict[str, Any] = {
            "redis_url": redis_url,
            "clients": {"ann": {"key_sha256": key, **limits}},
            "providers": {"own": {"base_url": base_url, "api_key": "k", "apis": ["responses"]}},
            "models": {
                MODEL: {"deployments": [{"deployment": "own/m", "price_per_mtok": {"input": 1.0, "output": 10.0}}]}
            },
        }
        one, other = [
            await stack.enter_async_context(
                serving(tmp_path / name, {"alpha": None}, lease_times=PROMPT, **copy.deepcopy(config))
            )
            for name in ("one", "other")
        ]

        def used(running: RunningGateway) -> float:
            [standing] = running.gateway.context.limits.standings(level_of_key("ann", limits))
            return standing.used or 0.0

        async with one.post(IN_BACKGROUND, path="/v1/responses", headers=headers) as response:
            assert response.status == 200
        assert used(one) == pytest.approx(0.1, abs=0.001)
        worker.is_done = True
        for running in (other, one, other):
            async with running.get("/v1/responses/resp_abc", headers=headers) as response:
                assert response.status == 200
        await until(lambda: used(one) == pytest.approx(0.021) == used(other))
        rows = [await running.rows("select cost_usd from calls") for running in (one, other)]
    assert rows == [[{"cost_usd": None}], [{"cost_usd": pytest.approx(0.021)}]]
