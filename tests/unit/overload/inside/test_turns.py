"""What the limit learns of the loop: the length of its turns, wherever in them its timer is due."""

import asyncio
import time
from itertools import cycle
from statistics import median

import pytest
import uvloop

from gateway.overload.loop_delay import PERIOD_S, LoopDelay
from tests.unit.racing.virtual_time import VirtualTimeLoop

FOR_S = 1.0


def measured(*turns_s: float) -> tuple[list[float], list[float]]:
    """Return the delays and the lengths of turns that are measured while turns take ``turns_s``, again and again."""
    loop, lengths = VirtualTimeLoop(), cycle(turns_s)
    delays, turns = list[float](), list[float]()
    delay = LoopDelay(clock=loop.time, is_busy=lambda: True, on_tick=delays.append, on_turns=turns.append)

    async def work() -> None:
        delay.start()
        delay.wake()
        end_s = loop.now + FOR_S
        while loop.now < end_s:
            loop.now += next(lengths)
            await asyncio.sleep(0)
        delay.close()

    try:
        loop.run_until_complete(work())
    finally:
        loop.close()
    return delays, turns


@pytest.mark.parametrize("turn_s", [0.002, 0.0095, 0.0105, 0.019, 0.021, 0.035])
def test_a_turn_is_as_long_as_it_is_wherever_the_timer_is_due(turn_s: float) -> None:
    _, turns = measured(turn_s)
    assert len(turns) >= 5
    assert median(turns) == pytest.approx(turn_s)


def test_very_long_turns_are_long_even_by_how_late_the_timer_is() -> None:
    _, turns = measured(0.2)
    assert len(turns) >= 2
    assert min(turns) >= 0.1


def test_very_long_turns_are_as_long_in_uvloop_whose_timers_run_sooner() -> None:
    loop, turns, turn_s = uvloop.new_event_loop(), list[float](), 0.09
    delay = LoopDelay(clock=time.monotonic, is_busy=lambda: True, on_tick=lambda _: None, on_turns=turns.append)

    async def work() -> None:
        delay.start()
        delay.wake()
        for _ in range(6):
            until_s = time.monotonic() + turn_s
            while time.monotonic() < until_s:
                pass
            await asyncio.sleep(0)
        delay.close()

    try:
        loop.run_until_complete(work())
    finally:
        loop.close()
    assert len(turns) >= 2
    assert min(turns) >= turn_s - PERIOD_S


def test_two_turns_of_which_one_wakes_what_works_in_the_other_count_as_equal() -> None:
    _, turns = measured(0.0, 0.03)
    assert median(turns) == pytest.approx(0.015)


def test_how_late_the_timer_is_says_little_of_it() -> None:
    """It is set in one turn, and so due at the same place of a later one, always."""
    shorter, longer = measured(0.95 * PERIOD_S)[0], measured(1.05 * PERIOD_S)[0]
    assert median(shorter) > 1.5 * median(longer)
