"""``race.keep_rival``: the second attempt runs on behind the winner of a whole answer, and answers if that breaks."""

import asyncio
from typing import Any

import msgspec
import pytest

from gateway.core.attempts import AttemptRecord, Role, WinOn
from gateway.core.calls import CallRecord
from gateway.core.errors import ApiError
from gateway.racing import GatheringSink, Seats
from providers import ErrorKind, Price, UpstreamError
from providers.dialects import CHAT
from tests.unit.racing.track import DONE, FINISH, ROLE, Step, Timetable, Track, delta, usage
from tests.unit.racing.virtual_time import run

BROKE = UpstreamError(ErrorKind.DISCONNECTED, "reset")
PRICE = Price(1e-6, 2e-6)


def answers(name: str, first_at: float, *texts: str, gap: float = 1.0, ends: Step = None) -> Timetable:
    """Return an upstream that gives ``texts``, then breaks with ``ends`` or is whole."""
    steps: list[tuple[float, Step]] = [(first_at, ROLE)]
    steps += [(first_at + number * gap, delta(text)) for number, text in enumerate(texts)]
    over = first_at + len(texts) * gap
    steps += [(over, FINISH), (over, usage()), (over, DONE), (over, None)] if ends is None else [(over, ends)]
    return Timetable(name, steps)


def track(*upstreams: Timetable, keep_rival: bool = True, **options: Any) -> Track:
    return Track(*upstreams, sink=GatheringSink(CHAT), streamed=False, keep_rival=keep_rival, price=PRICE, **options)


def text(raced: Track) -> str:
    assert isinstance(raced.sink, GatheringSink)
    return str(msgspec.json.decode(raced.sink.body())["choices"][0]["message"]["content"])


def attempt(record: CallRecord, name: str) -> AttemptRecord:
    return next(each for each in record.attempts if each.deployment == name)


def test_the_rival_answers_when_the_winner_breaks() -> None:
    raced = track(answers("first", 0.1, "br", "oken", ends=BROKE), answers("second", 0.5, "who", "le", gap=2.0))
    record = run(raced.run())
    assert text(raced) == "whole"
    assert raced.outcomes == {"first": "failed", "second": "won"}
    assert [each.deployment for each in record.attempts] == ["first", "second"]  # nobody was asked again
    assert attempt(record, "second").is_kept is True
    assert attempt(record, "first").is_kept is False
    assert attempt(record, "second").is_overtaken is False
    assert record.total_ms == pytest.approx(4500)
    assert record.winner_attempt_id == attempt(record, "second").id


def test_a_whole_rival_answers_in_the_instant_in_which_the_winner_breaks() -> None:
    raced = track(answers("first", 0.1, *"abcd", ends=BROKE), answers("second", 0.5, "whole"))
    record = run(raced.run())
    assert text(raced) == "whole"
    assert record.total_ms == pytest.approx(4100)
    assert attempt(record, "second").last_token_ms == pytest.approx(500)


def test_a_rival_without_a_token_yet_answers_when_it_has_one_and_nobody_else_is_asked() -> None:
    raced = track(
        answers("first", 0.1, "a", ends=BROKE), answers("second", 3.0, "late"), answers("third", 0.1, "more"),
        launches=[("first", 0.0, Role.PRIMARY), ("second", 0.0, Role.RACE)], rest=["third"],
    )  # fmt: skip
    record = run(raced.run())
    assert text(raced) == "late"
    assert raced.outcomes == {"first": "failed", "second": "won"}
    assert record.ttft_ms == pytest.approx(3000)


def test_a_rival_that_is_not_needed_is_cut_when_the_answer_is_whole_and_both_are_priced() -> None:
    first, second = answers("first", 0.1, *"abc"), answers("second", 0.5, *"xyz" * 9)
    raced = track(first, second)
    record = run(raced.run())
    assert text(raced) == "abc"
    assert raced.outcomes == {"first": "won", "second": "superseded"}
    assert (second.aborts, record.total_ms) == (1, pytest.approx(3100))
    rival = attempt(record, "second")
    assert rival.is_kept is True
    assert rival.cost_usd is not None
    assert rival.cost_usd > 0
    assert record.cost_usd == pytest.approx((attempt(record, "first").cost_usd or 0) + rival.cost_usd)
    assert record.duplicate_cost_usd == pytest.approx(rival.cost_usd)


def test_a_rival_that_was_whole_costs_what_its_provider_says() -> None:
    raced = track(answers("first", 0.1, *"abcd"), answers("second", 0.5, "whole"), bills_after_disconnect=True)
    record = run(raced.run())
    rival = attempt(record, "second")
    assert rival.outcome == "superseded"
    assert rival.cost_usd == rival.cost_low_usd == rival.cost_high_usd == pytest.approx(10e-6 + 5 * 2e-6)
    assert rival.cost_is_lower_bound is False


def test_who_is_behind_the_first_rival_is_cut_at_once() -> None:
    third = answers("third", 0.6, *"uvw" * 9)
    raced = track(answers("first", 0.1, *"abc"), answers("second", 0.5, *"xyz" * 9), third)
    record = run(raced.run())
    assert raced.outcomes == {"first": "won", "second": "superseded", "third": "lost"}
    assert attempt(record, "third").censored_at_ms == pytest.approx(100)


def test_a_rival_that_breaks_itself_leaves_the_winner_alone() -> None:
    raced = track(answers("first", 0.1, *"abc"), answers("second", 0.5, "x", ends=BROKE), rest=["third"])
    run(raced.run())
    assert text(raced) == "abc"
    assert raced.outcomes == {"first": "won", "second": "failed"}


