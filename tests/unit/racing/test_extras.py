"""Which launches count as extra: those beside an attempt that could still answer, whatever their role."""

import asyncio

import pytest

from gateway.core.attempts import Role
from gateway.core.calls import CallRecord
from gateway.fleet import Clocks
from gateway.racing import GatheringSink
from providers import ErrorKind, UpstreamError
from providers.dialects import CHAT
from tests.unit.racing.test_race import answers, hangs, refuses
from tests.unit.racing.test_valid import calls, race
from tests.unit.racing.track import DONE, FINISH, ROLE, Timetable, Track, delta
from tests.unit.racing.virtual_time import run


def extras(record: CallRecord) -> tuple[int | None, list[bool | None]]:
    """Return the count of a call, and whether each of its attempts is one."""
    return record.extras, [each.is_extra for each in record.attempts]


def test_an_attempt_alone_is_none() -> None:
    assert extras(run(Track(answers("a", 0.1)).run())) == (0, [False])


def test_each_racer_beyond_the_first_is_one() -> None:
    record = run(Track(answers("a", 0.3), answers("b", 0.2), answers("c", 0.1)).run())
    assert extras(record) == (2, [False, True, True])


def test_a_hedge_of_a_silent_primary_is_one() -> None:
    launches = [("first", 0.0, Role.PRIMARY), ("second", 0.5, Role.HEDGE)]
    record = run(Track(answers("first", 3.0), answers("second", 0.1), launches=launches).run())
    assert extras(record) == (1, [False, True])


def test_a_rescue_of_a_silent_attempt_is_one() -> None:
    launches = [("hung", 0.0, Role.PRIMARY), ("spare", 0.2, Role.HEDGE)]
    track = Track(hangs("hung"), answers("spare", 0.1), launches=launches, permits=0, rescue_s=2.0)
    record = run(track.run())
    assert extras(record) == (1, [False, True])
    assert record.attempts[1].role is Role.FAILOVER


def test_what_replaces_a_failed_attempt_is_none() -> None:
    bad = [refuses(name, ErrorKind.SERVER_ERROR, 503, at=0.1) for name in ("bad", "worse")]
    track = Track(*bad, answers("good", 0.3), launches=[("bad", 0.0, Role.PRIMARY)], rest=["worse", "good"])
    assert extras(run(track.run())) == (0, [False, False, False])


def test_what_replaces_one_that_was_silent_for_its_whole_time_is_none() -> None:
    clocks = Clocks(connect_s=5, ttft_s=10, stall_s=60, total_s=None)
    track = Track(hangs("hung"), answers("b", 0.5), launches=[("hung", 0.0, Role.PRIMARY)], rest=["b"], clocks=clocks)
    assert extras(run(track.run())) == (0, [False, False])


def test_what_replaces_a_failed_racer_while_another_runs_is_one() -> None:
    launches = [("slow", 0.0, Role.PRIMARY), ("bad", 0.0, Role.RACE)]
    upstreams = answers("slow", 3.0), refuses("bad", ErrorKind.SERVER_ERROR, 503, at=0.1), answers("good", 0.3)
    record = run(Track(*upstreams, launches=launches, rest=["good"]).run())
    assert extras(record) == (2, [False, True, True])


def test_what_replaces_a_whole_answer_that_broke_after_its_rivals_were_cut_is_none() -> None:
    dies = Timetable("dies", [(0.1, delta("half")), (0.5, UpstreamError(ErrorKind.DISCONNECTED, "reset"))])
    track = Track(dies, answers("loser", 0.3, "whole"), sink=GatheringSink(CHAT), streamed=False)
    assert extras(run(track.run())) == (1, [False, True, False])


def test_a_loser_that_is_only_watched_on_does_not_run() -> None:
    dies = Timetable("dies", [(0.1, delta("half")), (0.5, UpstreamError(ErrorKind.DISCONNECTED, "reset"))])
    launches = [("dies", 0.0, Role.PRIMARY), ("loser", 0.0, Role.RACE)]
    upstreams = dies, answers("loser", 20.0), answers("third", 0.3)
    track = Track(
        *upstreams, launches=launches, rest=["third"], audited=["loser"], sink=GatheringSink(CHAT), streamed=False
    )

    async def to_the_end() -> CallRecord:
        record = await track.run()
        await asyncio.sleep(60)
        return record

    assert run(to_the_end()).extras == 1
    assert {start.deployment: start.is_extra for start in track.recorder.launched}["third"] is False


def test_a_backup_that_runs_on_behind_the_winner_runs() -> None:
    dies = Timetable("dies", [(0.1, delta("half")), (0.5, UpstreamError(ErrorKind.DISCONNECTED, "reset"))])
    mute = Timetable("mute", [(0.05, ROLE), (0.7, UpstreamError(ErrorKind.DISCONNECTED, "reset"))])
    launches = [("dies", 0.0, Role.PRIMARY), ("mute", 0.0, Role.RACE)]
    track = Track(
        *(dies, mute, answers("third", 0.3)),
        launches=launches, rest=["third"], sink=GatheringSink(CHAT), streamed=False, keep_rival=True,
    )  # fmt: skip
    assert extras(run(track.run())) == (1, [False, True, False])


def test_beside_a_complete_answer_that_is_empty_or_invalid_nothing_runs() -> None:
    track = race(
        calls("bad", 0.1, 0.2, '{"city": "Os'),
        calls("good", 0.1, 0.3),
        launches=[("bad", 0.0, Role.PRIMARY)],
        rest=["good"],
    )
    assert extras(run(track.run())) == (0, [False, False])


def test_an_empty_answer_that_wins_after_all_leaves_nothing_running() -> None:
    empty = Timetable("empty", [(0.1, ROLE), (0.1, FINISH), (0.1, DONE), (0.1, None)])
    track = Track(empty, refuses("bad", ErrorKind.SERVER_ERROR, 500, at=0.5))
    assert extras(run(track.run())) == (1, [False, True])
    assert track.open_call is not None
    assert track.open_call.running == 0


@pytest.mark.parametrize("audited", [(), ("a", "b", "c")])
def test_when_a_call_has_ended_none_of_its_attempts_runs(audited: tuple[str, ...]) -> None:
    track = Track(answers("a", 0.3), answers("b", 0.2), hangs("c"), audited=audited)

    async def to_the_end() -> None:
        await track.run()
        assert track.open_call is not None
        assert track.open_call.running == 0
        await asyncio.sleep(60)
        assert track.open_call.running == 0

    run(to_the_end())
