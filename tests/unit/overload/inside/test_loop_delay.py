"""The event loop's delay: measured by a timer while there is work, on a clock that the test moves."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from gateway.overload.loop_delay import PEAK_WINDOW_S, PERIOD_S, LoopDelay
from tests.unit.racing import virtual_time


class Loop:
    """A loop in virtual time that can be held up, and what is measured of it."""

    def __init__(self) -> None:
        self.is_busy = True
        self.ticks: list[float] = []
        self.held_up_s = 0.0  # time in which the loop ran nothing
        self.delay = LoopDelay(clock=self.clock, is_busy=lambda: self.is_busy, on_tick=self.ticks.append)

    def clock(self) -> float:
        return asyncio.get_running_loop().time() + self.held_up_s

    async def measured(self, *held_up_s: float) -> None:
        """Let the timer run once for each, held up for so long."""
        for each in held_up_s:
            self.held_up_s += each
            await asyncio.sleep(PERIOD_S)


def run(main: Coroutine[Any, Any, None]) -> None:
    virtual_time.run(main)


def test_a_delay_is_how_late_the_timer_runs() -> None:
    async def main() -> None:
        loop = Loop()
        loop.delay.start()
        loop.delay.wake()
        await loop.measured(0.0, 0.05, 0.0, 0.1)
        assert loop.ticks == pytest.approx([0.0, 0.05, 0.0, 0.1])
        assert loop.delay.total_s == pytest.approx(0.15)
        assert loop.delay.peak_s() == pytest.approx(0.1)
        assert 0.0 < loop.delay.smoothed_s < 0.1
        loop.delay.close()

    run(main())


def test_what_is_late_now_counts_before_the_timer_has_run() -> None:
    async def main() -> None:
        loop = Loop()
        loop.delay.start()
        loop.delay.wake()
        assert loop.delay.due_s == pytest.approx(loop.clock() + PERIOD_S)
        loop.held_up_s += PERIOD_S + 2.0
        assert loop.delay.peak_s() == pytest.approx(2.0)
        loop.delay.close()

    run(main())


def test_an_idle_gateway_has_no_timer_and_no_delay() -> None:
    async def main() -> None:
        loop = Loop()
        loop.delay.start()
        loop.delay.wake()
        await loop.measured(1.0)
        loop.is_busy = False
        await loop.measured(0.0)
        assert loop.delay.smoothed_s == 0.0
        await asyncio.sleep(10)
        assert len(loop.ticks) == 2
        loop.is_busy = True
        loop.delay.wake()
        await loop.measured(0.0, 0.0)
        assert len(loop.ticks) == 4
        assert loop.delay.total_s == pytest.approx(1.0)  # it only grows
        loop.delay.close()

    run(main())


def test_a_peak_is_forgotten_after_ten_to_twenty_seconds() -> None:
    async def main() -> None:
        loop = Loop()
        loop.delay.start()
        loop.delay.wake()
        await loop.measured(0.5)
        await asyncio.sleep(PEAK_WINDOW_S - 1)
        assert loop.delay.peak_s() == pytest.approx(0.5)
        await asyncio.sleep(PEAK_WINDOW_S + 2)
        assert loop.delay.peak_s() < 0.1
        loop.delay.close()

    run(main())


def test_before_the_start_and_after_the_end_nothing_is_measured() -> None:
    async def main() -> None:
        loop = Loop()
        loop.delay.wake()
        await asyncio.sleep(1)
        loop.delay.start()
        loop.delay.close()
        loop.delay.wake()
        await asyncio.sleep(1)
        assert loop.ticks == []

    run(main())
