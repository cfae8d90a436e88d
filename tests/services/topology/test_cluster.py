"""Limits and standings over a real Redis Cluster: three masters, and a replica for each."""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack
from itertools import count

import pytest

from gateway.api import StoredResponses
from gateway.limits.lease_scripts import key_of, keys_of
from gateway.limits.windows import day
from gateway.racing import Seats
from gateway.steering.board import key_of as key_of_model
from gateway.topology import Nodes, UnusableTopologyError, connect
from tests.patience import PATIENCE_S, until
from tests.services.topology.process import NOW_S, Process, agree, burst, loaded, spend, standings, use_up
from tests.support.servers import RedisCluster


@pytest.fixture
async def processes(cluster: RedisCluster) -> AsyncIterator[list[Process]]:
    for node in cluster.nodes:
        if not node.say("INFO", "replication")["role"].startswith("slave"):
            node.say("FLUSHALL")
    url = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in cluster.masters)
    async with AsyncExitStack() as stack:
        made = [Process(url, number) for number in range(3)]
        for each in made:
            await stack.enter_async_context(each)
        yield made


def client_at(nodes: Nodes, shard: str, name: str) -> str:
    """Return a client whose quota ``name`` is served by ``shard``."""
    window = {"rpm": f"m{int(NOW_S // 60)}", "usd_per_day": day(NOW_S).name}[name]
    clients = (f"{name} {number}" for number in count())
    return next(
        each for each in clients if nodes.shard_of(f"holeshot:limit:{{client:{each}:{name}:{window}}}") == shard
    )


def model_at(nodes: Nodes, shard: str) -> str:
    """Return a model that ``shard`` serves."""
    return next(each for each in (f"model {n}" for n in count()) if nodes.shard_of(key_of_model(each, "")) == shard)


async def test_a_limit_is_exact_whichever_master_has_it(processes: list[Process]) -> None:
    nodes = processes[0].leases.nodes
    assert nodes.name == "redis cluster, 3 masters"
    for shard in nodes.shards:
        client = client_at(nodes, shard, "rpm")
        admitted = await burst(processes, client, {"rpm": 60.0}, 240)
        assert admitted <= 60
        assert admitted + await use_up(processes, client, {"rpm": 60.0}, least=60.0 - admitted) == 60.0
        quota = processes[0].quota(client)
        assert nodes.shard_of(key_of(quota)) == shard


async def test_slots_at_a_deployment_are_leased_whichever_master_has_them(processes: list[Process]) -> None:
    nodes = processes[0].leases.nodes
    for shard in nodes.shards:
        keys = {f"own/{n}": f"holeshot:limit:{{deployment:own/{n}:max_in_flight_fleet:now}}" for n in range(99)}
        name = next(each for each, key in keys.items() if nodes.shard_of(key) == shard)
        of_all = [Seats(leases=each.leases, clock=time.monotonic) for each in processes]
        for seats in of_all:
            seats.limit({}, 600.0, of_fleet={name: 3})
        lines = [seats.lines[name] for seats in of_all]
        await until(lambda lines=lines: [line.most for line in lines] == [1, 1, 1])  # type: ignore[misc] # its default
        slots = lines[0].slots
        assert slots is not None
        assert {nodes.shard_of(key) for key in keys_of(slots)} == {shard}


async def test_one_call_may_have_limits_at_all_masters(processes: list[Process]) -> None:
    limits = {"rpm": 1e6, "tpm": 1e9, "usd_per_day": 1e6, "usd_per_month": 1e6, "max_parallel": 1e6}
    for number in range(4):
        for each in processes:
            each.end(await each.begin(f"client {number}", limits, prompt_tokens=10, usd=0.1), 0.1)


async def test_standings_are_shared_whichever_master_has_the_model(processes: list[Process]) -> None:
    nodes, boards = processes[0].leases.nodes, [each.board for each in processes[:2]]
    models = [model_at(nodes, shard) for shard in nodes.shards]
    for board in boards:
        for model in models:
            board.add(model, {"a|n": 2.0}, NOW_S)
    await agree(boards)
    assert [standings(board, models) for board in boards] == [[4.0, 4.0, 4.0]] * 2


async def test_a_response_is_known_to_all_replicas(cluster: RedisCluster) -> None:
    stores = [connect(cluster.url) for _ in range(2)]
    one, other = (StoredResponses(60.0, clock=lambda: 0.0, store=store) for store in stores)
    for number in range(9):
        await one.keep_all("ann", [f"resp_{number}"], "openai/gpt")
        assert await other.find("ann", f"resp_{number}") == "openai/gpt"
    for store in stores:
        await store.aclose()


async def test_a_cluster_is_found_by_asking_and_can_be_used(cluster: RedisCluster) -> None:
    nodes = connect(cluster.url)
    await nodes.check()
    assert nodes.name == "redis cluster, 3 masters"
    assert await nodes.doubts() == []
    cluster.set("maxmemory-policy", "allkeys-lru")
    assert len(await nodes.doubts()) == 3
    cluster.set("maxmemory-policy", "noeviction")
    await nodes.aclose()


