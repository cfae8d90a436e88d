"""Answers to wrong keys, in virtual time: the first few at once, further ones later, never too many waiting."""

import asyncio
from collections.abc import Iterable

import pytest

from gateway.access import WrongKeyCounter
from gateway.access.auth import ADDRESSES, FREE, LONGEST_S, WAITING, WAITING_PER_ADDRESS
from tests.unit.racing.virtual_time import run

HERE, THERE = "192.0.2.1", "192.0.2.2"


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def took_s(wrong_keys: WrongKeyCounter, address: str | None = HERE) -> float:
    began_s = now_s()
    assert await wrong_keys.hold(address)
    return now_s() - began_s


async def guess(wrong_keys: WrongKeyCounter, times: int, address: str = HERE) -> None:
    for _ in range(times):
        await wrong_keys.hold(address)


async def started(holds: Iterable[asyncio.Task[bool]]) -> list[asyncio.Task[bool]]:
    tasks = list(holds)
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


def hold(wrong_keys: WrongKeyCounter, address: str = HERE) -> asyncio.Task[bool]:
    return asyncio.get_running_loop().create_task(wrong_keys.hold(address))


def test_the_first_five_are_answered_at_once_and_each_further_one_later() -> None:
    async def main() -> list[float]:
        wrong_keys = WrongKeyCounter()
        wait_s = [await took_s(wrong_keys) for _ in range(FREE)]
        at_once = [hold(wrong_keys) for _ in range(8)]  # together, so that nothing is forgotten meanwhile
        began_s = now_s()
        for task in at_once:
            await task
            wait_s.append(now_s() - began_s)
        assert wrong_keys.delayed == 8
        return wait_s

    assert run(main()) == pytest.approx([0.0] * FREE + [0.25, 0.5, 1.0, 2.0, 4.0, LONGEST_S, LONGEST_S, LONGEST_S])


def test_who_tries_one_after_the_other_waits_longer_and_longer() -> None:
    async def main() -> list[float]:
        wrong_keys = WrongKeyCounter()
        return [await took_s(wrong_keys) for _ in range(60)]

    wait_s = run(main())
    assert wait_s[:FREE] == [0.0] * FREE
    assert wait_s == sorted(wait_s)
    assert wait_s[-1] == LONGEST_S
    assert sum(wait_s) > 200  # sixty keys take minutes


def test_five_a_minute_are_never_delayed() -> None:
    async def main() -> float:
        wrong_keys, waited_s = WrongKeyCounter(), 0.0
        for _ in range(100):
            waited_s += await took_s(wrong_keys)
            await asyncio.sleep(12.0)
        return waited_s

    assert run(main()) == 0.0


def test_an_address_is_forgotten_after_two_quiet_minutes() -> None:
    async def main() -> None:
        wrong_keys = WrongKeyCounter()
        await guess(wrong_keys, 50)
        assert wrong_keys.guessing(now_s()) == 1
        await asyncio.sleep(60.0)
        assert await took_s(wrong_keys) > 0.0
        await asyncio.sleep(133.0)
        assert wrong_keys.guessing(now_s()) == 0
        assert [await took_s(wrong_keys) for _ in range(FREE)] == [0.0] * FREE

    run(main())


@pytest.mark.parametrize(
    ("other", "is_same"),
    [(THERE, False), ("2001:db8::1", False), (None, False), ("192.0.2.1:443", True), ("::ffff:192.0.2.1", True)],
)
def test_only_the_same_address_is_delayed(other: str | None, is_same: bool) -> None:
    async def main() -> float:
        wrong_keys = WrongKeyCounter()
        await guess(wrong_keys, 10)
        return await took_s(wrong_keys, other)

    assert (run(main()) > 0.0) is is_same


