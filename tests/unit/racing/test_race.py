import asyncio

import pytest

from gateway.core.attempts import Outcome, Role, WinOn
from gateway.core.calls import Mode
from gateway.core.errors import ShuttingDown
from gateway.core.race_failures import (
    AllProvidersFailed,
    AllRateLimited,
    AllTimedOut,
    ProviderMisconfigured,
    RejectedByProvider,
)
from gateway.fleet import Clocks
from gateway.racing import Block, GatheringSink
from providers import ErrorKind, Price, UpstreamError
from providers.dialects import CHAT
from tests.unit.racing.track import DONE, FINISH, ROLE, RememberingSink, Step, Timetable, Track, delta, event, usage
from tests.unit.racing.virtual_time import run


def answers(name: str, ttft: float, *texts: str, gap: float = 0.1, headers_at: float = 0.0) -> Timetable:
    steps: list[tuple[float, bytes | None]] = [(ttft / 2, ROLE)]
    steps += [(ttft + gap * number, delta(text)) for number, text in enumerate(texts or (f"from {name}",))]
    end = steps[-1][0]
    return Timetable(name, [*steps, (end, FINISH), (end, usage()), (end, DONE), (end, None)], headers_at=headers_at)


def refuses(name: str, kind: ErrorKind, status: int, at: float = 0.0, **options: float) -> Timetable:
    return Timetable(name, [(at, UpstreamError(kind, f"{name} says no", status=status, **options))])  # type: ignore[arg-type]


def hangs(name: str) -> Timetable:
    return Timetable(name, [(0.05, ROLE)])


def test_the_first_meaningful_delta_wins_and_a_role_only_chunk_does_not() -> None:
    early_role = Timetable("early-role", [(0.01, ROLE), (0.9, delta("late")), (0.9, FINISH), (0.9, None)])
    track = Track(early_role, answers("quick", 0.3))
    record = run(track.run())
    assert track.outcomes == {"early-role": "lost", "quick": "won"}
    assert record.ttft_ms == pytest.approx(300)
    assert b"from quick" in track.sink.bytes  # type: ignore[union-attr]


def test_losers_are_cut_before_a_byte_of_the_winner_is_forwarded() -> None:
    slow, quick = answers("slow", 5.0), answers("quick", 0.2)

    class Sink(RememberingSink):
        async def begin(self, winner: object) -> None:
            assert slow.aborts == 1
            await super().begin(winner)  # type: ignore[arg-type]

    run(Track(slow, quick, sink=Sink()).run())
    assert (slow.aborts, quick.aborts) == (1, 0)


def test_a_loser_that_waits_for_headers_is_cancelled_too() -> None:
    slow = answers("slow", 9.0, headers_at=8.0)
    run(Track(slow, answers("quick", 0.2)).run())
    assert slow.cancelled_before_headers == 1


def test_a_loser_is_recorded_as_censored_at_its_age() -> None:
    track = Track(answers("slow", 5.0), answers("quick", 0.4))
    run(track.run())
    lost = next(record for record in track.recorder.records[0].attempts if record.deployment == "slow")
    assert (lost.outcome, lost.censored_at_ms, lost.ttft_ms) == (Outcome.LOST, pytest.approx(400), None)


def test_the_winners_bytes_are_forwarded_as_they_came() -> None:
    odd = b'data: {"id":"x", "zz":1,  "choices":[{"index":0,"delta":{"content":"hi"}}]}\r\n\r\n: ping\n\n'
    track = Track(Timetable("odd", [(0.1, ROLE + odd), (0.2, FINISH + DONE), (0.2, None)]))
    run(track.run())
    assert track.sink.bytes == ROLE + odd + FINISH + DONE  # type: ignore[union-attr]


@pytest.mark.parametrize("understands", [True, False])
def test_events_are_given_in_parts_to_whom_they_are_of_use_and_kept_for_nobody_else(understands: bool) -> None:
    texts = [delta(f"text {number}") for number in range(20)]  # most arrive together, and are not parsed one by one
    sink = RememberingSink(understands=understands)
    steps = [(0.1, ROLE + texts[0]), (0.2, texts[1]), (0.3, b"".join(texts[2:])), (0.4, FINISH + DONE), (0.4, None)]
    run(Track(Timetable("a", steps), sink=sink).run())
    heard = [text for text in texts if text.removeprefix(b"data: ").rstrip() in sink.events]
    assert heard == (texts if understands else [])


