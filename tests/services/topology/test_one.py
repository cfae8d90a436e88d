"""Limits over one Redis, by the same processes as those over a Cluster or Sentinels."""

from contextlib import AsyncExitStack

from tests.services.topology.process import Process, burst, use_up


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
