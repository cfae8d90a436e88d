"""A process in virtual time whose work costs time: while one call is worked on, all others wait, as in production."""

import asyncio
from random import Random
from typing import Any

import msgspec

from gateway.errors import Overloaded
from gateway.overload.intake import Intake
from gateway.settings.overload import OverloadSettings
from tests.unit.racing.virtual_time import VirtualTimeLoop

TTFT_S = 0.3  # of the provider
WORK_S = (0.0008, 0.0006, 0.0006)  # of a call: until its request is sent, until its answer is read, and for that
REFUSAL_S = 0.0001
CAPACITY_PER_S = 1 / sum(WORK_S)
FILLING_S, WINDOW_S = 3.0, 4.0


class Answers(msgspec.Struct, frozen=True):
    """What became of the calls that were due in the window."""

    ttfts_s: list[float]
    refused: int

    @property
    def good_per_s(self) -> float:
        """Answers that came within twice the time without load, per second."""
        return sum(each <= 2 * TTFT_S for each in self.ttfts_s) / WINDOW_S

    @property
    def ttft_p99_s(self) -> float:
        """The 99 % quantile of the time to first token."""
        return sorted(self.ttfts_s)[int(0.99 * (len(self.ttfts_s) - 1))]


def answers_under(times: float, **settings: Any) -> Answers:
    """Offer ``times`` the capacity, by chance, to a process with these settings of overload."""
    loop = VirtualTimeLoop()
    try:
        return loop.run_until_complete(_Process(loop, settings).serve(times * CAPACITY_PER_S))
    finally:
        loop.close()


class _Process:
    def __init__(self, loop: VirtualTimeLoop, settings: dict[str, Any]) -> None:
        self._loop = loop
        self._random = Random(1)
        self._intake = Intake(OverloadSettings(**settings), default_most=50_000, clock=loop.time)
        self._ttfts_s: list[float] = []
        self._refused = 0

    async def serve(self, rate_per_s: float) -> Answers:
        self._intake.delay.start()
        begins_s, calls = self._loop.now + FILLING_S, set[asyncio.Task[None]]()

        def arrive(due_s: float) -> None:
            calls.add(self._loop.create_task(self._call(due_s, in_window=due_s >= begins_s)))

        due_s = self._loop.now
        while (due_s := due_s + self._random.expovariate(rate_per_s)) < begins_s + WINDOW_S:
            self._loop.call_at(due_s, arrive, due_s)
        await asyncio.sleep(FILLING_S + WINDOW_S + 2 * TTFT_S)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        self._intake.delay.close()
        return Answers(self._ttfts_s, self._refused)

    async def _call(self, due_s: float, *, in_window: bool) -> None:
        try:
            if not self._intake.enter():
                await self._intake.wait(0)
        except Overloaded:
            self._loop.now += REFUSAL_S
            self._refused += in_window
            return
        try:
            until_sent_s, until_read_s, reading_s = WORK_S
            self._loop.now += until_sent_s
            await asyncio.sleep(0)
            self._loop.now += until_read_s
            await asyncio.sleep(TTFT_S)
            self._loop.now += reading_s
            if in_window:
                self._ttfts_s.append(self._loop.now - due_s)
        finally:
            self._intake.leave()