def test_usage_that_only_we_asked_for_is_dropped_and_usage_on_other_chunks_stays() -> None:
    with_usage = event(choices=[{"index": 0, "delta": {"content": "a"}}], usage={"completion_tokens": 1})
    steps = [(0.1, with_usage), (0.2, FINISH), (0.2, usage()), (0.2, DONE), (0.2, None)]
    track = Track(Timetable("a", steps))
    record = run(track.run())
    assert track.sink.bytes == with_usage + FINISH + DONE  # type: ignore[union-attr]
    assert record.completion_tokens == 5


def test_usage_that_the_client_asked_for_is_forwarded() -> None:
    track = Track(answers("a", 0.1), wants_usage=True)
    run(track.run())
    assert track.sink.bytes.endswith(usage() + DONE)  # type: ignore[union-attr]


def test_a_failure_before_commit_is_replaced_at_once_and_unseen() -> None:
    track = Track(
        refuses("bad", ErrorKind.SERVER_ERROR, 503, at=0.1),
        answers("good", 0.3),
        launches=[("bad", 0.0, Role.PRIMARY)],
        rest=["good"],
    )
    record = run(track.run())
    assert track.outcomes == {"bad": "failed", "good": "won"}
    assert [start.role for start in track.recorder.launched] == [Role.PRIMARY, Role.FAILOVER]
    assert record.ttft_ms == pytest.approx(400)
    assert record.status_code == 200


def test_a_failure_brings_the_planned_hedge_forward_without_asking_the_budget() -> None:
    track = Track(
        refuses("bad", ErrorKind.SERVER_ERROR, 500, at=0.1),
        answers("hedge", 9.0),
        launches=[("bad", 0.0, Role.PRIMARY), ("hedge", 5.0, Role.HEDGE)],
        permits=0,
    )
    record = run(track.run())
    assert record.total_ms == pytest.approx(9100)
    assert [start.role for start in track.recorder.launched] == [Role.PRIMARY, Role.FAILOVER]
    assert track.asked == []


def test_a_failure_ends_no_race_while_another_runs() -> None:
    track = Track(answers("slow", 3.0), refuses("bad", ErrorKind.SERVER_ERROR, 500, at=0.1))
    run(track.run())
    assert track.outcomes == {"slow": "won", "bad": "failed"}


def test_when_everybody_fails_the_error_names_each_with_its_cause() -> None:
    track = Track(refuses("a", ErrorKind.SERVER_ERROR, 500), refuses("b", ErrorKind.PROVIDER_AUTH, 401))
    with pytest.raises(AllProvidersFailed, match=r"a: server_error: a says no; b: provider_auth: b says no") as caught:
        run(track.run())
    assert caught.value.status_code == 502
    assert track.recorder.records[0].status_code == 502


def test_the_providers_own_401_is_the_operators_never_the_clients() -> None:
    track = Track(refuses("a", ErrorKind.PROVIDER_AUTH, 401))
    with pytest.raises(ProviderMisconfigured) as caught:
        run(track.run())
    assert (caught.value.status_code, caught.value.code) == (424, "provider_auth")
    assert track.recorder.records[0].status_code == 424


def test_all_rate_limited_is_429_with_the_least_retry_after() -> None:
    track = Track(
        refuses("a", ErrorKind.RATE_LIMITED, 429, retry_after_s=9.0),
        refuses("b", ErrorKind.RATE_LIMITED, 429, retry_after_s=2.5),
    )
    with pytest.raises(AllRateLimited) as caught:
        run(track.run())
    assert caught.value.headers["retry-after"] == "3"


def test_all_cooling_down_launches_nothing_and_is_recorded() -> None:
    track = Track(answers("a", 1.0), launches=[], retry_after_s=7.0)
    with pytest.raises(AllRateLimited) as caught:
        run(track.run())
    assert caught.value.headers["retry-after"] == "7"
    assert (track.recorder.records[0].launched, track.recorder.records[0].status_code) == (0, 429)
    assert track.upstreams["a"].requests == []


