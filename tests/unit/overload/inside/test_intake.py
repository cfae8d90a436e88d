"""The intake in virtual time: who has a seat, who waits, who is refused, and that each seat is given back once."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from gateway.core.errors import Overloaded
from gateway.overload import Intake, ShedReason
from gateway.overload.call_queue import STANDING_CALLS
from gateway.overload.intake import LimitCause
from gateway.overload.loop_delay import PERIOD_S
from gateway.settings import OverloadSettings
from tests.unit.racing import virtual_time


class Process:
    """A process with an intake, whose loop can be held up, and the calls that it is asked for."""

    def __init__(self, **settings: Any) -> None:
        self.settings = OverloadSettings(**{"max_in_flight": 2, "queue": 3, "queue_timeout_s": 1.0, **settings})
        self.shed: list[tuple[ShedReason, LimitCause]] = []
        self.log: list[str] = []  # in the order in which calls had their seats
        self.late_s = 0.0
        self.intake = Intake(
            self.settings,
            default_most=1000,
            clock=lambda: asyncio.get_running_loop().time() + self.late_s,
            on_shed=lambda shed, cause: self.shed.append((shed, cause)),
        )

    async def call(self, name: str = "call", ends: asyncio.Event | None = None, *, priority: int = 0) -> float:
        """Make a call that ends with ``ends``; return how long it waited."""
        waited_s = 0.0
        if not self.intake.enter():
            waited_s = await self.intake.wait(priority)
        self.log.append(name)
        try:
            if ends is not None:
                await ends.wait()
        finally:
            self.intake.leave()
        return waited_s

    def begin(self, name: str, ends: asyncio.Event, *, priority: int = 0) -> "asyncio.Task[float]":
        return asyncio.get_running_loop().create_task(self.call(name, ends, priority=priority))


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def in_virtual_time(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        virtual_time.run(test())

    return run


@in_virtual_time
async def test_a_third_call_has_the_seat_of_the_first_that_ends() -> None:
    process, first, rest = Process(), asyncio.Event(), asyncio.Event()
    calls = [process.begin("a", first), process.begin("b", rest), process.begin("c", rest)]
    await settle()
    assert (process.log, process.intake.in_flight, process.intake.waiting) == (["a", "b"], 2, 1)
    await asyncio.sleep(0.25)
    first.set()
    await settle()
    assert (process.log, process.intake.in_flight, process.intake.waiting) == (["a", "b", "c"], 2, 0)
    rest.set()
    assert await asyncio.gather(*calls) == [0.0, 0.0, pytest.approx(0.25)]
    assert process.intake.in_flight == 0
    assert process.shed == []


@in_virtual_time
async def test_a_full_queue_refuses_at_once_and_says_when_to_come_back() -> None:
    process, end = Process(), asyncio.Event()
    calls = [process.begin(str(number), end) for number in range(5)]
    await settle()
    assert process.intake.refuses(0)
    with pytest.raises(Overloaded) as refused:
        await process.call()
    assert refused.value.status_code == 503
    assert refused.value.headers["retry-after"] == "1"
    assert process.shed == [(ShedReason.QUEUE_FULL, LimitCause.MAX_IN_FLIGHT)]
    after_s = [process.intake.refusal(ShedReason.QUEUE_FULL).headers["retry-after"] for _ in range(3)]
    assert after_s == ["2", "3", "1"]  # those that are refused together do not all return together
    end.set()
    await asyncio.gather(*calls)
    assert process.intake.in_flight == process.intake.waiting == 0


@in_virtual_time
async def test_who_has_waited_too_long_is_refused_and_its_place_is_free() -> None:
    process, end = Process(), asyncio.Event()
    calls = [process.begin(str(number), end) for number in range(5)]
    await asyncio.sleep(0.9)
    assert process.shed == []
    await asyncio.sleep(0.2)
    assert process.shed == [(ShedReason.QUEUE_TIMEOUT, LimitCause.MAX_IN_FLIGHT)] * 3
    assert process.intake.waiting == 0
    assert [call.done() for call in calls] == [False, False, True, True, True]
    end.set()
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in ends[2:]] == [Overloaded] * 3
    assert process.intake.in_flight == 0


@in_virtual_time
async def test_a_higher_priority_is_served_first_and_displaces_the_last_of_the_lowest() -> None:
    process, first, rest = Process(max_in_flight=1), asyncio.Event(), asyncio.Event()
    calls = [
        process.begin("running", first),
        process.begin("low", rest),
        process.begin("lower", rest, priority=-1),
        process.begin("low too", rest),
        process.begin("high", rest, priority=7),
        process.begin("higher", rest, priority=8),
        process.begin("low as well", rest),
    ]
    await settle()
    assert sorted(shed for shed, _ in process.shed) == [
        ShedReason.DISPLACED,
        ShedReason.DISPLACED,
        ShedReason.QUEUE_FULL,
    ]
    assert not process.intake.refuses(1)
    assert process.intake.refuses(0)
    first.set()
    rest.set()
    await asyncio.gather(*calls, return_exceptions=True)
    assert process.log == ["running", "higher", "high", "low"]
    assert process.intake.in_flight == 0


@in_virtual_time
async def test_a_client_that_hangs_up_while_it_waits_leaves_at_once() -> None:
    process, first, rest = Process(max_in_flight=1), asyncio.Event(), asyncio.Event()
    running, leaving, staying = process.begin("a", first), process.begin("b", rest), process.begin("c", rest)
    await settle()
    leaving.cancel()
    await asyncio.wait({leaving})
    assert process.intake.waiting == 1
    first.set()
    rest.set()
    await asyncio.gather(running, staying)
    assert process.log == ["a", "c"]
    assert process.intake.in_flight == 0


@in_virtual_time
async def test_a_seat_goes_to_nobody_who_hangs_up_in_the_same_instant() -> None:
    process, rest = Process(max_in_flight=1), asyncio.Event()
    assert process.intake.enter()
    leaving, staying = process.begin("b", rest), process.begin("c", rest)
    await settle()
    leaving.cancel()  # its task has not run yet
    process.intake.leave()
    await asyncio.wait({leaving})
    await settle()
    assert process.log == ["c"]
    rest.set()
    await staying
    assert process.intake.in_flight == 0


@in_virtual_time
async def test_who_hangs_up_with_a_seat_it_has_not_noticed_gives_it_back() -> None:
    process, rest = Process(max_in_flight=1), asyncio.Event()
    assert process.intake.enter()
    leaving, staying = process.begin("b", rest), process.begin("c", rest)
    await settle()
    process.intake.leave()  # the seat is b's, whose task has not run yet
    leaving.cancel()
    await asyncio.wait({leaving})
    await settle()
    assert process.log == ["c"]
    rest.set()
    await staying
    assert process.intake.in_flight == 0


@in_virtual_time
async def test_without_a_queue_nobody_waits() -> None:
    for settings in ({"queue": 0}, {"queue_timeout_s": 0}):
        process, end = Process(max_in_flight=1, **settings), asyncio.Event()
        running = process.begin("a", end)
        await settle()
        with pytest.raises(Overloaded):
            await process.call()
        end.set()
        await running


@in_virtual_time
async def test_a_reload_with_a_higher_limit_lets_in_who_waits_and_a_lower_one_cuts_nobody() -> None:
    process, end = Process(max_in_flight=1), asyncio.Event()
    calls = [process.begin(name, end) for name in "abc"]
    await settle()
    process.intake.configure(OverloadSettings(max_in_flight=3))
    await settle()
    assert (process.log, process.intake.in_flight) == (["a", "b", "c"], 3)
    process.intake.configure(OverloadSettings(max_in_flight=1))
    await settle()
    assert process.intake.in_flight == 3
    end.set()
    await asyncio.gather(*calls)
    assert process.intake.in_flight == 0


@in_virtual_time
async def test_the_default_is_what_memory_and_descriptors_allow() -> None:
    process = Process(max_in_flight=None)
    assert process.intake.limit.now == 1000
    process.intake.cap_default(300)
    assert process.intake.limit.now == 300
    process.intake.configure(OverloadSettings(max_in_flight=5000))
    assert process.intake.limit.now == 5000
    process.intake.configure(OverloadSettings())
    assert process.intake.limit.now == 300


@in_virtual_time
async def test_a_crowd_may_wait_and_a_queue_that_stays_may_not() -> None:
    process, first, rest = Process(max_in_flight=1, queue=200, queue_timeout_s=1.0), asyncio.Event(), asyncio.Event()
    process.intake.delay.start()
    calls = [process.begin(str(number), first if number < 2 else rest) for number in range(100)]
    await asyncio.sleep(0.5)
    first.set()
    await settle()
    assert process.intake.waiting == 97
    calls += [process.begin("after", rest) for _ in range(20)]  # which may still wait when the crowd may not
    await asyncio.sleep(0.4)
    assert (process.intake.waiting, process.shed) == (117, [])
    await asyncio.sleep(0.3)
    assert process.intake.waiting == STANDING_CALLS
    calls.append(process.begin("late", rest))
    await settle()
    assert process.shed[-1] == (ShedReason.QUEUE_FULL, LimitCause.MAX_IN_FLIGHT)
    rest.set()
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(not isinstance(each, BaseException) for each in ends) == 3 + STANDING_CALLS
    process.intake.delay.close()


@in_virtual_time
async def test_a_late_loop_lets_fewer_calls_in_until_it_is_in_time_again() -> None:
    process, end = Process(max_in_flight=None, queue=1, loop_delay_ms=25), asyncio.Event()
    intake = process.intake
    intake.delay.start()
    calls = [process.begin(str(number), end) for number in range(100)]
    await settle()
    for _ in range(10):
        process.late_s += 0.1  # each turn of the loop takes 50 ms at least
        await asyncio.sleep(PERIOD_S)
    assert intake.limit.now == 95
    calls.append(process.begin("waits", end))
    await settle()
    with pytest.raises(Overloaded):
        await process.call()
    assert process.shed == [(ShedReason.QUEUE_FULL, LimitCause.LOOP_DELAY)]
    await asyncio.sleep(0.9)
    assert process.log[-1] == "waits"  # in time again, the limit has risen
    end.set()
    await asyncio.gather(*calls)
    await asyncio.sleep(0.1)
    assert (intake.in_flight, intake.limit.now) == (0, 1000)
    intake.delay.close()


@in_virtual_time
async def test_one_client_alone_leaves_an_eighth_and_a_freed_seat_goes_to_the_client_that_holds_fewest() -> None:
    process = Process(max_in_flight=16, queue=40)
    intake = process.intake
    assert sum(intake.enter("many") for _ in range(16)) == 14
    waits = [asyncio.ensure_future(intake.wait(0, "many")) for _ in range(40)]
    await settle()
    assert intake.waiting == 40
    assert [intake.enter("few") for _ in range(2)] == [True, False]  # the last one is for a client without any
    assert [intake.enter("new") for _ in range(2)] == [True, False]
    assert not intake.refuses(0, "few")  # it displaces a call of who has most
    mine = asyncio.ensure_future(intake.wait(0, "few"))
    await settle()
    assert process.shed == [(ShedReason.DISPLACED, LimitCause.MAX_IN_FLIGHT)]
    assert intake.refuses(0, "many")
    for _ in range(2):
        assert not mine.done()
        intake.leave("many")
        await settle()
    assert mine.done()
    for each in waits:
        each.cancel()
    await asyncio.gather(*waits, return_exceptions=True)


@pytest.mark.parametrize(("others", "at_once"), [(1, 10), (3, 10), (8, 10), (20, 4), (50, 1)])
@pytest.mark.parametrize("lasting_s", [(1.0, 5.0), (60.0, 120.0)], ids=["short", "long"])
def test_whatever_others_hold_a_client_with_few_calls_has_them_admitted(
    others: int, at_once: int, lasting_s: tuple[float, float]
) -> None:
    """220 streams of other clients without limits keep 200 seats busy; this client makes 60 calls."""
    random, admitted = Random(1), list[bool]()

    async def main() -> None:
        process = Process(max_in_flight=200, queue=2000, queue_timeout_s=2.0)
        intake = process.intake

        async def call(owner: str, lasts_s: float) -> bool:
            try:
                if not intake.enter(owner):
                    await intake.wait(0, owner)
            except Overloaded as refused:
                await asyncio.sleep(int(refused.headers["retry-after"]) + random.random())
                return False
            try:
                await asyncio.sleep(lasts_s)
            finally:
                intake.leave(owner)
            return True

        async def stream(owner: str) -> None:
            while True:
                await call(owner, random.uniform(*lasting_s))

        async def few(calls: int) -> None:
            for _ in range(calls):
                admitted.append(await call("few", random.uniform(0.5, 1.5)))

        streams = [asyncio.create_task(stream(f"client {number % others}")) for number in range(220)]
        await asyncio.sleep(10)
        assert intake.in_flight >= 175
        await asyncio.gather(*(few(60 // at_once) for _ in range(at_once)))
        assert intake.in_flight >= 175
        for each in streams:
            each.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
        assert intake.in_flight == intake.waiting == 0

    virtual_time.run(main())
    assert sum(admitted) >= 0.95 * 60
