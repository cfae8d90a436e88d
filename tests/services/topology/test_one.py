"""Limits and standings over one Redis, by the same processes as those over a Cluster or Sentinels."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager

import pytest

from tests.patience import until
from tests.services.topology.process import NOW_S, Process, agree, burst, standings, use_up
from tests.support.relay import Relay
from tests.support.servers import RedisNode

LIMIT = {"usd_per_day": 12.0}


@asynccontextmanager
async def spending_pair(url: str) -> AsyncIterator[list[Process]]:
    """Two processes that know that the other has spent one dollar, and counted an answer."""
    async with AsyncExitStack() as stack:
        pair = [await stack.enter_async_context(Process(url, number)) for number in range(2)]
        for each in pair:
            each.end(await each.begin("limited", LIMIT, usd=1.0), 1.0)
            each.board.add("model", {"a|n": 1.0}, NOW_S)
        await agree([each.board for each in pair])
        await until(lambda: all(each.quota("limited").elsewhere.used == 1.0 for each in pair))
        yield pair


async def until_leased_again(pair: list[Process]) -> None:
    await until(lambda: all(each.leases.connected for each in pair))
    await until(lambda: not any(each.quota("limited").lease.is_share for each in pair))


async def test_of_240_calls_at_three_processes_a_limit_of_60_admits_60_and_no_more(redis_url: str) -> None:
    async with AsyncExitStack() as stack:
        processes = [await stack.enter_async_context(Process(redis_url, number)) for number in range(3)]
        for client in ("ann", "ben", "cleo", "dan"):
            admitted = await burst(processes, client, {"rpm": 60.0}, 240)
            assert admitted <= 60
            assert admitted + await use_up(processes, client, {"rpm": 60.0}, least=60.0 - admitted) == 60.0


async def test_how_long_the_last_round_took_is_known(redis_url: str) -> None:
    async with Process(redis_url, 0) as process:
        await process.begin("ann", {"rpm": 60.0})
        await process.board.sync()
        assert process.leases.took_s > 0.0
        assert process.board.nodes.took_s > 0.0


@pytest.mark.usefixtures("redis_binary")
async def test_a_redis_whose_memory_is_full_is_as_one_that_is_away_until_there_is_room() -> None:
    with ExitStack() as stack:
        server = RedisNode(stack, 'save ""', "maxmemory-policy noeviction")
        server.start()
        async with spending_pair(f"redis://127.0.0.1:{server.port}/0") as pair:
            server.say("CONFIG", "SET", "maxmemory", 1)
            await until(lambda: not any(each.leases.connected for each in pair))
            pair[0].board.add("model", {"a|n": 1.0}, NOW_S)
            assert not await pair[0].board.sync()  # it has something to write
            spent = 2.0 + await use_up(pair, "limited", LIMIT, 0.1, least=0.1)
            assert spent <= 12.0 + 1e-6

            server.say("CONFIG", "SET", "maxmemory", 0)
            await until_leased_again(pair)
            assert spent + await use_up(pair, "limited", LIMIT, 0.1, least=11.5 - spent) <= 12.0 + 1e-6
            await agree([each.board for each in pair])
            assert [standings(each.board, ["model"]) for each in pair] == [[3.0], [3.0]]


@pytest.mark.usefixtures("redis_binary")
async def test_a_replica_that_takes_over_is_told_again_what_was_used_in_the_second_that_it_has_not_heard_of() -> None:
    with ExitStack() as stack:
        master, replica = (RedisNode(stack, 'save ""', "repl-diskless-sync-delay 0") for _ in range(2))
        for node in (master, replica):
            node.start()
        replication, name = Relay("127.0.0.1", master.port), Relay("127.0.0.1", master.port)
        await replication.listen()
        await name.listen()
        replica.say("REPLICAOF", "127.0.0.1", replication.port)
        await until(lambda: bool(replica.say("INFO", "replication")["master_link_status"] == "up"))
        async with spending_pair(f"redis://127.0.0.1:{name.port}/0") as pair:
            await until(lambda: bool(replica.say("DBSIZE") == master.say("DBSIZE")))
            replication.hang()
            for each in pair:
                each.end(await each.begin("limited", LIMIT, usd=2.0), 2.0)
                each.board.add("model", {"a|n": 1.0}, NOW_S)
            await agree([each.board for each in pair])
            await until(lambda: all(each.quota("limited").elsewhere.used == 3.0 for each in pair))

            await name.cut()
            await until(lambda: not any(each.leases.connected for each in pair))
            await replication.cut()
            replica.say("REPLICAOF", "NO", "ONE")
            name.lead_to("127.0.0.1", replica.port)
            await name.listen()
            await until_leased_again(pair)
            assert 6.0 + await use_up(pair, "limited", LIMIT, 0.1, least=5.5) <= 12.0 + 1e-6
            await agree([each.board for each in pair])
            assert [standings(each.board, ["model"]) for each in pair] == [[2.0], [2.0]]  # these samples are lost
        await name.cut()