def test_the_clients_own_fault_is_tried_once_more_elsewhere_then_returned() -> None:
    names = ["a", "b", "c"]
    track = Track(
        *(refuses(name, ErrorKind.BAD_REQUEST, 422) for name in names),
        launches=[("a", 0.0, Role.PRIMARY)],
        rest=["b", "c"],
    )
    with pytest.raises(RejectedByProvider) as caught:
        run(track.run())
    assert caught.value.status_code == 422
    assert [len(track.upstreams[name].requests) for name in names] == [1, 1, 0]


def test_a_fault_that_only_one_vendor_sees_is_answered_by_the_next() -> None:
    track = Track(
        refuses("picky", ErrorKind.BAD_REQUEST, 400),
        answers("b", 0.1),
        launches=[("picky", 0.0, Role.PRIMARY)],
        rest=["b"],
    )
    assert run(track.run()).status_code == 200


def test_a_hedge_starts_only_when_the_first_is_late() -> None:
    launches = [("first", 0.0, Role.PRIMARY), ("second", 0.5, Role.HEDGE)]
    early = Track(answers("first", 0.3), answers("second", 0.1), launches=launches)
    run(early.run())
    assert early.upstreams["second"].requests == []
    late = Track(answers("first", 3.0), answers("second", 0.1), launches=launches)
    assert run(late.run()).ttft_ms == pytest.approx(600)
    assert late.outcomes == {"first": "lost", "second": "won"}


def test_a_spent_budget_narrows_the_race_and_fails_nothing() -> None:
    track = Track(answers("a", 0.5), answers("b", 0.1), permits=0)
    record = run(track.run())
    assert (record.launched, record.winner_attempt_id) == (1, "attempt-1")
    assert track.upstreams["b"].requests == []


def test_a_refused_hedge_still_comes_to_the_rescue() -> None:
    launches = [("hung", 0.0, Role.PRIMARY), ("spare", 0.2, Role.HEDGE)]
    track = Track(hangs("hung"), answers("spare", 0.1), launches=launches, permits=0, rescue_s=2.0)
    assert run(track.run()).ttft_ms == pytest.approx(2100)
    assert track.recorder.launched[1].role is Role.FAILOVER


def test_a_refused_hedge_and_the_planned_rescues_do_not_start_together() -> None:
    launches = [
        ("hung", 0.0, Role.PRIMARY),
        ("b", 0.6, Role.HEDGE),
        ("c", 1.3, Role.FAILOVER),
        ("d", 2.6, Role.FAILOVER),
    ]
    track = Track(hangs("hung"), hangs("b"), hangs("c"), answers("d", 0.1), launches=launches, permits=0, rescue_s=1.3)
    record = run(track.run())
    assert [(each.deployment, each.launch_offset_ms) for each in record.attempts[1:]] == [
        ("b", pytest.approx(1300)),
        ("c", pytest.approx(2000)),
        ("d", pytest.approx(3300)),
    ]


def test_a_client_that_hangs_up_stops_every_attempt_at_once() -> None:
    async def main() -> None:
        task = asyncio.create_task(track.run())
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    track = Track(answers("a", 5.0), answers("b", 9.0, headers_at=8.0))
    run(main())
    assert track.upstreams["a"].aborts == 1
    assert track.upstreams["b"].cancelled_before_headers == 1
    assert track.outcomes == {"a": "client_gone", "b": "client_gone"}
    record = track.recorder.records[0]
    assert (record.status_code, record.error_kind) == (499, "client_disconnected")
    assert [attempt.censored_at_ms for attempt in record.attempts] == [pytest.approx(500), pytest.approx(500)]


def test_a_client_that_hangs_up_in_the_middle_of_the_answer_stops_the_winner() -> None:
    track = Track(answers("a", 0.1, *"abcdefgh"), sink=RememberingSink(gone_after=3))
    run(track.run())
    assert track.upstreams["a"].aborts == 1
    assert track.outcomes == {"a": "client_gone"}
    assert track.recorder.records[0].winner_attempt_id == "attempt-1"


