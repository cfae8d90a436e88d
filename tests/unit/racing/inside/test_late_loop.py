"""A time-out that the event loop itself has caused: what arrived meanwhile is read before it counts."""

import asyncio

import pytest

from gateway.fleet import Clocks
from gateway.racing import AttemptClocks, Pauses
from gateway.racing.timeouts import LATE_S, MOST_WAITS, READ_S, DeltaKind
from providers import ErrorKind
from tests.unit.racing.virtual_time import run, virtual_loop

CLOCKS = Clocks(connect_s=1.0, ttft_s=4.0, stall_s=2.0, total_s=None)


class _Loop:
    """Runs an attempt that waits, in a loop that stands still."""

    def __init__(self) -> None:
        self.loop = loop = virtual_loop()
        self.task = loop.create_task(asyncio.Event().wait())
        self.clocks = AttemptClocks(CLOCKS, self.task, loop.time, loop, Pauses())  # type: ignore[arg-type] # its result is not used

    async def stand_still(self, seconds: float) -> None:
        """Wait for nothing while the clock goes on; then let one turn of the loop pass."""
        self.loop.now += seconds
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def end(self) -> None:
        self.clocks.forget()
        self.task.cancel()
        await asyncio.wait({self.task})


def test_data_that_came_while_the_loop_stood_still_is_read_before_an_attempt_times_out() -> None:
    async def stands_still() -> None:
        looped = _Loop()
        await looped.stand_still(CLOCKS.ttft_s + 1)
        looped.clocks.event(looped.loop.time(), DeltaKind.TEXT, meaningful=True)
        await asyncio.sleep(CLOCKS.stall_s - LATE_S)
        assert not looped.task.done()
        await asyncio.sleep(2 * LATE_S)
        assert looped.task.done()
        assert (told := looped.clocks._expired) is not None
        assert told.kind is ErrorKind.STALL_TIMEOUT
        await looped.end()

    run(stands_still())


def test_a_provider_that_sent_nothing_meanwhile_times_out_a_moment_later() -> None:
    async def stands_still() -> None:
        looped = _Loop()
        await looped.stand_still(CLOCKS.ttft_s + 1)
        assert not looped.task.cancelling()
        await asyncio.sleep(2 * READ_S)
        assert looped.task.done()
        await looped.end()

    run(stands_still())


def test_a_loop_that_stands_still_all_the_time_ends_attempts_nevertheless() -> None:
    async def stands_still() -> None:
        looped = _Loop()
        waits = 0
        while not looped.task.cancelling() and not looped.task.done():
            await looped.stand_still(CLOCKS.ttft_s + 1)
            waits += 1
        assert waits == MOST_WAITS + 1
        await looped.end()

    run(stands_still())


@pytest.mark.parametrize("late_s", [0.0, LATE_S / 2])
def test_a_timer_in_time_ends_an_attempt_at_once(late_s: float) -> None:
    async def waits() -> None:
        looped = _Loop()
        await asyncio.sleep(CLOCKS.ttft_s - 1)
        await looped.stand_still(1 + late_s)
        assert looped.task.cancelling() or looped.task.done()
        await looped.end()

    run(waits())


def test_an_attempt_does_not_time_out_while_its_first_event_is_looked_at() -> None:
    async def looks() -> None:
        looped = _Loop()
        looped.clocks.pause(looped.loop.time())
        await asyncio.sleep(CLOCKS.ttft_s + 1)
        assert not looped.task.done()
        looped.clocks.resume()
        await asyncio.sleep(CLOCKS.ttft_s)
        assert (told := looped.clocks._expired) is not None
        assert told.kind is ErrorKind.TTFT_TIMEOUT
        await looped.end()

    run(looks())
