"""How many calls begin in one turn of the loop, and in which order."""

import asyncio

from gateway.ingress.turnstile import PATIENCE_S, Turnstile
from tests.unit.racing.virtual_time import VirtualTimeLoop, run

PER_TURN = 4


async def entered(turnstile: Turnstile, name: int, begun: list[int]) -> None:
    turn = turnstile.enter()
    if turn is not None:
        await turn
    begun.append(name)


async def test_a_call_that_comes_alone_waits_for_nothing() -> None:
    turnstile = Turnstile(PER_TURN)
    for _ in range(10):
        assert turnstile.enter() is None
        await asyncio.sleep(0)


async def test_of_a_crowd_so_many_begin_in_each_turn_in_the_order_in_which_they_came() -> None:
    turnstile = Turnstile(PER_TURN)
    begun: list[int] = []
    crowd = [asyncio.create_task(entered(turnstile, number, begun)) for number in range(3 * PER_TURN)]
    turns = []
    while len(begun) < len(crowd):
        before = len(begun)
        await asyncio.sleep(0)
        turns.append(len(begun) - before)
    assert max(turns) == PER_TURN
    assert begun == list(range(len(crowd)))


async def test_who_comes_while_others_wait_begins_after_them() -> None:
    turnstile = Turnstile(PER_TURN)
    begun: list[int] = []
    crowd = [asyncio.create_task(entered(turnstile, number, begun)) for number in range(2 * PER_TURN)]
    await asyncio.sleep(0)
    crowd.append(asyncio.create_task(entered(turnstile, -1, begun)))
    await asyncio.gather(*crowd)
    assert begun[-1] == -1


async def test_who_has_gone_takes_nobodys_turn() -> None:
    turnstile = Turnstile(PER_TURN)
    begun: list[int] = []
    crowd = [asyncio.create_task(entered(turnstile, number, begun)) for number in range(3 * PER_TURN)]
    await asyncio.sleep(0)
    for gone in crowd[PER_TURN : 2 * PER_TURN]:
        gone.cancel()
    await asyncio.wait(crowd)
    assert begun == [*range(PER_TURN), *range(2 * PER_TURN, 3 * PER_TURN)]
    assert turnstile.enter() is None


def test_where_turns_are_long_nobody_waits_for_many_of_them() -> None:
    async def crowd() -> float:
        turnstile, begun = Turnstile(PER_TURN), list[int]()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        began = loop.time()
        calls = [asyncio.create_task(entered(turnstile, number, begun)) for number in range(100 * PER_TURN)]
        while len(begun) < len(calls):
            loop.now += PATIENCE_S / 4  # what else there is in each turn
            await asyncio.sleep(0)
        return loop.time() - began

    assert run(crowd()) <= 2 * PATIENCE_S
