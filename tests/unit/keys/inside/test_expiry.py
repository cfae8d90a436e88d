"""Keys end at their instant, without anybody asking."""

import asyncio
from datetime import timedelta

import pytest

from gateway.core.errors import CutByExpiry
from gateway.keys import Ended, KeyTable
from gateway.keys.keys import LONGEST_S, Expiry
from tests.unit.keys.given import NOW, Clock, digest, row


class Timed:
    """A table with one key that ends, and its timer."""

    def __init__(self, ends_in_s: float) -> None:
        self.clock = Clock()
        self.table: KeyTable[str] = KeyTable(lambda name, _: name, {}, stored=True, unix_clock=self.clock)
        self.table.learn({"app": [row(1, expires_at=NOW + timedelta(seconds=ends_in_s))]})
        self.table.use_rows()
        self.expiry = Expiry(self.table, self.clock)
        self.ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self.table.on_ended = self.ended.set_result

    @property
    def waits_s(self) -> float | None:
        timer = self.expiry._timer
        return None if timer is None else timer.when() - asyncio.get_running_loop().time()


async def test_a_key_ends_when_its_time_has_come() -> None:
    timed = Timed(ends_in_s=0.01)
    timed.expiry.arm()
    timed.clock.move(0.01)

    assert await timed.ended == {digest(1): CutByExpiry}
    assert timed.waits_s is None


async def test_the_timer_is_that_of_the_next_end_but_asks_the_clock_each_minute() -> None:
    timed = Timed(ends_in_s=30)
    timed.expiry.arm()
    assert timed.waits_s == pytest.approx(30, abs=1)
    timed.expiry.close()
    assert timed.waits_s is None

    timed = Timed(ends_in_s=10**9)
    timed.expiry.arm()
    assert timed.waits_s == pytest.approx(LONGEST_S, abs=1)
    timed.expiry.close()


async def test_a_timer_that_fires_too_early_is_set_again() -> None:
    timed = Timed(ends_in_s=0.005)
    timed.expiry.arm()
    fired = asyncio.Event()
    arm = timed.expiry.arm

    def armed_again() -> None:
        fired.set()
        arm()

    timed.expiry.arm = armed_again  # type: ignore[method-assign] # to see that it was
    await fired.wait()
    assert not timed.ended.done()  # by the clock it is not time yet
    timed.clock.move(1)
    assert await timed.ended == {digest(1): CutByExpiry}
