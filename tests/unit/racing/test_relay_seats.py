"""``max_in_flight`` for what is relayed, in virtual time: one seat at a time, in turn, given back whatever happens."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.calls import CallRecord
from gateway.core.race_failures import AtCapacity
from gateway.racing import Block
from providers import ErrorKind, UpstreamError
from tests.support.searched import examples
from tests.unit.racing.server import left_clean, limited
from tests.unit.racing.test_relay import SLOW, VECTORS, Room, Speaker, TimedRest, in_virtual_time
from tests.unit.racing.virtual_time import run


@in_virtual_time
async def test_requests_wait_their_turn() -> None:
    speaker, seats = Speaker(0.5, VECTORS), limited(s1=1)
    records = await asyncio.gather(*(Room(speaker, seats=seats).run() for _ in range(3)))
    assert [record.attempts[0].launch_offset_ms for record in records] == pytest.approx([0, 500, 1000])
    left_clean(seats)


@in_virtual_time
async def test_others_take_what_a_full_deployment_cannot() -> None:
    seats = limited(s1=1)
    seats.lines["s1"].take()
    record = await Room(Speaker(0.5, VECTORS), Speaker(0.1, VECTORS), seats=seats).run()
    assert [(each.deployment, each.role) for each in record.attempts] == [("s2", "primary")]


@in_virtual_time
async def test_who_waits_too_long_is_429_and_recorded() -> None:
    seats = limited(s1=1)
    seats.lines["s1"].take()
    room = Room(Speaker(0.5, VECTORS), seats=seats)
    error = await room.fail()
    assert isinstance(error, AtCapacity)
    assert error.headers["retry-after"] == "1"
    assert (room.record.status_code, room.record.error_kind, room.record.total_ms) == (429, "at_capacity", 2000)
    assert room.recorder.heard == ["call_finished"]


@in_virtual_time
async def test_a_failure_gives_its_seat_back_before_the_next_is_asked() -> None:
    seats = limited(s1=1, s2=1)
    first = Room(Speaker(0.1, SLOW), Speaker(1.0, VECTORS), seats=seats)
    second = Room(Speaker(0.1, VECTORS), Speaker(1.0, VECTORS), seats=seats)
    _, record = await asyncio.gather(first.run(), second.run())
    assert [each.launch_offset_ms for each in record.attempts] == pytest.approx([0])  # s2 had room
    left_clean(seats)


@in_virtual_time
async def test_a_client_that_leaves_while_it_waits_frees_its_place_and_is_recorded() -> None:
    seats = limited(s1=1)
    seats.lines["s1"].take()
    room = Room(Speaker(0.5, VECTORS), seats=seats)
    running = asyncio.ensure_future(room.run())
    await asyncio.sleep(1.0)
    running.cancel()
    await asyncio.wait({running})
    assert (room.record.status_code, room.record.launched) == (499, 0)
    assert not seats.lines["s1"].waiting


@in_virtual_time
async def test_a_client_that_leaves_in_the_instant_it_is_called_up_leaves_its_seat_to_the_next() -> None:
    seats = limited(s1=1)
    line = seats.lines["s1"]
    line.take()
    leaving, staying = Room(Speaker(0.5, VECTORS), seats=seats), Room(Speaker(0.5, VECTORS), seats=seats)
    first, second = asyncio.ensure_future(leaving.run()), asyncio.ensure_future(staying.run())
    await asyncio.sleep(1.0)
    first.cancel()
    line.give_back()
    await asyncio.wait({first, second})
    assert leaving.record.status_code == 499
    assert staying.record.attempts[0].launch_offset_ms == pytest.approx(1000)
    left_clean(seats)


@in_virtual_time
async def test_one_that_is_called_up_and_then_leaves_gives_its_seat_back() -> None:
    seats = limited(s1=1)
    line = seats.lines["s1"]
    line.take()
    room = Room(Speaker(0.5, VECTORS), seats=seats)
    running = asyncio.ensure_future(room.run())
    await asyncio.sleep(1.0)
    line.give_back()
    running.cancel()
    await asyncio.wait({running})
    assert (room.record.status_code, room.outcomes) == (499, {"s1": "client_gone"})
    left_clean(seats)


@in_virtual_time
async def test_a_seat_is_free_once_the_provider_is_done_however_slowly_the_client_reads() -> None:
    seats = limited(s1=1)
    room = Room(Speaker(0.1, b"a", TimedRest([(0.1, b"b"), (0.1, None)])), seats=seats)
    taken: list[int] = []

    async def end(last: Block) -> None:
        taken.append(seats.lines["s1"].taken)

    room.outlet.end = end  # type: ignore[method-assign] # the client's end of it, slow
    await room.run()
    assert taken == [0]


WAYS: list[Any] = [
    lambda: Speaker(0.35, VECTORS),
    lambda: Speaker(2.55, VECTORS),
    lambda: Speaker(0.15, SLOW),
    lambda: Speaker(0.15, b"a", TimedRest([(0.25, b"b"), (0.25, None)])),
    lambda: Speaker(0.15, b"a", TimedRest([(0.25, UpstreamError(ErrorKind.DISCONNECTED, "gone"))])),
]


class Person(msgspec.Struct, frozen=True):
    """One call. Times are tenths of a second."""

    ways: list[int]  # how s1 and s2 answer it
    comes: int
    leaves: int | None
    gone_after: int | None


PERSONS = st.builds(
    Person,
    ways=st.lists(st.integers(0, len(WAYS) - 1), min_size=2, max_size=2),
    comes=st.integers(0, 20),
    leaves=st.one_of(st.none(), st.integers(0, 20)),
    gone_after=st.one_of(st.none(), st.integers(1, 3)),
)


@settings(max_examples=examples(150), deadline=None)
@given(persons=st.lists(PERSONS, min_size=1, max_size=12), limit=st.integers(1, 3))
def test_whatever_happens_no_limit_is_passed_and_no_seat_is_lost(persons: list[Person], limit: int) -> None:
    seats = limited(s1=limit, s2=1)

    async def call(person: Person) -> None:
        await asyncio.sleep(person.comes / 10)
        room = Room(*[WAYS[way]() for way in person.ways], seats=seats, gone_after=person.gone_after)
        running = asyncio.ensure_future(room.run())
        await asyncio.wait([running], timeout=None if person.leaves is None else person.leaves / 10 + 0.01)
        running.cancel()
        await asyncio.wait({running})
        assert isinstance(room.record, CallRecord)

    async def crowd() -> None:
        calls = asyncio.gather(*(call(person) for person in persons))
        while not calls.done():
            for name, most in (("s1", limit), ("s2", 1)):
                line = seats.lines[name]
                assert 0 <= line.taken <= most
                assert not line.waiting or line.taken == most
            await asyncio.sleep(0.05)
        await calls

    run(crowd())
    left_clean(seats)