def test_after_commit_nobody_else_answers() -> None:
    dies = Timetable("dies", [(0.1, delta("half")), (0.5, UpstreamError(ErrorKind.DISCONNECTED, "reset"))])
    track = Track(dies, answers("b", 3.0), rest=[])
    record = run(track.run())
    sink = track.sink
    assert isinstance(sink, RememberingSink)
    assert sink.failure is not None
    assert sink.failure.kind is ErrorKind.DISCONNECTED
    assert not sink.ended
    assert (record.status_code, record.error_kind) == (200, "disconnected")
    assert track.outcomes == {"dies": "failed", "b": "lost"}


def test_a_gathered_answer_that_breaks_off_still_fails_over() -> None:
    dies = Timetable("dies", [(0.1, delta("half")), (0.5, UpstreamError(ErrorKind.DISCONNECTED, "reset"))])
    sink = GatheringSink(CHAT)
    track = Track(
        dies, answers("b", 0.2, "whole"), launches=[("dies", 0.0, Role.PRIMARY)], rest=["b"], sink=sink, streamed=False
    )
    record = run(track.run())
    assert record.status_code == 200
    assert b'"content":"whole"' in sink.body()
    assert track.outcomes == {"dies": "failed", "b": "won"}


def test_a_loser_is_asked_again_when_a_gathered_winner_breaks_off() -> None:
    dies = Timetable("dies", [(0.1, delta("half")), (0.5, UpstreamError(ErrorKind.DISCONNECTED, "reset"))])
    track = Track(dies, answers("loser", 0.3, "whole"), sink=GatheringSink(CHAT), streamed=False)
    assert run(track.run()).status_code == 200
    assert [attempt.outcome for attempt in track.recorder.records[0].attempts] == ["failed", "lost", "won"]


@pytest.mark.parametrize("kind", [ErrorKind.DISCONNECTED, ErrorKind.UPSTREAM_TRUNCATED])
def test_who_is_alone_is_asked_once_more_when_a_gathered_answer_breaks_off(kind: ErrorKind) -> None:
    half: list[tuple[float, Step]] = [(0.1, delta("half")), (0.2, UpstreamError(kind, "reset"))]
    whole = [(0.1, delta("whole")), (0.2, FINISH), (0.2, None)]
    track = Track(Timetable("a", half, whole), sink=GatheringSink(CHAT), streamed=False)
    assert [attempt.outcome for attempt in run(track.run()).attempts] == ["failed", "won"]
    track = Track(Timetable("a", half), sink=GatheringSink(CHAT), streamed=False)
    with pytest.raises(AllProvidersFailed):
        run(track.run())
    assert [attempt.outcome for attempt in track.recorder.ended] == ["failed", "failed"]


def test_the_end_after_a_finish_reason_is_success_without_done() -> None:
    track = Track(Timetable("a", [(0.1, delta("hi")), (0.2, FINISH), (0.2, None)]))
    assert run(track.run()).error_kind is None
    assert track.sink.ended  # type: ignore[union-attr]


def test_done_without_a_finish_reason_is_truncated_and_the_client_sees_no_end() -> None:
    track = Track(Timetable("a", [(0.1, delta("hi")), (0.2, DONE), (0.2, None)]))
    assert run(track.run()).error_kind == "upstream_truncated"
    assert track.outcomes == {"a": "failed"}
    assert b"[DONE]" not in b"".join(track.sink.blocks)  # type: ignore[union-attr]


def test_an_answer_that_comes_at_once_without_a_finish_reason_is_replaced() -> None:
    track = Track(
        Timetable("a", [(0.1, delta("hi") + DONE), (0.1, None)]),
        answers("b", 1.0),
        launches=[("a", 0.0, Role.PRIMARY)],
        rest=["b"],
    )
    assert run(track.run()).error_kind is None
    assert track.outcomes == {"a": "failed", "b": "won"}


