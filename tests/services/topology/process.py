"""One gateway process as far as Redis goes, whatever that consists of: for the tests of each topology."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from math import inf
from typing import Self

import msgspec

from gateway.limits import USUAL, LimitReached, Limits, Payer, SharedLeases, Use, level_of_key
from gateway.limits.quota import Quota
from gateway.steering import RedisBoard
from gateway.topology import connect
from tests.patience import PATIENCE_S, eventually, until_for_good
from tests.unit.limits.inside.test_limits import attempt, record

MODEL = Payer("llama", "llama")
NOW_S = 1_800_000_000.0  # stands still: no window ends
# A machine that stands still for a moment makes nobody be taken for dead, nor Redis for away.
TIMES = msgspec.structs.replace(
    USUAL, round_s=0.05, repeat_s=0.05, lease_s=60.0, process_s=600.0, silent_s=600.0, timeout_s=PATIENCE_S
)


class StandingLeases(SharedLeases):
    """Leases whose time stands still, whatever Redis' clock shows."""

    def unix_clock(self) -> float:
        return NOW_S


class Process:
    """One gateway process: its limits and its board."""

    def __init__(self, url: str, number: int) -> None:
        self.leases = StandingLeases(
            connect(url, PATIENCE_S),
            clock=time.monotonic,
            unix_clock=lambda: NOW_S,
            new_id=lambda: f"p{number}",
            times=TIMES,
        )
        self.limits = Limits(self.leases, clock=time.monotonic, unix_clock=lambda: NOW_S)
        self.board = RedisBoard(connect(url, PATIENCE_S), unix_clock=lambda: NOW_S)
        self._ids = (f"{number}-{each}" for each in count())

    async def __aenter__(self) -> Self:
        await self.leases.start()
        await self.board.sync()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leases.close()
        await self.board.close()

    async def begin(self, client: str, limits: dict[str, float], **use: float) -> str:
        call_id = next(self._ids)
        await self.limits.hold(call_id, [level_of_key(client, limits)], MODEL, Use(**use))
        return call_id

    def end(self, call_id: str, usd: float = 0.0) -> None:
        self.limits.call_finished(record(call_id, attempt(usd), tokens=(0, 0)))

    def quota(self, client: str) -> Quota:
        (quota,) = self.limits._accounts[f"client:{client}"].quotas(NOW_S)
        return quota

    def reported_at_s(self, client: str) -> float:
        """When Redis last answered a report on the client's only quota."""
        reported = self.quota(client).reported
        return reported.at_s if reported is not None else -inf


async def spend(process: Process, client: str, limits: dict[str, float], usd: float = 1.0) -> float:
    """Make calls of ``usd`` until the limit is reached in many looks in a row; return what they cost."""
    spent = 0.0

    async def is_refused() -> bool:
        nonlocal spent
        try:
            call = await process.begin(client, limits, usd=usd)
        except LimitReached:
            return True
        process.end(call, usd)
        spent += usd
        return False

    await until_for_good(is_refused, looks=10)
    return spent


async def use_up(
    processes: Sequence[Process], client: str, limits: dict[str, float], usd: float = 1.0, *, least: float
) -> float:
    """Make calls of ``usd`` at all processes until at least ``least`` and no more is to be had; return their sum."""
    spent = 0.0
    async with asyncio.timeout(PATIENCE_S):
        while spent < least:
            spent += sum(await asyncio.gather(*(spend(each, client, limits, usd) for each in processes)))
    return spent


async def burst(processes: Sequence[Process], client: str, limits: dict[str, float], calls: int) -> int:
    """Make calls at once, at each process as many; return how many were admitted."""
    asked = (each.begin(client, limits) for each in processes for _ in range(calls // len(processes)))
    begun = await asyncio.gather(*asked, return_exceptions=True)
    for answer in begun:
        assert isinstance(answer, str | LimitReached)
    return sum(isinstance(answer, str) for answer in begun)


@asynccontextmanager
async def loaded(processes: Sequence[Process], clients: Iterable[str]) -> AsyncIterator[None]:
    """Make calls of ``clients`` at all processes all the while; fails as soon as one is refused."""
    stopped = asyncio.get_running_loop().create_future()

    async def load() -> None:
        while not stopped.done():
            for client in clients:
                for each in processes:
                    each.end(await each.begin(client, {"rpm": 1e6}))
            await asyncio.wait({stopped}, timeout=0.01)

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(load())
        yield
        stopped.set_result(None)


async def agree(boards: Sequence[RedisBoard]) -> None:
    """Have the boards exchange what they have, as soon as all of Redis answers, until each has all."""

    async def all_are_told() -> bool:
        return all([await board.sync() for board in boards])

    for _ in range(2):
        await eventually(all_are_told)


def standings(board: RedisBoard, models: Iterable[str]) -> list[float]:
    """Return how many answers the board counts for each model."""
    return [board.counts(model, NOW_S, half_life_s=inf).get("a|n", 0.0) for model in models]
