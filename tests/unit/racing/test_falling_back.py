"""A race that leaves its call to another model, and what is recorded when the client does not wait for that."""

import asyncio

import pytest

from gateway.racing.gather import GatheringSink
from gateway.racing.race import Race
from providers.dialects.chat.dialect import CHAT
from providers.errors import ErrorKind, UpstreamError
from providers.exchange import Exchange, Request
from tests.unit.racing.track import ROLE, Timetable, Track, delta
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


def leaving(track: Track) -> Race:
    race = track.race()
    race._falls_back = lambda _: True
    return race


def test_a_call_left_to_another_model_is_not_recorded_by_the_race_that_failed() -> None:
    track = Track(Timetable("a", [(0.1, BROKEN)]))

    async def main() -> Race:
        race = leaving(track)
        with pytest.raises(Exception, match="gone"):
            await race.run()
        return race

    race = run(main())
    assert track.recorder.records == []
    assert race.behind is not None
    assert [attempt.deployment for attempt in race.behind.attempts] == ["a"]


def test_a_client_that_hangs_up_before_the_other_model_is_asked_is_recorded_once() -> None:
    breaks = Timetable("breaks", [(0.05, ROLE), (0.1, delta("half")), (0.3, BROKEN)])
    track = Track(breaks, Reluctant("reluctant"), sink=GatheringSink(CHAT))

    async def main() -> None:
        task = asyncio.create_task(leaving(track).run())
        await asyncio.sleep(1.0)
        assert track.recorder.records == []  # both have failed; the loser still lets go
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(10)

    run(main())
    [record] = track.recorder.records
    assert (record.status_code, record.error_kind, record.launched) == (499, "client_disconnected", 3)