def test_an_end_without_either_is_truncated() -> None:
    track = Track(Timetable("a", [(0.1, delta("hi")), (0.2, None)]))
    assert run(track.run()).error_kind == "upstream_truncated"
    assert track.outcomes == {"a": "failed"}


@pytest.mark.parametrize("steps", [[(0.1, DONE), (0.1, None)], [(0.1, None)], [(0.1, ROLE), (0.2, DONE), (0.2, None)]])
def test_done_alone_is_an_empty_answer_and_a_failure(steps: list[tuple[float, bytes | None]]) -> None:
    track = Track(Timetable("empty", steps), answers("b", 1.0), launches=[("empty", 0.0, Role.PRIMARY)], rest=["b"])
    run(track.run())
    assert track.outcomes == {"empty": "failed", "b": "won"}
    assert track.recorder.records[0].attempts[0].error_kind == "upstream_empty"


def test_an_empty_answer_wins_only_when_nobody_else_runs() -> None:
    empty = Timetable("empty", [(0.1, ROLE), (0.1, FINISH), (0.1, DONE), (0.1, None)])
    track = Track(empty, answers("b", 1.0))
    run(track.run())
    assert track.outcomes == {"empty": "lost", "b": "won"}
    alone = Track(Timetable("empty", [(0.1, ROLE), (0.1, FINISH), (0.1, DONE), (0.1, None)]))
    assert run(alone.run()).status_code == 200
    assert alone.outcomes == {"empty": "won"}


def test_an_empty_answer_wins_when_the_others_have_failed() -> None:
    empty = Timetable("empty", [(0.1, ROLE), (0.1, FINISH), (0.1, DONE), (0.1, None)])
    track = Track(empty, refuses("bad", ErrorKind.SERVER_ERROR, 500, at=0.5))
    run(track.run())
    assert track.outcomes == {"empty": "won", "bad": "failed"}


def test_an_error_as_the_first_event_fails_over() -> None:
    broken = Timetable("broken", [(0.1, event(error={"message": "overloaded", "code": 503}))])
    track = Track(broken, answers("b", 0.2), launches=[("broken", 0.0, Role.PRIMARY)], rest=["b"])
    assert run(track.run()).status_code == 200
    assert track.outcomes == {"broken": "failed", "b": "won"}


def test_what_came_before_an_error_in_the_same_read_is_forwarded() -> None:
    both = delta("half") + event(error={"message": "overloaded", "code": 503})
    track = Track(Timetable("a", [(0.1, delta("first ")), (0.2, both)]))
    run(track.run())
    sink = track.sink
    assert isinstance(sink, RememberingSink)
    assert sink.bytes == delta("first ") + delta("half")
    assert sink.failure is not None


def test_a_first_token_may_be_larger_than_what_is_kept_without_one() -> None:
    picture = delta(images=[{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 2**23}}])
    track = Track(Timetable("draws", [(0.1, ROLE), (0.2, picture), (0.3, FINISH), (0.3, DONE), (0.3, None)]))
    assert run(track.run()).error_kind is None
    assert track.sink.bytes == ROLE + picture + FINISH + DONE  # type: ignore[union-attr]


def test_who_sends_more_than_is_kept_without_a_token_has_failed() -> None:
    nothing = delta(note="A" * 2**23)
    with pytest.raises(AllProvidersFailed, match="bytes without a first token"):
        run(Track(Timetable("talks", [(0.1, ROLE), (0.2, nothing)])).run())


def test_reasoning_wins_unless_the_answer_is_asked_for() -> None:
    def thinks() -> Timetable:
        steps = [(0.1, delta(reasoning_content="hm")), (2.0, delta("so")), (2.0, FINISH), (2.0, DONE), (2.0, None)]
        return Timetable("thinks", steps)

    on_any = Track(thinks(), answers("b", 0.5))
    assert run(on_any.run()).ttft_ms == pytest.approx(100)
    on_answer = Track(thinks(), answers("b", 0.5), win_on=WinOn.ANSWER)
    run(on_answer.run())
    assert on_answer.outcomes == {"thinks": "lost", "b": "won"}
    assert on_answer.recorder.first_tokens == [("b", 0.5)]


