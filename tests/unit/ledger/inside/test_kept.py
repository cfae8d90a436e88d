"""Answers of reports that are shared."""

import asyncio
from collections.abc import Awaitable

import pytest

from gateway.ledger.reports.reports import MOST_KEPT, TtlCache


class Asked:
    """Counts questions; each waits until ``answer`` is called."""

    def __init__(self) -> None:
        self.begun = self.cut = 0
        self._may_answer = asyncio.Event()

    def answer(self) -> None:
        self._may_answer.set()

    async def __call__(self) -> int:
        self.begun += 1
        try:
            await self._may_answer.wait()
        except asyncio.CancelledError:
            self.cut += 1
            raise
        return self.begun


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


async def started(*calls: Awaitable[int]) -> list[asyncio.Future[int]]:
    tasks: list[asyncio.Future[int]] = [asyncio.ensure_future(call) for call in calls]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


async def test_who_asks_the_same_at_once_shares_one_answer() -> None:
    kept, asked = TtlCache(clock=Clock()), Asked()
    both = await started(kept.get("day", asked), kept.get("day", asked), kept.get("week", asked))
    asked.answer()
    assert await asyncio.gather(*both) == [2, 2, 2]
    assert asked.begun == 2


async def test_what_was_soon_found_is_not_kept_as_long() -> None:
    clock, asked = Clock(), Asked()
    kept = TtlCache(clock=clock, kept_s=300, times=10)
    [first] = await started(kept.get("day", asked))
    clock.now += 2
    asked.answer()
    assert await first == 1
    clock.now += 17
    assert await kept.get("day", asked) == 1
    clock.now += 1
    assert await kept.get("day", asked) == 2


async def test_an_answer_is_kept_for_its_time_and_then_asked_for_again() -> None:
    clock, asked = Clock(), Asked()
    kept = TtlCache(clock=clock, kept_s=10)
    asked.answer()
    assert [await kept.get("day", asked) for _ in range(2)] == [1, 1]
    clock.now += 10
    assert await kept.get("day", asked) == 2


async def test_who_leaves_takes_no_answer_from_others_and_the_last_one_stops_the_question() -> None:
    kept, asked = TtlCache(clock=Clock()), Asked()
    first, second = await started(kept.get("day", asked), kept.get("day", asked))
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert (asked.cut, second.done()) == (0, False)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    await asyncio.sleep(0)
    assert asked.cut == 1
    asked.answer()
    assert await kept.get("day", asked) == 2


async def test_an_error_is_everybodys_who_waited_and_nobodys_after() -> None:
    kept = TtlCache(clock=Clock())

    async def fails() -> int:
        await asyncio.sleep(0)
        raise ValueError("away")

    both = await asyncio.gather(kept.get("day", fails), kept.get("day", fails), return_exceptions=True)
    assert [str(each) for each in both] == ["away", "away"]
    asked = Asked()
    asked.answer()
    assert await kept.get("day", asked) == 1


async def test_the_oldest_answers_make_room_for_new_ones() -> None:
    kept, asked = TtlCache(clock=Clock()), Asked()
    asked.answer()
    for number in range(MOST_KEPT + 1):
        await kept.get(number, asked)
    begun = asked.begun
    await kept.get(MOST_KEPT, asked)
    assert asked.begun == begun
    await kept.get(0, asked)
    assert asked.begun == begun + 1


async def test_closing_stops_what_is_asked() -> None:
    kept, asked = TtlCache(clock=Clock()), Asked()
    (waiting,) = await started(kept.get("day", asked))
    await kept.aclose()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert asked.cut == 1
