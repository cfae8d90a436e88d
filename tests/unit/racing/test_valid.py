"""Races for the first valid answer, in virtual time."""

import asyncio
from typing import Any

import pytest

from gateway.core.attempts import Flaw, Invalid, Role, WinOn
from gateway.core.race_failures import NoValidAnswer
from gateway.racing import GatheringSink
from providers.dialects import PIVOT
from tests.unit.racing.track import DONE, FINISH, RememberingSink, Timetable, Track, delta, event
from tests.unit.racing.virtual_time import run

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS: dict[str, Any] = {
    "tools": [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}],
}
JSON: dict[str, Any] = {
    "response_format": {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA}},
}
GOOD = '{"city": "Oslo"}'
CALLED = event(
    id="c1",
    object="chat.completion.chunk",
    model="m",
    choices=[{"index": 0, "delta": {}, "finish_reason": "tool_calls"}],
)


def called(
    first_at: float, end_at: float, arguments: str = GOOD, *, tool: str = "weather"
) -> list[tuple[float, bytes]]:
    """Return the events of a tool call: its name at ``first_at``, the last of its arguments at ``end_at``."""
    half = len(arguments) // 2
    head = {"index": 0, "id": "t1", "type": "function", "function": {"name": tool, "arguments": arguments[:half]}}
    tail = {"index": 0, "function": {"arguments": arguments[half:]}}
    return [
        (first_at, delta(tool_calls=[head])),
        (end_at, delta(tool_calls=[tail])),
        (end_at, CALLED),
        (end_at, DONE),
    ]


def calls(name: str, first_at: float, end_at: float, arguments: str = GOOD, *, tool: str = "weather") -> Timetable:
    return Timetable(name, [*called(first_at, end_at, arguments, tool=tool), (end_at, None)])


def says(name: str, *pieces: tuple[float, str]) -> Timetable:
    end = pieces[-1][0]
    return Timetable(name, [*((at, delta(text)) for at, text in pieces), (end, FINISH), (end, DONE), (end, None)])


def race(*upstreams: Timetable, fields: dict[str, Any] = TOOLS, **options: Any) -> Track:
    return Track(*upstreams, win_on=WinOn.VALID, fields=fields, **options)


@pytest.mark.parametrize(
    ("broken", "flaw"),
    [
        (calls("broken", 0.1, 0.3, '{"city": "Os'), Flaw.BAD_TOOL_CALL),
        (calls("broken", 0.1, 0.3, tool="whether"), Flaw.UNKNOWN_TOOL),
        (calls("broken", 0.1, 0.3, '{"town": "Oslo"}'), Flaw.SCHEMA_MISS),
    ],
)
def test_a_broken_tool_call_does_not_win_however_early_it_is(broken: Timetable, flaw: Flaw) -> None:
    track = race(broken, calls("whole", 0.2, 0.9))
    record = run(track.run())
    assert track.outcomes == {"broken": "failed", "whole": "won"}
    lost, won = record.attempts
    assert (lost.error_kind, lost.flaw, lost.valid_ms) == ("invalid_answer", flaw, None)
    assert (won.flaw, won.valid_ms, won.token_ms) == (None, pytest.approx(900), pytest.approx(900))
    assert record.ttft_ms == pytest.approx(900)
    assert record.first_was_invalid is True
    assert isinstance(track.sink, RememberingSink)
    assert track.sink.bytes == b"".join(step for _, step in called(0.2, 0.9))


def test_a_valid_tool_call_wins_when_it_is_whole() -> None:
    track = race(calls("early", 0.1, 0.8), calls("sooner", 0.4, 0.6))
    record = run(track.run())
    assert track.outcomes == {"early": "lost", "sooner": "won"}
    assert record.attempts[0].censored_at_ms == pytest.approx(600)
    assert record.first_was_invalid is None  # it was cut before anybody could know
    assert track.recorder.first_tokens == [("sooner", 0.6)]


def test_text_wins_at_once_where_tools_are_offered() -> None:
    track = race(says("talks", (0.3, "It is "), (0.9, "cold.")), calls("calls", 0.1, 0.5))
    record = run(track.run())
    assert track.outcomes == {"talks": "won", "calls": "lost"}
    assert record.ttft_ms == pytest.approx(300)