def test_with_win_on_answer_the_reasoning_is_kept_and_forwarded() -> None:
    steps = [(0.1, delta(reasoning_content="hm")), (2.0, delta("so")), (2.0, FINISH), (2.0, DONE), (2.0, None)]
    track = Track(Timetable("thinks", steps), win_on=WinOn.ANSWER)
    run(track.run())
    assert track.sink.bytes == delta(reasoning_content="hm") + delta("so") + FINISH + DONE  # type: ignore[union-attr]


def test_no_first_token_in_time_is_a_timeout_that_comments_do_not_put_off() -> None:
    pings = Timetable("pings", [(float(second), b": ping\n\n") for second in range(60)])
    clocks = Clocks(connect_s=5, ttft_s=10, stall_s=60, total_s=None)
    track = Track(pings, clocks=clocks)
    with pytest.raises(AllTimedOut, match="no first token within 10 s") as caught:
        run(track.run())
    assert caught.value.status_code == 504
    assert track.recorder.ended[0].outcome is Outcome.TIMEOUT
    assert track.upstreams["pings"].aborts == 1
    assert track.recorder.records[0].total_ms == pytest.approx(10_000)


def test_whoever_hangs_alone_through_the_whole_clock_is_still_replaced() -> None:
    clocks = Clocks(connect_s=5, ttft_s=10, stall_s=60, total_s=None)
    track = Track(hangs("hung"), answers("b", 0.5), launches=[("hung", 0.0, Role.PRIMARY)], rest=["b"], clocks=clocks)
    assert run(track.run()).ttft_ms == pytest.approx(10_500)
    assert track.outcomes == {"hung": "timeout", "b": "won"}


def test_whoever_refuses_in_place_of_one_that_hung_is_replaced_until_another_hangs() -> None:
    clocks = Clocks(connect_s=5, ttft_s=10, stall_s=60, total_s=None)
    dead = [refuses(name, ErrorKind.CONNECT_ERROR, 502, at=0.1) for name in ("dead", "down")]
    plan = [("hung", 0.0, Role.PRIMARY)]
    track = Track(hangs("hung"), *dead, answers("b", 0.5), launches=plan, rest=["dead", "down", "b"], clocks=clocks)
    assert run(track.run()).ttft_ms == pytest.approx(10_700)
    assert track.outcomes == {"hung": "timeout", "dead": "failed", "down": "failed", "b": "won"}
    second = [hangs("hung"), dead[0], hangs("mute"), answers("b", 0.5)]
    track = Track(*second, launches=plan, rest=["dead", "mute", "b"], clocks=clocks)
    with pytest.raises(AllProvidersFailed):
        run(track.run())
    assert track.outcomes == {"hung": "timeout", "dead": "failed", "mute": "timeout"}


def test_good_events_that_share_a_read_with_nonsense_are_forwarded() -> None:
    track = Track(Timetable("a", [(0.1, delta("first ")), (0.2, delta("good") + b"data: {broken\n\n")]))
    record = run(track.run())
    assert track.sink.bytes == delta("first ") + delta("good")  # type: ignore[union-attr]
    assert record.error_kind == "invalid_response"


def test_silence_between_events_is_a_stall_that_comments_do_not_put_off() -> None:
    steps = [(0.1, delta("a")), *((float(second), b": ping\n\n") for second in range(1, 60))]
    track = Track(Timetable("a", steps), clocks=Clocks(connect_s=5, ttft_s=100, stall_s=7, total_s=None))
    record = run(track.run())
    assert (record.error_kind, record.total_ms) == ("stall_timeout", pytest.approx(7100))
    assert track.outcomes == {"a": "stalled"}


def test_deltas_with_nothing_in_them_do_not_put_off_a_stall() -> None:
    steps = [(0.1, delta("a")), *((float(second), ROLE) for second in range(1, 60))]
    track = Track(Timetable("a", steps), clocks=Clocks(connect_s=5, ttft_s=100, stall_s=7, total_s=None))
    record = run(track.run())
    assert (record.error_kind, record.total_ms) == ("stall_timeout", pytest.approx(7100))


