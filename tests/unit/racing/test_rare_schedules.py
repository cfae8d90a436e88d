"""Races whose parts meet in an instant that seldom comes: each of these ended wrongly once."""

import asyncio
from typing import Any

import pytest

from gateway.core.attempts import AttemptStart, Role
from gateway.core.calls import Call, CallRecord
from gateway.fleet import Clocks
from gateway.racing import GatheringSink
from providers import ErrorKind, Exchange, Request, UpstreamError
from providers.dialects import CHAT, GEMINI, MESSAGES, RESPONSES, Dialect
from tests.unit.racing.server import limited
from tests.unit.racing.test_race import answers, refuses
from tests.unit.racing.track import (
    DONE,
    FINISH,
    ROLE,
    DefectiveTasks,
    RememberingRecorder,
    Step,
    Timetable,
    Track,
    delta,
    usage,
)
from tests.unit.racing.virtual_time import VirtualTimeLoop, run

RESET = UpstreamError(ErrorKind.DISCONNECTED, "reset")
SPEEDS = {"slow-decoder": 10.0, "fast-decoder": 2.0}


def test_an_audited_loser_that_fails_is_not_replaced() -> None:
    dies = Timetable("dies", [(0.1, delta("half")), (0.5, RESET)])
    track = Track(
        dies,
        refuses("audited", ErrorKind.SERVER_ERROR, 500, at=1.0),
        answers("c", 2.0, "whole"),
        answers("d", 2.0),
        launches=[("dies", 0.0, Role.PRIMARY), ("audited", 0.0, Role.RACE)],
        rest=["c", "d"],
        audited=["dies", "audited"],
        sink=GatheringSink(CHAT),
        streamed=False,
    )
    run(track.run())
    assert [each.deployment for each in track.recorder.launched] == ["dies", "audited", "c"]


def an_empty_answer_wins_as_a_seat_is_given_back(*, rescued_after_s: float, within_s: float) -> CallRecord:
    """Return the record of a call whose empty answer is to win in the turn in which a rescue gets its seat."""
    empty = Timetable("slow-decoder", [(0.1, ROLE), (0.1, FINISH), (0.1, DONE), (0.1, None)])
    seats = limited(**{"fast-decoder": 1})
    line = seats.lines["fast-decoder"]
    line.take()

    class Bad(Timetable):
        async def stream(self, request: Request) -> Exchange:
            try:
                return await super().stream(request)
            except UpstreamError:  # another call's attempt ends in this turn of the loop
                asyncio.get_running_loop().call_soon(line.give_back)
                raise

    track = Track(
        empty,
        Bad("bad", [(0.5, UpstreamError(ErrorKind.SERVER_ERROR, "HTTP 500", status=500))]),
        answers("fast-decoder", rescued_after_s),
        launches=[("slow-decoder", 0.0, Role.PRIMARY), ("bad", 0.0, Role.RACE)],
        rest=["fast-decoder"],
        decode_s=SPEEDS,
        seats=seats,
    )

    async def main() -> CallRecord:
        return await asyncio.wait_for(track.run(), within_s)

    return run(main())


def test_an_empty_answer_that_is_to_win_is_not_held_for_one_that_was_just_launched() -> None:
    record = an_empty_answer_wins_as_a_seat_is_given_back(rescued_after_s=1.0, within_s=100)
    assert "interrupted" not in [each.outcome for each in record.attempts]


@pytest.mark.parametrize("end", [RESET, None], ids=["reset", "end"])
@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("dialect", [CHAT, MESSAGES, RESPONSES, GEMINI])
def test_an_answer_is_whole_though_its_connection_ends_within_an_event(
    dialect: Dialect, streamed: bool, end: Step
) -> None:
    torn = usage()[:20]
    steps: list[tuple[float, Step]] = [(0.1, delta("hi")), (0.2, FINISH), (0.3, torn), (0.4, end)]
    sink = None if streamed else GatheringSink(dialect)
    track = Track(Timetable("a", steps), streamed=streamed, sink=sink)
    track._call_options["dialect"] = dialect
    record = run(track.run())
    assert (record.status_code, record.error_kind) == (200, None)
    assert track.outcomes == {"a": "won"}


@pytest.mark.parametrize("dialect", [CHAT, MESSAGES])
def test_an_answer_that_ends_within_an_event_before_its_finish_reason_has_broken_off(dialect: Dialect) -> None:
    track = Track(Timetable("a", [(0.1, delta("hi")), (0.3, delta("there")[:40]), (0.4, None)]))
    track._call_options["dialect"] = dialect
    assert run(track.run()).error_kind == "disconnected"


def test_a_wait_that_times_out_does_not_end_the_call_while_a_rescue_is_under_way() -> None:
    seats = limited(a=1, full=1)
    for line in seats.lines.values():
        line.take()
    a = refuses("a", ErrorKind.SERVER_ERROR, 500, at=1.6)
    track = Track(
        a,
        answers("full", 0.1),
        answers("broken", 1.0),
        launches=[("a", 0.0, Role.PRIMARY)],
        rest=["full", "broken"],
        tripped=["broken"],
        rescue_s=1.5,
        seats=seats,
    )

    async def main() -> CallRecord:
        asyncio.get_running_loop().call_later(0.0, seats.lines["a"].give_back)
        return await track.run()

    record = run(main())
    assert record.status_code == 200