@pytest.mark.parametrize("end_at", [0.1, 0.3])
def test_a_refusal_is_no_text_however_it_arrives(end_at: float) -> None:
    steps = [(0.1, delta(refusal="I cannot.")), (end_at, FINISH), (end_at, DONE), (end_at, None)]
    track = race(Timetable("refuses", steps), calls("calls", 0.2, 0.5))
    record = run(track.run())
    assert track.outcomes == {"refuses": "failed", "calls": "won"}
    assert record.attempts[0].flaw is Flaw.REFUSAL


def test_reasoning_wins_nothing() -> None:
    steps = [(0.1, delta(reasoning_content="Hm.")), (0.7, delta("Cold.")), (0.8, FINISH), (0.8, DONE), (0.8, None)]
    assert run(race(Timetable("thinks", steps)).run()).ttft_ms == pytest.approx(700)


@pytest.mark.parametrize(
    ("said", "flaw"),
    [('{"city": "Os', Flaw.BAD_JSON), ('{"town": 1}', Flaw.SCHEMA_MISS), ("Sure! Oslo", Flaw.BAD_JSON)],
)
def test_json_wins_whole_and_valid(said: str, flaw: Flaw) -> None:
    track = race(
        says("broken", (0.1, said[:4]), (0.3, said[4:])), says("whole", (0.2, GOOD[:5]), (0.9, GOOD[5:])), fields=JSON
    )
    record = run(track.run())
    assert track.outcomes == {"broken": "failed", "whole": "won"}
    assert record.attempts[0].flaw is flaw
    assert record.ttft_ms == pytest.approx(900)
    assert isinstance(track.sink, RememberingSink)
    assert track.sink.bytes == delta(GOOD[:5]) + delta(GOOD[5:]) + FINISH + DONE


def test_nobody_valid_is_an_error_that_names_each_flaw() -> None:
    track = race(calls("one", 0.1, 0.3, "{"), calls("two", 0.2, 0.4, tool="nope"))
    with pytest.raises(NoValidAnswer) as raised:
        run(track.run())
    assert raised.value.status == 502
    assert "one: invalid_answer: bad_tool_call" in raised.value.message
    assert "two: invalid_answer: unknown_tool" in raised.value.message
    record = track.recorder.records[0]
    assert (record.status_code, record.error_kind, record.first_was_invalid) == (502, "no_valid_answer", True)


@pytest.mark.parametrize("streamed", [True, False])
def test_nobody_valid_may_be_the_best_of_them(*, streamed: bool) -> None:
    sink = RememberingSink() if streamed else GatheringSink(PIVOT)
    near = calls("near", 0.2, 0.9, '{"town": "Oslo"}')
    track = race(calls("far", 0.1, 0.3, "{"), near, invalid=Invalid.BEST, sink=sink, streamed=streamed)
    record = run(track.run())
    assert track.outcomes == {"far": "lost", "near": "won"}
    assert record.status_code == 200
    assert record.ttft_ms == pytest.approx(900)
    assert {each.deployment: each.flaw for each in record.attempts} == {
        "far": Flaw.BAD_TOOL_CALL,
        "near": Flaw.SCHEMA_MISS,
    }


def test_a_call_without_arguments_that_its_tool_requires_is_counted_as_not_valid() -> None:
    record = run(race(calls("bare", 0.1, 0.3, ""), calls("whole", 0.2, 0.9)).run())
    assert {each.deployment: each.tool_calls_valid for each in record.attempts} == {"bare": False, "whole": True}


def test_a_valid_one_wins_though_an_invalid_one_is_kept() -> None:
    track = race(calls("broken", 0.1, 0.3, "{"), calls("whole", 0.2, 0.9), invalid=Invalid.BEST)
    record = run(track.run())
    assert track.outcomes == {"broken": "lost", "whole": "won"}
    assert record.attempts[0].flaw is Flaw.BAD_TOOL_CALL
    assert record.first_was_invalid is True


@pytest.mark.parametrize("invalid", list(Invalid))
def test_after_an_invalid_answer_the_next_one_is_asked_at_once(invalid: Invalid) -> None:
    later = [("one", 0.0, Role.PRIMARY), ("two", 9.0, Role.HEDGE)]
    track = race(calls("one", 0.1, 0.3, "{"), calls("two", 0.2, 0.5), launches=later, invalid=invalid)
    record = run(track.run())
    assert record.ttft_ms == pytest.approx(800)
    assert [each.role for each in record.attempts] == [Role.PRIMARY, Role.HEDGE]