def test_a_slow_reader_is_no_stalled_provider() -> None:
    class SlowReader(RememberingSink):
        async def write(self, block: Block) -> None:
            await asyncio.sleep(30)
            await super().write(block)

    clocks = Clocks(connect_s=5, ttft_s=100, stall_s=7, total_s=None)
    track = Track(answers("a", 0.1, "x", "y"), sink=SlowReader(), clocks=clocks)
    assert run(track.run()).error_kind is None


def test_the_total_clock_cuts_an_answer_that_never_ends() -> None:
    steps = [(0.5 * number, delta("x")) for number in range(1, 100)]
    track = Track(Timetable("a", steps), clocks=Clocks(connect_s=5, ttft_s=100, stall_s=7, total_s=3))
    record = run(track.run())
    assert (record.error_kind, record.total_ms) == ("total_timeout", pytest.approx(3000))
    assert track.outcomes == {"a": "timeout"}


def test_an_answer_whose_end_never_comes_is_complete_with_its_finish_reason() -> None:
    track = Track(Timetable("a", [(0.1, delta("hi")), (0.2, FINISH)]))
    record = run(track.run())
    assert (record.total_ms, record.error_kind) == (pytest.approx(5200), None)
    assert track.outcomes == {"a": "won"}
    assert track.sink.ended  # type: ignore[union-attr]


def test_the_call_is_recorded_before_the_last_byte_goes_out() -> None:
    track = Track(answers("a", 0.1))

    class Sink(RememberingSink):
        async def end(self, last: Block) -> None:
            assert track.recorder.heard[-1] == "call_finished"
            await super().end(last)

    track.sink = Sink()
    run(track.run())
    assert track.sink.ended


def test_the_start_is_recorded_before_anything_is_sent() -> None:
    track = Track(answers("a", 0.1), answers("b", 0.2))
    run(track.run())
    assert track.recorder.heard[:3] == ["call_started", "started a", "started b"]
    assert [start.deployment for start in track.recorder.starts[0].attempts] == ["a", "b"]


def test_losers_are_charged_the_prompt_as_a_lower_bound() -> None:
    track = Track(answers("slow", 5.0), answers("quick", 0.1), price=Price(input_usd=0.01, output_usd=0.1))
    record = run(track.run())
    lost, won = record.attempts
    assert (lost.cost_usd, lost.cost_is_lower_bound) == (pytest.approx(0.1), True)
    assert (won.cost_usd, won.cost_is_lower_bound) == (pytest.approx(0.6), False)
    assert (record.cost_usd, record.duplicate_cost_usd) == (pytest.approx(0.7), pytest.approx(0.1))


def test_a_record_says_how_often_its_request_was_sent_also_without_an_answer() -> None:
    slow = Timetable("slow", [(5.0, delta("late"))], headers_at=4.0)
    broken = Timetable("broken", [(0.05, UpstreamError(ErrorKind.SERVER_ERROR, "no", status=500))])
    record = run(Track(slow, broken, answers("quick", 0.1)).run())
    told = {attempt.deployment: (attempt.headers_ms is None, attempt.sends) for attempt in record.attempts}
    assert told == {"slow": (True, 1), "broken": (True, 1), "quick": (False, 1)}


def test_a_defect_of_ours_leaves_nothing_behind_and_is_recorded() -> None:
    class Broken(RememberingSink):
        async def write(self, block: Block) -> None:
            raise ZeroDivisionError

    track = Track(answers("a", 0.1), answers("b", 5.0), sink=Broken())
    with pytest.raises(ZeroDivisionError):
        run(track.run())
    assert track.recorder.records[0].error_kind == "internal_error"


def test_an_answer_for_which_there_is_no_memory_fails_that_attempt_alone() -> None:
    track = Track(Timetable("large", [(0.1, MemoryError())]), answers("fine", 0.2))
    assert run(track.run()).error_kind is None
    assert track.outcomes == {"large": "interrupted", "fine": "won"}
    assert track.recorder.records[0].attempts[0].error_kind == "local_resources"


