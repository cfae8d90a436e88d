"""Several answers to one request (``n``, or a batch of prompts): each has to have its end."""

from typing import Any

import msgspec
import pytest

from gateway.core.attempts import Role
from gateway.racing import GatheringSink, answers_asked
from providers import ErrorKind, UpstreamError
from providers.dialects import CHAT, COMPLETIONS, GEMINI, Dialect
from tests.unit.racing.test_race import answers
from tests.unit.racing.track import DONE, RememberingSink, Step, Timetable, Track, event
from tests.unit.racing.virtual_time import run

RESET = UpstreamError(ErrorKind.DISCONNECTED, "reset")
TWO: dict[str, Any] = {"n": 2}


def of(index: int, text: str = "", reason: str | None = None) -> bytes:
    content = {"content": text} if text else {}
    return event(id="c1", model="m", choices=[{"index": index, "delta": content, "finish_reason": reason}])


def two(*end: tuple[float, Step]) -> Timetable:
    """Return an upstream whose first answer has its end at 0.3 s."""
    return Timetable("two", [(0.1, of(0, "a")), (0.2, of(1, "b")), (0.3, of(0, reason="stop")), *end])


@pytest.mark.parametrize(("end", "kind"), [(RESET, "disconnected"), (None, "upstream_truncated")])
def test_a_stream_that_breaks_before_each_has_its_end_is_no_whole_answer(end: Step, kind: str) -> None:
    track = Track(two((0.5, end)), fields=TWO)
    record = run(track.run())
    assert isinstance(track.sink, RememberingSink)
    assert (record.error_kind, track.sink.ended, track.outcomes) == (kind, False, {"two": "failed"})


@pytest.mark.parametrize("end", [RESET, DONE])
def test_a_gathered_answer_that_breaks_before_each_has_its_end_is_replaced(end: Step) -> None:
    ends = (of(0, reason="stop"), of(1, reason="stop"), DONE, None)
    whole = Timetable("whole", [(0.1, of(0, "x")), (0.1, of(1, "y")), *((0.2, end) for end in ends)])
    launches = [("two", 0.0, Role.PRIMARY)]
    sink = GatheringSink(CHAT)
    track = Track(two((0.5, end)), whole, launches=launches, rest=["whole"], fields=TWO, sink=sink, streamed=False)
    run(track.run())
    assert track.outcomes == {"two": "failed", "whole": "won"}
    said = msgspec.json.decode(sink.body())["choices"]
    assert [(each["message"]["content"], each["finish_reason"]) for each in said] == [("x", "stop"), ("y", "stop")]


def test_once_each_has_its_end_the_answer_is_whole() -> None:
    track = Track(two((0.4, of(1, reason="length")), (0.5, RESET)), fields=TWO)
    assert run(track.run()).error_kind is None
    assert track.outcomes == {"two": "won"}


def test_who_says_that_all_is_over_before_each_has_its_end_gives_no_whole_answer() -> None:
    track = Track(two((0.5, DONE), (0.5, None)), fields=TWO)
    record = run(track.run())
    assert isinstance(track.sink, RememberingSink)
    assert (record.error_kind, track.sink.ended) == ("upstream_truncated", False)
    assert DONE not in track.sink.bytes


def test_one_that_has_its_end_hurries_no_other() -> None:
    late: list[tuple[float, Step]] = [(9.0, of(1, "b")), (9.1, of(1, reason="stop")), (9.1, DONE), (9.1, None)]
    track = Track(two(*late), fields=TWO)
    assert run(track.run()).total_ms == pytest.approx(9100)
    assert isinstance(track.sink, RememberingSink)
    assert track.sink.bytes.count(of(1, "b")) == 2


IN_TURN: list[tuple[float, Step]] = [(0.1, of(0, "a")), (0.2, of(0, reason="stop"))]


def test_they_may_come_one_after_the_other() -> None:
    late: list[tuple[float, Step]] = [(9.0, of(1, "b")), (9.1, of(1, reason="stop")), (9.1, DONE), (9.1, None)]
    track = Track(Timetable("two", [*IN_TURN, *late]), fields=TWO)
    assert run(track.run()).total_ms == pytest.approx(9100)
    assert isinstance(track.sink, RememberingSink)
    assert track.sink.bytes.count(of(1, "b")) == 1


def test_a_stream_that_breaks_between_them_is_no_whole_answer() -> None:
    track = Track(Timetable("two", [*IN_TURN, (0.5, RESET)]), fields=TWO)
    assert run(track.run()).error_kind == "disconnected"


@pytest.mark.parametrize("end", [DONE, None])
def test_a_provider_that_gives_one_of_two_and_ends_its_stream_has_answered(end: Step) -> None:
    track = Track(Timetable("one", [*IN_TURN, (0.3, end), (0.3, None)]), fields=TWO)
    assert run(track.run()).error_kind is None
    assert track.outcomes == {"one": "won"}


