"""A race that leaves its call to another model, and what is recorded when the client does not wait for that."""

import asyncio

import pytest

from gateway.core.calls import CallRecord
from gateway.racing import BrokenAnswer, GatheringSink, NoAnswer
from providers import ErrorKind, Exchange, Request, UpstreamError
from providers.dialects import CHAT
from tests.unit.racing.track import FINISH, ROLE, Timetable, Track, delta
from tests.unit.racing.virtual_time import run

BROKEN = UpstreamError(ErrorKind.DISCONNECTED, "gone")


class Reluctant(Timetable):
    """Takes five seconds to let go of its first request, and fails the others."""

    async def stream(self, request: Request) -> Exchange:
        self.requests.append(request)
        if len(self.requests) > 1:
            raise UpstreamError(ErrorKind.SERVER_ERROR, "no", status=500)
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(5)
        raise AssertionError("it was to be cut")


def test_a_call_that_nobody_answered_is_not_recorded_by_the_race() -> None:
    track = Track(Timetable("a", [(0.1, BROKEN)]))

    async def main() -> CallRecord | NoAnswer | BrokenAnswer:
        return await track.race().run()

    ending = run(main())
    assert isinstance(ending, NoAnswer)
    assert [(name, error.message) for name, error in ending.failures] == [("a", "gone")]
    assert track.recorder.records == []


def test_a_loser_that_is_still_watched_when_its_call_goes_on_keeps_its_number_and_its_row() -> None:
    breaks = Timetable("breaks", [(0.1, delta("half")), (0.3, BROKEN)])
    late = Timetable("late", [(2.0, delta("late")), (2.1, FINISH), (2.1, None)], [(0.1, BROKEN)])
    first = Track(breaks, late, sink=GatheringSink(CHAT), audited=["late"], permits=9)
    following = Track(Timetable("c", [(0.1, delta("well")), (0.2, FINISH), (0.2, None)]), sink=GatheringSink(CHAT))

    async def main() -> CallRecord | NoAnswer | BrokenAnswer:
        assert isinstance(await first.race().run(), NoAnswer)
        following.open_call = first.open_call
        record = await following.race().run()
        await asyncio.sleep(5)
        return record

    record = run(main())
    assert isinstance(record, CallRecord)
    rows = [*record.attempts, *first.recorder.audited]
    assert sorted((row.number, row.deployment) for row in rows) == [(1, "breaks"), (2, "late"), (3, "late"), (4, "c")]
    assert record.launched == 4
    assert len(first.recorder.starts) == 1  # it had begun before


def test_the_time_of_the_model_that_failed_is_not_the_gateways_own() -> None:
    first = Track(Timetable("a", [(3.0, BROKEN)]))
    following = Track(Timetable("b", [(0.1, delta("well")), (0.2, FINISH), (0.2, None)]))

    async def main() -> CallRecord | NoAnswer | BrokenAnswer:
        assert isinstance(await first.race().run(), NoAnswer)
        await asyncio.sleep(0.02)  # it plans
        following.open_call = first.open_call
        return await following.race().run()

    record = run(main())
    assert isinstance(record, CallRecord)
    assert (record.ttft_ms, record.overhead_ms) == (pytest.approx(3120), pytest.approx(20))


def test_a_client_that_hangs_up_before_the_other_model_is_asked_is_recorded_once() -> None:
    breaks = Timetable("breaks", [(0.05, ROLE), (0.1, delta("half")), (0.3, BROKEN)])
    track = Track(breaks, Reluctant("reluctant"), sink=GatheringSink(CHAT))

    async def main() -> None:
        task = asyncio.create_task(track.race().run())
        await asyncio.sleep(1.0)
        assert track.recorder.records == []  # both have failed; the loser still lets go
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(10)

    run(main())
    [record] = track.recorder.records
    assert (record.status_code, record.error_kind, record.launched) == (499, "client_disconnected", 4)