@pytest.mark.usefixtures("redis_binary")
async def test_a_cluster_with_slots_that_no_master_serves_cannot_be_used() -> None:
    with ExitStack() as stack:
        half = RedisCluster(stack, masters=1, replicas=False)
        half.masters[0].say("CLUSTER", "ADDSLOTSRANGE", 0, 8191)
        nodes = connect(half.url)
        with pytest.raises(UnusableTopologyError, match="serves 8192 of 16384 slots"):
            await nodes.check()
        await nodes.aclose()


async def test_one_redis_is_no_cluster(redis_url: str) -> None:
    nodes, asked = connect(redis_url), connect(redis_url.replace("redis://", "redis+cluster://"))
    await nodes.check()
    assert (nodes.name, nodes.shards) == ("redis", ("",))
    with pytest.raises(UnusableTopologyError, match="no Redis Cluster"):
        await asked.check()
    await nodes.aclose()
    await asked.aclose()


async def test_a_killed_master_takes_only_its_own_limits_and_models_away_until_its_replica_is_master(
    cluster: RedisCluster, processes: list[Process]
) -> None:
    cluster.set("cluster-replica-no-failover", "yes")  # until the test has seen what is away
    nodes, boards = processes[0].leases.nodes, [each.board for each in processes[:2]]
    dead, *alive = nodes.shards
    clients = {shard: client_at(nodes, shard, "rpm") for shard in nodes.shards}
    models = {shard: model_at(nodes, shard) for shard in nodes.shards}
    limited, limit = client_at(nodes, dead, "usd_per_day"), {"usd_per_day": 12.0}
    victim = cluster.node_at(nodes.address(dead))

    def is_away() -> bool:
        return all(each.leases.shards[dead].link.is_away for each in processes)

    async with loaded(processes, clients.values()):
        for model in models.values():
            boards[0].add(model, {"a|n": 1.0}, NOW_S)
        await agree(boards)
        for each in processes:
            each.end(await each.begin(limited, limit, usd=1.0), 1.0)
        await until(lambda: all(each.quota(limited).elsewhere.used == 2.0 for each in processes))

        victim.kill()
        await until(is_away)
        await until_answered(processes, [clients[shard] for shard in alive])
        assert is_away()
        for model in models.values():
            boards[1].add(model, {"a|n": 1.0}, NOW_S)
        for board in reversed(boards):
            assert not await board.sync()
        assert standings(boards[0], [models[shard] for shard in alive]) == [2.0, 2.0]
        spent = 3.0 + await use_up(processes, limited, limit, 0.1, least=0.1)
        assert spent <= 12.0 + 1e-6

        cluster.set("cluster-node-timeout", "2000")
        cluster.set("cluster-replica-no-failover", "no")
        await until(lambda: all(each.leases.connected for each in processes))
        await until(lambda: not any(each.quota(limited).lease.is_share for each in processes))
        spent += await use_up(processes, limited, limit, 0.1, least=11.5 - spent)
        assert spent <= 12.0 + 1e-6
        await agree(boards)
        assert [standings(board, models.values()) for board in boards] == [[2.0, 2.0, 2.0]] * 2
    victim.start()
    cluster.until_whole()
    cluster.set("cluster-node-timeout", "60000")


async def test_a_limit_whose_slot_moves_is_exact_all_the_while(cluster: RedisCluster, processes: list[Process]) -> None:
    nodes, (one, *_) = processes[0].leases.nodes, processes
    here, there, _ = nodes.shards
    client, limit = client_at(nodes, here, "rpm"), {"rpm": 60.0}
    one.end(await one.begin(client, limit))
    key = key_of(one.quota(client))
    await until(lambda: one.reported_at_s(client) > 0.0)  # there is a key that can be moved
    source, target = (cluster.node_at(nodes.address(shard)) for shard in (here, there))
    slot = source.say("CLUSTER", "KEYSLOT", key)
    target.say("CLUSTER", "SETSLOT", slot, "IMPORTING", source.say("CLUSTER", "MYID"))
    source.say("CLUSTER", "SETSLOT", slot, "MIGRATING", target.say("CLUSTER", "MYID"))
    source.say("MIGRATE", "127.0.0.1", target.port, key, 0, int(PATIENCE_S * 1000))

    assert await use_up([one], client, limit, least=59.0) == 59.0  # with a share it would be a third of that
    assert nodes.shard_of(key) == here
    for node in (target, source):
        node.say("CLUSTER", "SETSLOT", slot, "NODE", target.say("CLUSTER", "MYID"))
    await until(lambda: nodes.shard_of(key) == there)
    assert [await spend(each, client, limit) for each in processes] == [0.0, 0.0, 0.0]


async def until_answered(processes: list[Process], clients: list[str]) -> None:
    """Wait until Redis has answered another report of each process on each client's limit."""
    before_s = time.monotonic()
    await until(lambda: all(each.reported_at_s(client) > before_s for each in processes for client in clients))