def test_a_translation_that_has_read_of_the_first_only_hurries_none() -> None:
    in_turn: list[tuple[float, Step]] = [(0.1, candidate(0, "a")), (0.2, candidate(0, reason="STOP"))]
    late: list[tuple[float, Step]] = [(9.0, candidate(1, "b")), (9.1, candidate(1, reason="STOP")), (9.1, None)]
    track = Track(Timetable("two", [*in_turn, *late]), fields=TWO)
    speaking = msgspec.structs.replace(track.model.deployments["two"], speaks=(GEMINI,))
    track.model = msgspec.structs.replace(track.model, deployments={"two": speaking})
    assert run(track.run()).total_ms == pytest.approx(9100)


def text(index: int, said: str = "", reason: str | None = None) -> bytes:
    return event(id="c1", model="m", choices=[{"index": index, "text": said, "finish_reason": reason}])


def candidate(index: int, said: str = "", reason: str | None = None) -> bytes:
    end = {} if reason is None else {"finishReason": reason}
    return event(candidates=[{"index": index, "content": {"parts": [{"text": said}]}, **end}])


@pytest.mark.parametrize(
    ("dialect", "fields", "make"),
    [
        (COMPLETIONS, {"prompt": ["one", "two"]}, text),
        (COMPLETIONS, {"prompt": "one", "n": 2}, text),
        (GEMINI, {"generationConfig.candidateCount": 2}, candidate),
    ],
)
def test_so_it_is_in_each_dialect_that_has_several(dialect: Dialect, fields: dict[str, Any], make: Any) -> None:
    begun: list[tuple[float, Step]] = [(0.1, make(0, "a")), (0.2, make(1, "b")), (0.3, make(0, "", "stop"))]
    ended: list[tuple[float, Step]] = [*begun, (0.4, make(1, "", "stop"))]
    in_turn: list[tuple[float, Step]] = [(0.1, make(0, "a")), (0.3, make(0, "", "stop"))]
    for steps, kind in (begun, "disconnected"), (in_turn, "disconnected"), (ended, None):
        track = Track(Timetable("two", [*steps, (0.5, RESET)]), fields=fields)
        track._call_options["dialect"] = dialect
        speaking = msgspec.structs.replace(track.model.deployments["two"], speaks=(dialect,))
        track.model = msgspec.structs.replace(track.model, deployments={"two": speaking})
        assert run(track.run()).error_kind == kind


def test_a_request_for_one_is_whole_with_its_end_as_ever() -> None:
    track = Track(answers("one", 0.1), fields={"n": 1})
    assert run(track.run()).error_kind is None


@pytest.mark.parametrize(
    ("dialect", "fields", "make"),
    [
        (CHAT, {}, of),
        (CHAT, {"n": 1}, of),
        (COMPLETIONS, {"prompt": "one"}, text),
        (COMPLETIONS, {"prompt": ["one"], "n": 1}, text),
        (GEMINI, {"generationConfig.candidateCount": 1}, candidate),
    ],
)
def test_who_gives_more_than_the_one_that_was_asked_for_has_answered_with_its_end(
    dialect: Dialect, fields: dict[str, Any], make: Any
) -> None:
    more: list[tuple[float, Step]] = [(0.1, make(0, "a")), (0.2, make(1, "b")), (0.3, make(0, "", "stop"))]
    track = Track(Timetable("more", [*more, (0.5, RESET)]), fields=fields)
    track._call_options["dialect"] = dialect
    speaking = msgspec.structs.replace(track.model.deployments["more"], speaks=(dialect,))
    track.model = msgspec.structs.replace(track.model, deployments={"more": speaking})
    assert run(track.run()).error_kind is None
    assert track.outcomes == {"more": "won"}


@pytest.mark.parametrize(
    ("dialect", "fields", "number"),
    [
        (CHAT, {"n": 2}, 2),
        (CHAT, {"n": 1}, 1),
        (CHAT, {"n": None}, 1),
        (CHAT, {}, 1),
        (GEMINI, {"generationConfig.candidateCount": 2}, 2),
        (COMPLETIONS, {"prompt": ["a", "b"]}, 2),
        (COMPLETIONS, {"prompt": ["a"]}, 1),
        (COMPLETIONS, {"prompt": [[1, 2], [3]]}, 2),
        (COMPLETIONS, {"prompt": [1, 2]}, 1),
        (COMPLETIONS, {"prompt": "a"}, 1),
        (COMPLETIONS, {"prompt": "a", "n": 3}, 3),
        (COMPLETIONS, {"prompt": ["a", "b"], "n": 3}, 6),
    ],
)
def test_several_answers_are_asked_for_by_number_or_by_several_prompts(
    dialect: Dialect, fields: dict[str, Any], number: int
) -> None:
    raw = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}
    assert answers_asked(raw, dialect) == number


@pytest.mark.parametrize("number", [2.0, "2"])
def test_a_number_that_lenient_servers_take_counts(number: Any) -> None:
    assert answers_asked({"n": msgspec.Raw(msgspec.json.encode(number))}, CHAT) == 2


@pytest.mark.parametrize("number", ["two", -1, 1e300])
def test_a_number_that_is_none_counts_as_one(number: Any) -> None:
    assert answers_asked({"n": msgspec.Raw(msgspec.json.encode(number))}, CHAT) == 1
