"""A process in virtual time whose work costs time: while one call is worked on, all others wait, as in production."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle
from random import Random
from typing import Any

import msgspec

from gateway.core.errors import Overloaded
from gateway.overload import Intake
from gateway.settings import OverloadSettings
from tests.unit.racing.virtual_time import VirtualTimeLoop

TTFT_S = 0.3  # of the provider
REFUSAL_S = 0.0001
FILLING_S, WINDOW_S = 5.0, 4.0  # the first for a queue that might be a crowd


class Work(msgspec.Struct, frozen=True):
    """What a call costs, in seconds of the loop, and how its answer comes.

    ``until_sent_s`` has a part for each turn of the loop that a call takes until its request is sent. ``read_s`` is for
    all that has come of an answer when the loop looks: the longer its turns, the less an answer costs.
    """

    until_sent_s: tuple[float, ...]
    read_s: float
    tokens: int = 1
    every_s: float = 0.0  # between two tokens
    end_s: float = 0.0


AT_ONCE = Work((0.0008, 0.0006), 0.0006)
CAPACITY_PER_S = 500.0  # of those
TRICKLING = Work((0.00008, 0.00005, 0.00035, 0.0002), 0.000026, tokens=100, every_s=0.01, end_s=0.00016)
TRICKLING_PER_S = 768.0  # answers of those that are good, at most, as measured of a gateway whose calls cost about that


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


def answers_under(per_s: float, work: Work = AT_ONCE, *, clients: int = 1, **settings: Any) -> Answers:
    """Offer calls ``per_s``, by chance, of so many clients, to a process with these settings of overload."""

    def due_s(begins_s: float) -> Iterator[float]:
        random, at_s = Random(1), begins_s
        while (at_s := at_s + random.expovariate(per_s)) < begins_s + FILLING_S + WINDOW_S:
            yield at_s

    return _answers(due_s, settings, clients, work)


def answers_to_a_crowd(calls: int, within_s: float, **settings: Any) -> Answers:
    """Make so many calls within a moment, of a process that has nothing else to do."""
    return _answers(
        lambda begins_s: (begins_s + FILLING_S + within_s * number / calls for number in range(calls)), settings
    )


def _answers(
    due_s: Callable[[float], Iterable[float]], settings: dict[str, Any], clients: int = 1, work: Work = AT_ONCE
) -> Answers:
    loop = VirtualTimeLoop()
    try:
        return loop.run_until_complete(_Process(loop, settings, clients, work).serve(due_s(loop.now)))
    finally:
        loop.close()


class _Process:
    def __init__(self, loop: VirtualTimeLoop, settings: dict[str, Any], clients: int, work: Work) -> None:
        self._loop, self._work = loop, work
        self._owners = cycle(range(clients))
        self._intake = Intake(OverloadSettings(**settings), default_most=50_000, clock=loop.time)
        self._ttfts_s: list[float] = []
        self._refused = 0

    async def serve(self, due: Iterable[float]) -> Answers:
        self._intake.delay.start()
        begins_s, calls = self._loop.now + FILLING_S, set[asyncio.Task[None]]()

        def arrive(due_s: float) -> None:
            calls.add(self._loop.create_task(self._call(due_s, in_window=due_s >= begins_s)))

        for due_s in due:
            self._loop.call_at(due_s, arrive, due_s)
        await asyncio.sleep(FILLING_S + WINDOW_S + 2 * TTFT_S)  # then all hang up
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        self._intake.delay.close()
        return Answers(self._ttfts_s, self._refused)

    async def _call(self, due_s: float, *, in_window: bool) -> None:
        owner = next(self._owners)
        try:
            if not self._intake.enter(owner):
                await self._intake.wait(0, owner)
        except Overloaded:
            self._loop.now += REFUSAL_S
            self._refused += in_window
            return
        work, loop = self._work, self._loop
        try:
            for cost_s in work.until_sent_s:
                loop.now += cost_s
                await asyncio.sleep(0)
            sent_s = loop.now
            for token in range(work.tokens):
                comes_s = sent_s + TTFT_S + token * work.every_s
                if comes_s > loop.now or not token:
                    await asyncio.sleep(comes_s - loop.now)
                    loop.now += work.read_s
                if not token and in_window:
                    self._ttfts_s.append(loop.now - due_s)
            loop.now += work.end_s
        finally:
            self._intake.leave(owner)