def test_a_held_answer_that_breaks_off_leaves_the_race_to_the_others() -> None:
    slow = Timetable("slow-decoder", [(0.2, delta("half")), (0.5, None)])  # no finish reason, no [DONE]
    track = Track(slow, answers("fast-decoder", 1.2), decode_s=SPEEDS)
    record = run(track.run())
    assert track.outcomes == {"slow-decoder": "failed", "fast-decoder": "won"}
    assert record.error_kind is None


def test_a_held_answer_that_breaks_off_has_shown_that_the_request_is_valid() -> None:
    track = Track(
        Timetable("slow-decoder", [(0.1, delta("half")), (0.5, RESET)]),
        refuses("choosy", ErrorKind.BAD_REQUEST, 400, at=0.2),
        refuses("fast-decoder", ErrorKind.SERVER_ERROR, 500, at=1.0),
        answers("last", 0.1),
        launches=[("slow-decoder", 0.0, Role.PRIMARY), ("choosy", 0.0, Role.RACE), ("fast-decoder", 0.0, Role.RACE)],
        rest=["last"],
        decode_s=SPEEDS,
    )
    assert run(track.run()).status_code == 200
    assert track.outcomes["last"] == "won"


def test_a_held_answer_with_its_finish_reason_is_whole() -> None:
    slow = Timetable("slow-decoder", [(0.2, delta("all")), (0.3, FINISH), (0.5, RESET)])
    track = Track(slow, refuses("fast-decoder", ErrorKind.SERVER_ERROR, 500, at=3.0), decode_s=SPEEDS)
    record = run(track.run())
    assert (record.status_code, record.error_kind) == (200, None)


def test_the_total_clock_takes_no_whole_answer_back() -> None:
    clocks = Clocks(connect_s=5.0, ttft_s=10.0, stall_s=10.0, total_s=1.0)
    track = Track(Timetable("a", [(0.1, delta("all")), (0.3, FINISH), (2.0, DONE), (2.0, None)]), clocks=clocks)
    record = run(track.run())
    assert (record.status_code, record.error_kind) == (200, None)


def test_a_defect_at_a_launch_by_timer_ends_the_call() -> None:
    track = Track(
        refuses("a", ErrorKind.SERVER_ERROR, 500, at=1.0),
        answers("b", 0.1),
        launches=[("a", 0.0, Role.PRIMARY), ("b", 0.5, Role.HEDGE)],
    )
    track.tasks = DefectiveTasks("b")

    async def main() -> CallRecord:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        return await asyncio.wait_for(track.run(), 50)

    with pytest.raises(RuntimeError, match="a defect"):
        run(main())
    assert len(track.recorder.records) == 1


def test_a_defect_of_a_recorder_that_is_told_of_a_launch_ends_no_call() -> None:
    class Recorder(RememberingRecorder):
        def attempt_started(self, call: Call, start: AttemptStart) -> None:
            raise RuntimeError("a defect")

    track = Track(answers("a", 0.1))
    track.recorder = Recorder()
    assert run(track.run()).status_code == 200


def test_a_defect_at_the_start_cuts_who_was_asked() -> None:
    a = answers("a", 30.0)
    track = Track(a, answers("b", 0.1))
    track.tasks = DefectiveTasks("b")
    with pytest.raises(RuntimeError, match="a defect"):
        run(track.run())
    assert [each.error_kind for each in track.recorder.records] == ["internal_error"]
    assert sorted(each.deployment for each in track.recorder.launched) == ["a", "b"]
    assert sorted(each.deployment for each in track.recorder.ended) == ["a", "b"]


def test_a_call_ends_though_the_one_an_empty_answer_was_held_for_hangs() -> None:
    record = an_empty_answer_wins_as_a_seat_is_given_back(rescued_after_s=60.0, within_s=1000)
    assert record.status_code == 200


def test_launches_that_are_due_at_once_need_no_time_of_their_timers() -> None:
    """uvloop's handle of what is due at once has no ``when``."""

    class Loop(VirtualTimeLoop):
        def call_later(  # type: ignore[override] # as uvloop does it
            self, delay: float, callback: Any, *args: Any, context: Any = None
        ) -> Any:
            return self.call_soon(callback, *args) if delay < 0.0005 else super().call_later(delay, callback, *args)

    loop = Loop()
    track = Track(
        answers("a", 0.2),
        answers("b", 0.3),
        answers("c", 0.4),
        launches=[("a", 0.0, Role.PRIMARY), ("b", 0.0001, Role.HEDGE), ("c", 0.0002, Role.HEDGE)],
    )
    try:
        record = loop.run_until_complete(track.run())
    finally:
        loop.close()
    assert (record.status_code, record.launched) == (200, 3)