@pytest.mark.parametrize("invalid", list(Invalid))
def test_it_is_asked_only_if_the_budget_allows(invalid: Invalid) -> None:
    primary = [("one", 0.0, Role.PRIMARY)]
    one, two = calls("one", 0.1, 0.3, "{"), calls("two", 0.2, 0.5)
    track = race(one, two, launches=primary, rest=["two"], permits=0, invalid=invalid)
    if invalid is Invalid.ERROR:
        with pytest.raises(NoValidAnswer):
            run(track.run())
    else:
        assert run(track.run()).ttft_ms == pytest.approx(300)
    assert [start.deployment for start in track.recorder.launched] == ["one"]


def test_an_attempt_that_breaks_is_still_replaced_without_the_budget() -> None:
    primary = [("one", 0.0, Role.PRIMARY)]
    one = Timetable("one", [(0.1, delta(tool_calls=[])), (0.2, None)])
    track = race(one, calls("two", 0.2, 0.5), launches=primary, rest=["two"], permits=0)
    assert run(track.run()).ttft_ms == pytest.approx(700)


def test_what_is_too_long_to_be_judged_claims_unjudged() -> None:
    piece = "x" * 100_000
    pieces = [(0.1 * n, piece) for n in range(1, 6)]
    record = run(race(says("long", *pieces), fields=JSON).run())
    assert record.ttft_ms == pytest.approx(300)
    assert record.attempts[0].judged_as is None


def test_an_answer_that_the_clients_own_limit_cut_off_is_not_blamed() -> None:
    cut = event(
        id="c1",
        object="chat.completion.chunk",
        model="m",
        choices=[{"index": 0, "delta": {}, "finish_reason": "length"}],
    )
    steps = [(0.1, delta(GOOD[:5])), (0.3, cut), (0.4, DONE), (0.4, None)]
    record = run(race(Timetable("cut", steps), fields=JSON, max_tokens=2).run())
    assert (record.status_code, record.attempts[0].flaw) == (200, None)
    assert record.ttft_ms == pytest.approx(400)


def test_a_watched_loser_is_judged_too() -> None:
    track = race(says("talks", (0.2, "Cold.")), calls("broken", 0.1, 0.6, "{"), audited=["broken"])

    async def watched() -> None:
        await track.run()
        await asyncio.sleep(5)

    run(watched())
    assert [(each.deployment, each.flaw) for each in track.recorder.audited] == [("broken", Flaw.BAD_TOOL_CALL)]


def test_an_unknown_tool_is_known_by_its_name() -> None:
    broken = calls("broken", 0.1, 9.0, tool="whether")
    later = [("broken", 0.0, Role.PRIMARY), ("whole", 5.0, Role.HEDGE)]
    record = run(race(broken, calls("whole", 0.2, 0.5), launches=later).run())
    assert record.ttft_ms == pytest.approx(600)
    assert record.attempts[0].flaw is Flaw.UNKNOWN_TOOL
    assert broken.aborts == 1


def test_the_best_of_all_is_sent_whole_even_if_it_calls_an_unknown_tool() -> None:
    track = race(calls("one", 0.1, 0.5, tool="nope"), invalid=Invalid.BEST)
    run(track.run())
    assert isinstance(track.sink, RememberingSink)
    assert track.sink.bytes == b"".join(step for _, step in called(0.1, 0.5, tool="nope"))


@pytest.mark.parametrize("win_on", [WinOn.ANY, WinOn.VALID])
def test_arguments_that_are_nested_too_deep_to_be_read_are_a_flaw_like_another(win_on: WinOn) -> None:
    deep = calls("deep", 0.1, 0.3, "[" * 10_000)
    track = Track(deep, calls("whole", 0.2, 0.9), win_on=win_on, fields=TOOLS)
    record = run(track.run())
    assert [each.deployment for each in record.attempts] == ["deep", "whole"]
    assert record.attempts[0].flaw is Flaw.BAD_TOOL_CALL
    assert track.outcomes["deep"] == ("won" if win_on is WinOn.ANY else "failed")


@pytest.mark.parametrize(
    "schema",
    [
        {"required": "city"},
        {"enum": "Oslo"},
        {"properties": ["city"]},
        {"anyOf": "city"},
        {"dependentRequired": {"city": "town"}},
        {"type": "nonsense"},
        {"$ref": "#/nowhere"},
        "city",
        5,
        [],
    ],
)
def test_what_is_no_schema_makes_no_answer_invalid(schema: Any) -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": schema}}
    track = race(calls("early", 0.1, 0.3), calls("late", 0.2, 0.9), fields={"tools": [tool]})
    run(track.run())
    assert track.outcomes == {"early": "won", "late": "lost"}
