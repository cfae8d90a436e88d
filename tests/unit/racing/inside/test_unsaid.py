"""What a provider sends and the client's API cannot say (yet): it is no token, and no silence either."""

from typing import Any

import msgspec
import pytest

from gateway.core.attempts import Role
from gateway.fleet import Clocks
from gateway.racing import GatheringSink
from gateway.racing.timeouts import FINISH_GRACE_S
from providers.dialects import CHAT, GEMINI, MESSAGES, RESPONSES, Dialect
from tests.unit.racing.test_several import candidate, of
from tests.unit.racing.track import DONE, FINISH, Step, Timetable, Track, delta, event, usage
from tests.unit.racing.virtual_time import run

CLOCKS = Clocks(connect_s=5.0, ttft_s=20.0, stall_s=10.0, total_s=None)
NAMED = delta(tool_calls=[{"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}])
CALLED = event(id="c1", model="m", choices=[{"index": 0, "delta": {}, "finish_reason": "tool_calls"}])


def piece(arguments: str) -> bytes:
    return delta(tool_calls=[{"index": 0, "function": {"arguments": arguments}}])


def thought(text: str) -> bytes:
    return delta(reasoning_content=text)


def every_nine_seconds(events: list[bytes], last: list[bytes]) -> list[tuple[float, Step]]:
    times = [0.1 + 9.0 * number for number in range(len(events))]
    return [*zip(times, events, strict=True), *((times[-1] + 0.1, each) for each in [*last, DONE, None])]


def track_of(
    steps: list[tuple[float, Step]],
    dialect: Dialect,
    speaks: Dialect = CHAT,
    sink: GatheringSink | None = None,
    **fields: Any,
) -> Track:
    track = Track(Timetable("a", steps), clocks=CLOCKS, fields=fields, sink=sink, streamed=sink is None)
    track._call_options["dialect"] = dialect
    speaking = msgspec.structs.replace(track.model.deployments["a"], speaks=(speaks,))
    track.model = msgspec.structs.replace(track.model, deployments={"a": speaking})
    return track


WRITTEN = [piece('{"text":"'), *[piece("long ")] * 4, piece('"}')]
CASES = [
    (GEMINI, [delta("I write."), NAMED, *WRITTEN], [CALLED, usage()]),  # Gemini has no pieces of calls
    (GEMINI, [NAMED, *WRITTEN], [CALLED, usage()]),
    (GEMINI, [delta("So"), *map(thought, "abcd"), delta(" be it")], [FINISH, usage()]),  # thoughts were not asked for
    (MESSAGES, [*map(thought, "abcd"), delta("Yes")], [FINISH, usage()]),
]


@pytest.mark.parametrize(("dialect", "events", "last"), CASES)
def test_a_provider_that_sends_what_the_client_is_not_shown_is_not_silent(
    dialect: Dialect, events: list[bytes], last: list[bytes]
) -> None:
    track = track_of(every_nine_seconds(events, last), dialect)
    record = run(track.run())
    assert (record.status_code, record.error_kind, track.outcomes) == (200, None, {"a": "won"})


def test_what_is_not_shown_is_not_the_first_token_either() -> None:
    track = track_of(every_nine_seconds([*map(thought, "ab"), delta("Yes")], [FINISH, usage()]), MESSAGES)
    assert run(track.run()).ttft_ms == pytest.approx(18_100)


@pytest.mark.parametrize("idle", [delta(reasoning_content=""), delta(tool_calls=[]), b": a comment\n\n", delta()])
def test_events_with_nothing_in_them_are_silence_in_a_translation_too(idle: bytes) -> None:
    track = track_of(every_nine_seconds([delta("So"), *[idle] * 3, delta(" be it")], [FINISH, usage()]), GEMINI)
    assert run(track.run()).error_kind == "stall_timeout"


def test_googles_events_without_a_word_are_silence_in_chat() -> None:
    events = [candidate(0, "So"), *[candidate(0)] * 3, candidate(0, " be it", "STOP")]
    track = track_of(every_nine_seconds(events, []), CHAT, GEMINI)
    assert run(track.run()).error_kind == "stall_timeout"


@pytest.mark.parametrize("dialect", [CHAT, MESSAGES, RESPONSES, GEMINI], ids=lambda each: each.name)
@pytest.mark.parametrize(
    "last", [[(8.0, FINISH)], [(8.0, delta()), (8.0, FINISH)], [(8.0, FINISH + b": a comment\n\n")]]
)
def test_the_end_must_come_soon_after_a_finish_reason_whether_or_not_the_client_is_told_of_that(
    dialect: Dialect, last: list[tuple[float, Step]]
) -> None:
    track = track_of([(0.1, delta("Yes")), *last], dialect)
    record = run(track.run())
    assert (record.status_code, record.error_kind, track.outcomes) == (200, None, {"a": "won"})
    assert record.total_ms == pytest.approx(8_000 + 1_000 * FINISH_GRACE_S)


def test_usage_has_the_whole_time_after_the_finish_reason() -> None:
    track = track_of([(0.1, delta("Yes")), (8.0, FINISH), (12.0, usage())], GEMINI)
    (attempt,) = run(track.run()).attempts
    assert (attempt.outcome, attempt.completion_tokens, attempt.tokens_source) == ("won", 5, "reported")


def test_the_end_of_one_answer_hurries_no_other_that_was_asked_for() -> None:
    steps = every_nine_seconds([of(0, "Yes"), of(0, reason="stop"), of(1, "No"), of(1, reason="stop")], [usage()])
    two: dict[str, Any] = {"generationConfig.candidateCount": 2}
    track = track_of(steps, GEMINI, **two)
    record = run(track.run())
    assert (record.status_code, record.error_kind, record.total_ms) == (200, None, pytest.approx(27_200))


TWO: dict[str, Any] = {"generationConfig.candidateCount": 2}
ENDS_OF_TWO = {
    "one after the other": [of(0, reason="stop"), of(1, reason="stop")],
    "together": [of(0, reason="stop") + of(1, reason="stop")],
    "with the last text": [of(0, " it is", "stop"), of(1, " it is not", "stop")],
    "and a comment": [of(0, reason="stop"), of(1, reason="length") + b": a comment\n\n"],
}


@pytest.mark.parametrize("ends", ENDS_OF_TWO.values(), ids=ENDS_OF_TWO)
@pytest.mark.parametrize("begun", [[of(0, "Yes"), of(1, "No")], [of(0, "Yes")]], ids=["two texts", "one empty"])
@pytest.mark.parametrize("streamed", [True, False])
def test_the_end_must_come_soon_once_each_of_several_has_its_finish_reason(
    ends: list[bytes], begun: list[bytes], *, streamed: bool
) -> None:
    sink = None if streamed else GatheringSink(GEMINI)
    track = track_of([*((0.1, each) for each in begun), *((8.0, each) for each in ends)], GEMINI, sink=sink, **TWO)
    record = run(track.run())
    assert (record.status_code, record.error_kind, track.outcomes) == (200, None, {"a": "won"})
    assert record.total_ms == pytest.approx(8_000 + 1_000 * FINISH_GRACE_S)
    told = track.sink.body() if isinstance(track.sink, GatheringSink) else track.sink.bytes
    assert told.count(b"finishReason") == 2


def test_the_usage_of_several_comes_within_the_time_after_their_finish_reasons() -> None:
    ends = [(8.0, of(0, reason="stop")), (8.0, of(1, reason="stop")), (12.0, usage())]
    track = track_of([(0.1, of(0, "Yes")), (0.1, of(1, "No")), *ends], GEMINI, **TWO)
    (attempt,) = run(track.run()).attempts
    assert (attempt.outcome, attempt.completion_tokens, attempt.tokens_source) == ("won", 5, "reported")


@pytest.mark.parametrize("dialect", [CHAT, GEMINI], ids=lambda each: each.name)
def test_googles_own_candidates_need_no_end_of_their_stream(dialect: Dialect) -> None:
    said = [(0.1, candidate(0, "Yes")), (0.1, candidate(1, "No")), (8.0, candidate(0, "", "STOP"))]
    asked = TWO if dialect is GEMINI else {"n": 2}
    track = track_of([*said, (8.0, candidate(1, "", "STOP"))], dialect, GEMINI, **asked)
    record = run(track.run())
    assert (record.status_code, record.error_kind, track.outcomes) == (200, None, {"a": "won"})
    assert record.total_ms == pytest.approx(8_000 + 1_000 * FINISH_GRACE_S)


def test_a_race_ends_soon_after_the_last_finish_reason_of_its_winner() -> None:
    ends: list[tuple[float, Step]] = [(8.0, of(0, reason="stop")), (8.1, of(1, reason="stop"))]
    first = Timetable("a", [(0.1, of(0, "Yes")), (0.1, of(1, "No")), *ends])
    second = Timetable("b", [(9.0, of(0, "Late"))])
    launches = [("a", 0.0, Role.PRIMARY), ("b", 0.0, Role.RACE)]
    track = Track(first, second, launches=launches, clocks=CLOCKS, fields=TWO)
    track._call_options["dialect"] = GEMINI
    record = run(track.run())
    assert (record.status_code, record.error_kind, track.outcomes) == (200, None, {"a": "won", "b": "lost"})
    assert record.total_ms == pytest.approx(8_100 + 1_000 * FINISH_GRACE_S)


@pytest.mark.parametrize("streamed", [True, False])
def test_several_answers_of_chat_need_no_done(*, streamed: bool) -> None:
    said = [(0.1, of(0, "Yes")), (0.1, of(1, "No")), (8.0, of(0, reason="stop")), (8.0, of(1, reason="stop"))]
    track = track_of([*said], CHAT, sink=None if streamed else GatheringSink(CHAT), n=2)
    record = run(track.run())
    assert (record.status_code, record.error_kind, track.outcomes) == (200, None, {"a": "won"})
    assert record.total_ms == pytest.approx(8_000 + 1_000 * FINISH_GRACE_S)
