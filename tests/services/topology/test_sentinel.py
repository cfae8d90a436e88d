"""Limits and standings over a real master that three Sentinels watch, with a replica that takes over."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest

from gateway.topology import UnusableTopologyError, connect
from tests.patience import until
from tests.services.topology.process import NOW_S, Process, agree, loaded, standings, use_up
from tests.support.servers import RedisNode, redis_sentinels


@pytest.fixture(scope="module")
def sentinels(redis_binary: None) -> Iterator[tuple[str, list[RedisNode]]]:
    with redis_sentinels() as found:
        yield found


@pytest.fixture
async def processes(sentinels: tuple[str, list[RedisNode]]) -> AsyncIterator[list[Process]]:
    async with AsyncExitStack() as stack:
        made = [Process(sentinels[0], number) for number in range(2)]
        for each in made:
            await stack.enter_async_context(each)
        yield made


async def test_a_service_is_named_and_another_one_is_not_known(sentinels: tuple[str, list[RedisNode]]) -> None:
    url, (master, _) = sentinels
    nodes, another = connect(url), connect(url.replace("/main", "/another"))
    await nodes.check()
    assert nodes.name == "redis sentinel, service main"
    assert await nodes.doubts() == []
    with pytest.raises(UnusableTopologyError, match=r"knows the service 'another'; they know 'main'"):
        await another.check()
    no_sentinel = connect(f"redis+sentinel://127.0.0.1:{master.port}/main")
    with pytest.raises(UnusableTopologyError, match="is no Sentinel"):
        await no_sentinel.check()
    sentinel = connect(f"redis://{url.removeprefix('redis+sentinel://').partition(',')[0]}")
    with pytest.raises(UnusableTopologyError, match="names a Sentinel"):
        await sentinel.check()
    for each in (nodes, another, no_sentinel, sentinel):
        await each.aclose()


async def test_when_the_master_is_killed_limits_and_standings_go_on_at_its_replica(
    sentinels: tuple[str, list[RedisNode]], processes: list[Process]
) -> None:
    (master, _), boards = sentinels[1], [each.board for each in processes]
    limit = {"usd_per_day": 12.0}
    async with loaded(processes, ["busy"]):
        for each in processes:
            each.end(await each.begin("limited", limit, usd=1.0), 1.0)
            each.board.add("model", {"a|n": 1.0}, NOW_S)
        await agree(boards)
        await until(lambda: all(each.quota("limited").elsewhere.used == 1.0 for each in processes))

        master.kill()
        await until(lambda: not any(each.leases.connected for each in processes))
        boards[0].add("model", {"a|n": 1.0}, NOW_S)
        await until(lambda: all(each.leases.connected for each in processes))
        await until(lambda: not any(each.quota("limited").lease.is_share for each in processes))
        assert 2.0 + await use_up(processes, "limited", limit, 0.1, least=9.5) <= 12.0 + 1e-6
        await agree(boards)
        assert [standings(board, ["model"]) for board in boards] == [[3.0], [3.0]]
