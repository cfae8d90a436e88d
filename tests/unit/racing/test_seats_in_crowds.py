"""Crowds drawn at random before a few seats, in virtual time: whatever happens, no limit is passed and no seat lost."""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.attempts import Role
from gateway.core.calls import CallRecord
from gateway.core.errors import ApiError
from gateway.racing import RelayedRequest, Seats
from providers import ErrorKind, UpstreamError
from tests.support.searched import examples
from tests.unit.racing.server import PATIENCE_S, Server, answer, left_clean, limited
from tests.unit.racing.track import RelayedSink, RememberingSink, Step, Track, delta
from tests.unit.racing.virtual_time import run

BROKEN = UpstreamError(ErrorKind.SERVER_ERROR, "broken", status=500)
BEHAVIOURS: Mapping[str, Sequence[tuple[float, Step]]] = {
    "answers": answer(0.15, 0.45),
    "is slow": answer(1.25, 2.55),
    "fails": [(0.05, BROKEN)],
    "fails late": [(0.15, delta("h")), (0.85, BROKEN)],
    "hangs up": [(0.35, None)],
}
NAMES = "abc"


class Person(msgspec.Struct, frozen=True):
    """One call. Times are tenths of a second."""

    asked: str  # deployments, the primary first
    comes: int
    raced: bool  # all at once; else one after the other
    leaves: int | None  # after so long
    audited: bool
    relayed: bool  # the answer passes unread
    gone_after: int | None  # pieces of the answer


class Crowd:
    """Everybody, at servers of the given behaviour; the limits change at ``changes`` tenths of a second."""

    def __init__(self, ends: Sequence[str], before: Mapping[str, int], after: Mapping[str, int], changes: int) -> None:
        self.servers = {name: Server(name, BEHAVIOURS[end]) for name, end in zip(NAMES, ends, strict=True)}
        self.seats = limited(**before)
        self._before, self._after, self._changes = before, after, changes
        self._tracks: list[Track] = []

    async def call(self, persons: Sequence[Person]) -> None:
        calls = [asyncio.create_task(self._call(person)) for person in persons]
        watch = asyncio.create_task(self._watch())
        await asyncio.gather(*calls)
        await watch
        for track in self._tracks:
            await track.tasks.close()

    async def _call(self, person: Person) -> None:
        await asyncio.sleep(person.comes / 10)
        first, others = person.asked[0], person.asked[1:]
        track = Track(
            *[self.servers[name] for name in dict.fromkeys(person.asked)],
            launches=[(first, 0.0, Role.PRIMARY), *[(name, 0.0, Role.RACE) for name in others if person.raced]],
            rest=[] if person.raced else [name for name in others if name != first],
            rescue_s=0.75 if person.raced else None,
            audited=person.asked if person.audited else "",
            sink=(RelayedSink if person.relayed else RememberingSink)(gone_after=person.gone_after),
            reading=RelayedRequest(path="audio/speech") if person.relayed else None,
            seats=self.seats,
        )
        self._tracks.append(track)
        calling = asyncio.create_task(track.run())
        await asyncio.wait([calling], timeout=None if person.leaves is None else person.leaves / 10 + 0.01)
        calling.cancel()
        [outcome] = await asyncio.gather(calling, return_exceptions=True)
        assert isinstance(outcome, CallRecord | ApiError | asyncio.CancelledError), outcome
        assert len(track.recorder.records) == 1

    async def _watch(self) -> None:
        for tenths in range(100):
            if tenths == self._changes:
                self._check_peaks()
                self.seats.limit(self._after, PATIENCE_S)
            for name, line in self.seats.lines.items():
                assert line.taken >= len(self.servers[name].under_way)
                assert not line.waiting or line.taken >= line.limit, "somebody waits where a seat is free"
            await asyncio.sleep(0.1)

    def _check_peaks(self) -> None:
        assert all(self.servers[name].peak <= limit for name, limit in self._before.items())


PERSONS = st.builds(
    Person,
    asked=st.sampled_from(["abc", "ab", "ba", "c", "bc", "b", "aa"]),
    comes=st.integers(0, 30),
    raced=st.booleans(),
    leaves=st.one_of(st.none(), st.integers(0, 20)),
    audited=st.booleans(),
    relayed=st.booleans(),
    gone_after=st.one_of(st.none(), st.integers(1, 3)),
)
LIMITS = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 3))


@settings(max_examples=examples(300), deadline=None)
@given(
    persons=st.lists(PERSONS, min_size=1, max_size=14),
    ends=st.lists(st.sampled_from(sorted(BEHAVIOURS)), min_size=3, max_size=3),
    before=LIMITS,
    after=LIMITS,
    changes=st.integers(1, 30),
)
def test_no_limit_is_passed_no_seat_is_lost_and_nobody_waits_where_one_is_free(
    persons: list[Person], ends: list[str], before: dict[str, int], after: dict[str, int], changes: int
) -> None:
    after = {name: limit for name, limit in after.items() if name in before}  # the first limit of all has its own test
    crowd = Crowd(ends, before, after, changes)
    run(crowd.call(persons))
    left_clean(crowd.seats)
    for name, limit in before.items():
        if name in after:
            assert crowd.servers[name].peak <= max(limit, after[name])


@settings(max_examples=examples(100), deadline=None)
@given(
    limit=st.integers(1, 4),
    arrivals=st.lists(st.integers(0, 20), min_size=2, max_size=20),
    lengths=st.lists(st.integers(1, 12), min_size=20, max_size=20),
)
def test_calls_are_seated_in_the_order_in_which_they_came(limit: int, arrivals: list[int], lengths: list[int]) -> None:
    upstream, seats = Server("a", *[answer(0.05, tenths / 10) for tenths in lengths]), limited(a=limit)
    seats.queue_timeout_s = 1000.0
    comes_at = [tenths / 10 + number / 1000 for number, tenths in enumerate(sorted(arrivals))]

    async def call(at: float, seats: Seats) -> float:
        await asyncio.sleep(at)
        track = Track(upstream, seats=seats)
        record = await track.run()
        return at + record.attempts[0].launch_offset_ms / 1000

    async def crowd() -> list[float]:
        return list(await asyncio.gather(*(call(at, seats) for at in comes_at)))

    launched = run(crowd())
    assert launched == sorted(launched)
    assert upstream.peak <= limit
    left_clean(seats)
