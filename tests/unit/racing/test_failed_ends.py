"""Ends that say why there is no answer: another deployment is asked if there was none yet, and usage counts."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest

from gateway.core.attempts import Role
from gateway.core.errors import ApiError
from gateway.racing import GatheringSink
from providers.dialects import CHAT, GEMINI, MESSAGES, RESPONSES, Dialect
from tests.unit.racing.track import RememberingSink, Step, Timetable, Track, event
from tests.unit.racing.virtual_time import run

FAILED = ["OTHER", "MALFORMED_FUNCTION_CALL", "NO_IMAGE", "TOO_MANY_TOOL_CALLS"]


def answer(reason: str | None = None, *parts: dict[str, Any]) -> bytes:
    end = {} if reason is None else {"finishReason": reason}
    usage = {"promptTokenCount": 9, "thoughtsTokenCount": 7}
    return event(candidates=[{"index": 0, "content": {"parts": list(parts)}, **end}], usageMetadata=usage)


def track_of(*steps: bytes, dialect: Dialect, speaks: Dialect = GEMINI) -> Track:
    """Return the track of a race whose second upstream, with a good answer, is asked once the first has failed."""
    first: list[tuple[float, Step]] = [(0.1, each) for each in steps]
    good = [(0.1, answer("STOP", {"text": "good"})), (0.1, None)]
    upstreams = Timetable("a", [*first, (0.1, None)]), Timetable("b", good)
    track = Track(*upstreams, launches=[("a", 0.0, Role.PRIMARY)], rest=["b"])
    track._call_options["dialect"] = dialect
    speaking = {name: msgspec.structs.replace(each, speaks=(speaks,)) for name, each in track.model.deployments.items()}
    track.model = msgspec.structs.replace(track.model, deployments=speaking)
    return track


@pytest.mark.parametrize("dialect", [GEMINI, CHAT], ids=lambda each: each.name)
@pytest.mark.parametrize("reason", FAILED)
@pytest.mark.parametrize("begun", [[], [answer()]])
@pytest.mark.parametrize("streamed", [True, False])
def test_an_answer_that_says_nothing_has_failed_by_its_reason(
    dialect: Dialect, reason: str, begun: list[bytes], *, streamed: bool
) -> None:
    track = track_of(*begun, answer(reason), dialect=dialect)
    if not streamed:
        track.sink = GatheringSink(dialect)
    run(track.run())
    assert track.outcomes == {"a": "failed", "b": "won"}
    assert track.recorder.ended[0].error_message == f"the answer ended with {reason}"


@pytest.mark.parametrize("reason", FAILED)
@pytest.mark.parametrize(
    "part",
    [
        {"text": "Hi"},
        {"functionCall": {"name": "f", "args": {}}},
        {"inlineData": {"mimeType": "image/png", "data": "aGk="}},
        {"fileData": {"fileUri": "gs://a/b"}},
        {"executableCode": {"code": "1"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK"}},
    ],
    ids=lambda part: next(iter(part)),
)
def test_what_was_said_reaches_clients_of_the_same_api_with_its_reason(reason: str, part: dict[str, Any]) -> None:
    for said in ([answer(None, part), answer(reason)], [answer(reason, part)]):
        track = track_of(*said, dialect=GEMINI)
        run(track.run())
        assert track.outcomes == {"a": "won"}
        assert isinstance(track.sink, RememberingSink)
        assert track.sink.bytes == b"".join(said)


@pytest.mark.parametrize("dialect", [CHAT, MESSAGES, RESPONSES], ids=lambda each: each.name)
def test_a_call_that_was_written_badly_behind_a_text_breaks_the_answer_off_for_clients_of_another_api(
    dialect: Dialect,
) -> None:
    text, end = answer(None, {"text": "Hi"}), answer("MALFORMED_FUNCTION_CALL")
    whole = track_of(text, end, dialect=dialect)
    whole.sink = GatheringSink(dialect)
    at_once = track_of(text + end, dialect=dialect)
    for track in (whole, at_once):  # the client has nothing yet
        run(track.run())
        assert track.outcomes == {"a": "failed", "b": "won"}
    begun = track_of(text, end, dialect=dialect)
    assert run(begun.run()).error_kind == "stream_error"
    assert begun.outcomes == {"a": "failed"}


@pytest.mark.parametrize("dialect", [GEMINI, CHAT], ids=lambda each: each.name)
@pytest.mark.parametrize("reason", FAILED)
def test_behind_a_call_it_is_the_end_of_that(dialect: Dialect, reason: str) -> None:
    track = track_of(answer(None, {"functionCall": {"name": "f", "args": {}}}), answer(reason), dialect=dialect)
    run(track.run())
    assert track.outcomes == {"a": "won"}


@pytest.mark.parametrize("dialect", [GEMINI, CHAT], ids=lambda each: each.name)
def test_a_picture_wins_at_once(dialect: Dialect) -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
    track = track_of(answer("STOP", picture), dialect=dialect)
    record = run(track.run())
    assert (record.ttft_ms, record.is_empty) == (pytest.approx(100), False)
    assert track.outcomes == {"a": "won"}


@pytest.mark.parametrize("dialect", [GEMINI, CHAT], ids=lambda each: each.name)
@pytest.mark.parametrize("part", [{"text": "hm", "thought": True}, {"text": ""}], ids=["thought", "nothing"])
def test_the_default_word_for_a_reason_is_none_before_the_answer(dialect: Dialect, part: dict[str, Any]) -> None:
    default = "FINISH_REASON_UNSPECIFIED"
    track = track_of(answer(default, part), answer("STOP", {"text": "Hi"}), dialect=dialect)
    run(track.run())
    assert track.outcomes == {"a": "won"}
    assert isinstance(track.sink, RememberingSink)
    assert b"Hi" in track.sink.bytes


def test_of_two_answers_one_that_failed_leaves_the_other() -> None:
    other = event(candidates=[{"index": 1, "content": {"parts": [{"text": "Hi"}]}, "finishReason": "STOP"}])
    track = track_of(answer("OTHER"), other, dialect=GEMINI)
    assert GEMINI.requests.choices is not None
    track._fields[GEMINI.requests.choices] = msgspec.Raw(b"2")
    run(track.run())
    assert track.outcomes == {"a": "won"}


def test_thoughts_alone_are_no_answer() -> None:
    track = track_of(answer(None, {"text": "hm", "thought": True}), answer("OTHER"), dialect=GEMINI)
    assert run(track.run()).error_kind == "stream_error"
    assert isinstance(track.sink, RememberingSink)
    assert b"OTHER" not in track.sink.bytes


@pytest.mark.parametrize("reason", ["STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "LANGUAGE", "MODEL_ARMOR"])
def test_an_empty_answer_with_another_reason_is_one(reason: str) -> None:
    track = track_of(answer(reason), dialect=GEMINI)
    run(track.run())
    assert track.outcomes == {"a": "won"}


@pytest.mark.parametrize("dialect", [GEMINI, CHAT], ids=lambda each: each.name)
def test_a_prompt_that_was_blocked_for_another_reason_is_refused_by_a_filter(dialect: Dialect) -> None:
    track = track_of(event(promptFeedback={"blockReason": "OTHER"}), dialect=dialect)
    run(track.run())
    assert track.outcomes == {"a": "failed", "b": "won"}
    assert track.recorder.ended[0].error_kind == "bad_request"


@pytest.mark.parametrize("dialect", [RESPONSES, CHAT, MESSAGES, GEMINI], ids=lambda each: each.name)
@pytest.mark.parametrize("text", [b"", event(type="response.output_text.delta", output_index=0, delta="Hi")])
def test_a_response_that_failed_has_the_usage_it_tells(dialect: Dialect, text: bytes) -> None:
    usage = {"input_tokens": 50, "output_tokens": 9, "total_tokens": 59}
    error = {"code": "server_error", "message": "boom"}
    failed = event(type="response.failed", response={"status": "failed", "error": error, "usage": usage})
    track = track_of(event(type="response.created", response={}) + text, failed, dialect=dialect, speaks=RESPONSES)
    with suppress(ApiError):  # where nothing went to the client: the other one fails, too
        run(track.run())
    attempt = track.recorder.ended[0]
    assert (attempt.error_message, attempt.prompt_tokens, attempt.completion_tokens) == ("boom", 50, 9)
    assert attempt.tokens_source == "reported"


@pytest.mark.parametrize("dialect", [GEMINI, CHAT], ids=lambda each: each.name)
def test_an_empty_answer_that_failed_has_the_usage_it_tells(dialect: Dialect) -> None:
    track = track_of(answer("OTHER"), dialect=dialect)
    run(track.run())
    attempt = track.recorder.ended[0]
    assert (attempt.outcome, attempt.prompt_tokens, attempt.completion_tokens) == ("failed", 9, 7)