def test_if_both_break_the_next_is_asked() -> None:
    raced = track(
        answers("first", 0.1, "a", ends=BROKE), answers("second", 0.5, "x", gap=2.0, ends=BROKE),
        answers("third", 0.1, "at", " last"),
        launches=[("first", 0.0, Role.PRIMARY), ("second", 0.0, Role.RACE)], rest=["third"],
    )  # fmt: skip
    record = run(raced.run())
    assert text(raced) == "at last"
    assert raced.outcomes == {"first": "failed", "second": "failed", "third": "won"}
    assert attempt(record, "third").role is Role.FAILOVER


def test_if_all_break_the_client_is_told() -> None:
    raced = track(answers("first", 0.1, "a", ends=BROKE), answers("second", 0.5, "x", gap=2.0, ends=BROKE))
    with pytest.raises(ApiError):
        run(raced.run())
    assert raced.outcomes == {"first": "failed", "second": "failed"}


def test_a_rival_whose_connection_broke_after_its_finish_reason_is_whole() -> None:
    second = Timetable("second", [(0.5, ROLE), (0.5, delta("whole")), (0.6, FINISH), (0.7, BROKE)])
    raced = track(answers("first", 0.1, *"abcd", ends=BROKE), second)
    run(raced.run())
    assert text(raced) == "whole"
    assert raced.outcomes == {"first": "failed", "second": "won"}


def test_an_empty_rival_is_no_help() -> None:
    empty = Timetable("second", [(0.5, ROLE), (0.5, FINISH), (0.5, DONE), (0.5, None)])
    raced = track(
        answers("first", 0.1, *"abcd", ends=BROKE), empty, answers("third", 0.1, "text"),
        launches=[("first", 0.0, Role.PRIMARY), ("second", 0.0, Role.RACE)], rest=["third"],
    )  # fmt: skip
    run(raced.run())
    assert text(raced) == "text"


def test_an_audited_rival_without_a_token_is_watched_when_it_is_not_needed() -> None:
    raced = track(answers("first", 0.1, "a", gap=0.1), answers("second", 5.0, "x"), audited=["second"])

    async def main() -> CallRecord:
        record = await raced.run()
        await asyncio.sleep(10)
        return record

    record = run(main())
    assert [each.deployment for each in record.attempts] == ["first"]
    (audited,) = raced.recorder.audited
    assert (audited.outcome, audited.ttft_ms, audited.is_kept) == ("superseded", pytest.approx(5000), True)
    assert audited.is_overtaken is True


@pytest.mark.parametrize("keep_rival", [True, False])
def test_what_the_primary_alone_would_have_taken_does_not_count_the_wait_behind_it(keep_rival: bool) -> None:
    raced = track(
        answers("first", 0.1, *"abcdef", ends=BROKE), answers("second", 0.5, *"xyz", gap=9.0), keep_rival=keep_rival
    )
    record = run(raced.run())
    assert raced.outcomes["first"] == "failed"
    assert record.alone_ms == pytest.approx(6100 + 500)  # it fails, then the next has its first token


def test_with_valid_answers_the_rival_has_to_be_valid_too() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]

    def call(index: int = 0, **function: str) -> bytes:
        return delta(tool_calls=[{"index": index, "id": "t", "type": "function", "function": function}])

    first = Timetable("first", [(0.1, ROLE), (0.2, delta("Let me")), (3.0, BROKE)])
    ended: list[tuple[float, Step]] = [(0.5, delta(content=None)), (0.5, FINISH), (0.5, DONE), (0.5, None)]
    second = Timetable("second", [(0.3, ROLE), (0.4, call(name="f", arguments='{"a":1}')), *ended])
    raced = track(first, second, win_on=WinOn.VALID, fields={"tools": tools})
    record = run(raced.run())
    assert raced.outcomes == {"first": "failed", "second": "won"}
    assert (attempt(record, "second").tool_calls, attempt(record, "second").is_kept) == (1, True)


def test_a_client_that_leaves_ends_both() -> None:
    first, second = answers("first", 0.1, *"abcdef"), answers("second", 0.5, *"xyz" * 9)
    raced = track(first, second)

    async def main() -> None:
        task = asyncio.ensure_future(raced.run())
        await asyncio.sleep(2)
        task.cancel()
        await asyncio.wait({task})

    run(main())
    assert raced.outcomes == {"first": "client_gone", "second": "client_gone"}
    assert (first.aborts, second.aborts) == (1, 1)


def test_a_rival_gives_its_seat_back_when_its_provider_has_finished() -> None:
    seats = Seats()
    seats.limit({"second": 2}, 1.0)
    over: list[tuple[float, Step]] = [(0.5, ROLE), (0.5, delta("whole")), (1.5, FINISH), (1.6, None)]
    raced = track(answers("first", 0.1, *"abcdef"), Timetable("second", over), seats=seats)
    taken: list[int] = []

    async def main() -> None:
        task = asyncio.ensure_future(raced.run())
        for _ in range(2):
            await asyncio.sleep(1.25)
            taken.append(seats.lines["second"].taken)
        await task

    run(main())
    assert taken == [1, 0]


def test_a_stream_keeps_nobody() -> None:
    raced = Track(answers("first", 0.1, *"abc"), answers("second", 0.5, *"xyz"), keep_rival=True)
    record = run(raced.run())
    assert raced.outcomes == {"first": "won", "second": "lost"}
    assert attempt(record, "second").is_kept is None


def test_without_the_setting_nobody_is_kept() -> None:
    raced = track(answers("first", 0.1, "a", ends=BROKE), answers("second", 0.5, "x"), keep_rival=False, rest=["first"])
    record = run(raced.run())
    assert attempt(record, "second").outcome == "lost"