def test_a_call_that_the_stopping_gateway_cuts_is_not_put_down_to_the_client() -> None:
    async def main() -> None:
        race = track.race()
        task = asyncio.create_task(race.run())
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    track = Track(answers("a", 5.0), cancelled_as=ShuttingDown)
    run(main())
    assert track.outcomes == {"a": "interrupted"}
    assert (track.recorder.records[0].status_code, track.recorder.records[0].error_kind) == (503, "shutting_down")


def test_a_first_token_that_comes_with_an_error_commits_to_nothing() -> None:
    both = delta("half") + event(error={"message": "overloaded", "code": 503})
    track = Track(Timetable("breaks", [(0.1, both)]), answers("fine", 0.2))
    assert run(track.run()).error_kind is None
    assert track.outcomes == {"breaks": "failed", "fine": "won"}


def test_a_gathered_winner_proves_the_request_right_after_anothers_400() -> None:
    dies = Timetable("dies", [(0.2, delta("half")), (0.5, UpstreamError(ErrorKind.DISCONNECTED, "reset"))])
    picky = refuses("picky", ErrorKind.BAD_REQUEST, 400, at=0.1)
    launches = [("dies", 0.0, Role.PRIMARY), ("picky", 0.0, Role.RACE)]
    track = Track(
        dies, picky, answers("b", 0.1), launches=launches, rest=["b"], sink=GatheringSink(CHAT), streamed=False
    )
    assert run(track.run()).status_code == 200


def test_json_that_is_no_completion_fails_over() -> None:
    odd = b'data: {"choices":[{"index":0,"delta":{"content":"x","tool_calls":[7]}}]}\n\n'
    track = Track(
        Timetable("odd", [(0.1, odd), (0.1, FINISH), (0.1, DONE)]),
        answers("b", 0.1),
        launches=[("odd", 0.0, Role.PRIMARY)],
        rest=["b"],
        sink=GatheringSink(CHAT),
        streamed=False,
    )
    assert run(track.run()).status_code == 200
    assert track.recorder.records[0].attempts[0].error_kind == "invalid_response"


@pytest.mark.parametrize(
    ("bills", "cost_usd", "lower_bound"), [(None, 0.1, True), (False, 0.1, False), (True, 0.6, False)]
)
def test_a_losers_cost_depends_on_whether_its_vendor_stops_the_bill(
    bills: bool | None, cost_usd: float, lower_bound: bool
) -> None:
    price = Price(input_usd=0.01, output_usd=0.1)
    track = Track(answers("slow", 5.0), answers("quick", 0.1), price=price, bills_after_disconnect=bills)
    lost = run(track.run()).attempts[0]
    assert (lost.cost_usd, lost.cost_is_lower_bound) == (pytest.approx(cost_usd), lower_bound)


@pytest.mark.parametrize("role", [Role.PROBE, Role.EXPLORE])
def test_in_mode_single_a_probe_that_fails_is_not_replaced_while_the_call_has_its_own_attempt(role: Role) -> None:
    launches = [("good", 0.0, Role.PRIMARY), ("probed", 0.0, role)]
    track = Track(
        answers("good", 0.4),
        refuses("probed", ErrorKind.SERVER_ERROR, 503, at=0.1),
        answers("third", 0.1),
        launches=launches,
        rest=["third"],
        mode=Mode.SINGLE,
    )
    record = run(track.run())
    assert [(each.deployment, each.role) for each in record.attempts] == [
        ("good", Role.PRIMARY),
        ("probed", role),
    ]
    assert record.ttft_ms == pytest.approx(400)


def test_in_mode_single_a_primary_that_fails_is_replaced_though_a_probe_still_runs() -> None:
    launches = [("bad", 0.0, Role.PRIMARY), ("probed", 0.0, Role.PROBE)]
    track = Track(
        refuses("bad", ErrorKind.SERVER_ERROR, 503, at=0.1),
        answers("probed", 60.0),
        answers("third", 0.1),
        launches=launches,
        rest=["third"],
        mode=Mode.SINGLE,
    )
    record = run(track.run())
    assert track.outcomes == {"bad": Outcome.FAILED, "probed": Outcome.LOST, "third": Outcome.WON}
    assert record.ttft_ms == pytest.approx(200)