def test_all_addresses_of_an_ipv6_network_are_one() -> None:
    async def main() -> tuple[float, float]:
        wrong_keys = WrongKeyCounter()
        for host in range(10):
            await wrong_keys.hold(f"2001:db8::{host:x}")
        return await took_s(wrong_keys, "2001:db8::ffff"), await took_s(wrong_keys, "2001:db8:0:1::1")

    same, other = run(main())
    assert (same > 0.0, other) == (True, 0.0)


def test_one_address_holds_few_answers_and_the_others_come_at_once() -> None:
    async def main() -> None:
        wrong_keys = WrongKeyCounter()
        await guess(wrong_keys, FREE)
        waiting = await started(hold(wrong_keys) for _ in range(WAITING_PER_ADDRESS))
        assert wrong_keys.waiting == WAITING_PER_ADDRESS
        began_s = now_s()
        assert [await wrong_keys.hold(HERE) for _ in range(100)] == [False] * 100
        assert now_s() == began_s
        assert wrong_keys.at_once == 100
        assert await asyncio.gather(*waiting) == [True] * WAITING_PER_ADDRESS
        assert wrong_keys.waiting == 0

    run(main())


def test_all_addresses_together_hold_a_bounded_number_of_answers() -> None:
    async def main() -> None:
        wrong_keys = WrongKeyCounter()
        addresses = [f"198.51.100.{number}" for number in range(2 * WAITING // WAITING_PER_ADDRESS)]
        for address in addresses:
            await guess(wrong_keys, FREE, address)
        tasks = await started(hold(wrong_keys, address) for address in addresses for _ in range(WAITING_PER_ADDRESS))
        assert wrong_keys.waiting == WAITING
        assert sorted(await asyncio.gather(*tasks)) == [False] * WAITING + [True] * WAITING
        assert wrong_keys.waiting == 0

    run(main())


def test_who_hangs_up_gives_the_place_back_at_once() -> None:
    async def main() -> None:
        wrong_keys = WrongKeyCounter()
        await guess(wrong_keys, FREE)
        began_s = now_s()
        for _ in range(3):
            tasks = await started(hold(wrong_keys) for _ in range(WAITING_PER_ADDRESS))
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            assert all(task.cancelled() for task in tasks)
            assert wrong_keys.waiting == 0
        assert now_s() == began_s
        assert wrong_keys.at_once == 0

    run(main())


def test_nobody_waits_once_the_gateway_stops() -> None:
    async def main() -> None:
        wrong_keys = WrongKeyCounter()
        await guess(wrong_keys, FREE)
        waiting = await started(hold(wrong_keys) for _ in range(WAITING_PER_ADDRESS))
        began_s = now_s()
        wrong_keys.release()
        assert await asyncio.gather(*waiting) == [True] * WAITING_PER_ADDRESS
        assert await took_s(wrong_keys) == 0.0
        assert now_s() == began_s

    run(main())


def test_what_is_remembered_of_addresses_is_bounded_and_the_latest_are_known() -> None:
    async def main() -> None:
        wrong_keys = WrongKeyCounter()
        await guess(wrong_keys, FREE)
        for number in range(ADDRESSES - 1):
            await wrong_keys.hold(f"10.0.{number >> 8}.{number & 255}")
        assert await took_s(wrong_keys) > 0.0  # still known, and now the latest
        for number in range(ADDRESSES):
            await wrong_keys.hold(f"10.1.{number >> 8}.{number & 255}")
        assert len(wrong_keys._guessers) == ADDRESSES
        assert await took_s(wrong_keys) == 0.0

    run(main())


def test_an_address_that_is_forgotten_while_its_answers_wait_gives_its_places_back() -> None:
    async def main() -> None:
        wrong_keys = WrongKeyCounter()
        await guess(wrong_keys, FREE)
        waiting = await started(hold(wrong_keys) for _ in range(4))
        for number in range(ADDRESSES):
            await wrong_keys.hold(f"10.1.{number >> 8}.{number & 255}")
        await asyncio.gather(*waiting)
        assert wrong_keys.waiting == 0

    run(main())
