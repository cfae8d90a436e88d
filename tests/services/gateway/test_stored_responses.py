"""Who keeps a stored response: known to every replica through a real Redis, for as long as it may be, to its client."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from gateway.api.context import StoredResponses
from gateway.topology.nodes import Nodes, connect
from tests.services.servers import free_port

CREATED = (
    b'event: response.created\ndata: {"type":"response.created","response":{"id":"resp_1","object":"response"}}\n\n'
)
TTL_S = 60.0


@pytest.fixture
async def nodes(redis_url: str) -> AsyncIterator[Nodes]:
    nodes = connect(redis_url)
    yield nodes
    await nodes.aclose()


async def test_what_one_replica_answered_another_can_go_on_from(nodes: Nodes, redis: Redis) -> None:
    one, other = (StoredResponses(TTL_S, clock=lambda: 0.0, store=nodes) for _ in range(2))
    await one.keep("ann", CREATED, "openai/gpt")
    assert await other.find("ann", "resp_1") == "openai/gpt"
    assert 0 < await redis.ttl((await redis.keys())[0]) <= TTL_S


async def test_nobody_goes_on_from_another_clients_response(nodes: Nodes) -> None:
    one, other = (StoredResponses(TTL_S, clock=lambda: 0.0, store=nodes) for _ in range(2))
    await one.keep("ann", CREATED, "openai/gpt")
    for replica in (one, other):
        assert await replica.find("bob", "resp_1") is None
        assert await replica.find(None, "resp_1") is None
        assert await replica.find(None, "ann:resp_1") is None


async def test_after_its_time_nobody_knows_it(redis: Redis) -> None:
    now_s = 0.0
    alone = StoredResponses(TTL_S, clock=lambda: now_s)
    await alone.keep(None, b'{"id": "resp_1", "object": "response"}', "openai/gpt")
    now_s = TTL_S - 1
    assert await alone.find(None, "resp_1") == "openai/gpt"
    now_s = TTL_S
    assert await alone.find(None, "resp_1") is None


async def test_without_redis_the_replica_that_answered_still_knows() -> None:
    away = connect(f"redis://127.0.0.1:{free_port()}/0")
    replica = StoredResponses(TTL_S, clock=lambda: 0.0, store=away)
    await replica.keep("ann", CREATED, "openai/gpt")
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
