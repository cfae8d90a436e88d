"""Whether a call kept its deadline, as its record says."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from gateway.core.attempts import Role
from gateway.core.calls import CallRecord
from gateway.core.errors import ApiError
from gateway.racing import GatheringSink
from providers import ErrorKind, UpstreamError
from providers.dialects import CHAT
from tests.unit.racing.test_race import answers
from tests.unit.racing.track import Timetable, Track, delta
from tests.unit.racing.virtual_time import run

DIES = UpstreamError(ErrorKind.SERVER_ERROR, "no", status=500)


def recorded(*upstreams: Timetable, leaves_at: float | None = None, **how: Any) -> CallRecord:
    """The record of a call with a deadline of a second unless said, also of one that fails or whose client leaves."""
    track = Track(*upstreams, **({"deadline_ms": 1000.0} | how))

    async def main() -> None:
        task = asyncio.create_task(track.run())
        if leaves_at is not None:
            await asyncio.sleep(leaves_at)
            task.cancel()
        with suppress(ApiError, asyncio.CancelledError):
            await task

    run(main())
    [record] = track.recorder.records
    return record


@pytest.mark.parametrize(("ttft_s", "met"), [(0.5, True), (1.0, True), (1.5, False)])
def test_the_first_token_keeps_the_deadline_or_misses_it(ttft_s: float, met: bool) -> None:
    record = recorded(answers("a", ttft_s))
    assert (record.deadline_ms, record.deadline_met) == (1000.0, met)


def test_without_a_deadline_none_is_kept_or_missed() -> None:
    record = recorded(answers("a", 0.5), deadline_ms=None)
    assert (record.deadline_ms, record.deadline_met) == (None, None)


def test_a_call_that_failed_has_missed_its_deadline() -> None:
    record = recorded(Timetable("a", [(0.2, DIES)]))
    assert record.ttft_ms is None
    assert record.deadline_met is False


def test_an_answer_that_never_became_whole_misses_it_although_its_first_token_came() -> None:
    record = recorded(Timetable("a", [(0.1, delta("half")), (0.5, DIES)]), sink=GatheringSink(CHAT), streamed=False)
    assert record.status_code >= 500
    assert record.deadline_met is False


def test_a_request_that_was_wrong_has_no_deadline_to_keep() -> None:
    record = recorded(Timetable("a", [(0.2, UpstreamError(ErrorKind.BAD_REQUEST, "no", status=400))]))
    assert record.status_code == 400
    assert record.deadline_met is None


@pytest.mark.parametrize(("leaves_at", "met"), [(0.6, None), (1.5, False)])
def test_a_client_that_leaves_without_a_token_before_its_deadline_tells_nothing(
    leaves_at: float, met: bool | None
) -> None:
    record = recorded(answers("a", 5.0), leaves_at=leaves_at)
    assert record.status_code == 499
    assert record.deadline_met is met


def test_a_hedge_in_time_keeps_it() -> None:
    launches = [("hangs", 0.0, Role.PRIMARY), ("quick", 0.7, Role.HEDGE)]
    record = recorded(answers("hangs", 60.0), answers("quick", 0.2), launches=launches)
    assert record.deadline_met is True
