"""Errors by their message alone: of a stream that breaks off after it that is the reason, and so of a whole answer."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest

from gateway.core.errors import ApiError
from gateway.racing import GatheringSink
from providers import UpstreamError, events
from providers.dialects import CHAT, COMPLETIONS, GEMINI, MESSAGES, RESPONSES, Dialect
from tests.unit.racing.track import DONE, FINISH, RememberingSink, Step, Timetable, Track, delta, event, usage
from tests.unit.racing.virtual_time import run

SHAPES: dict[str, dict[str, Any]] = {
    "detail": {"detail": "boom"},
    "code": {"code": "InternalFault", "message": "boom", "request_id": "r"},
    "success": {"success": False, "message": "boom"},
    "error_message": {"error_type": "generation", "error_message": '{"error":{"message":"boom"}}'},
}
DIALECTS = [CHAT, MESSAGES, RESPONSES, GEMINI]


def told(*said: bytes, dialect: Dialect = CHAT, speaks: Dialect = CHAT) -> Track:
    """Return the track of a race in which the only upstream, which ``speaks`` this API, sends these events."""
    steps: list[tuple[float, Step]] = [(0.1 * number, each) for number, each in enumerate(said)]
    track = Track(Timetable("a", [*steps, (steps[-1][0], None)]))
    track._call_options["dialect"] = dialect
    speaking = msgspec.structs.replace(track.model.deployments["a"], speaks=(speaks,))
    track.model = msgspec.structs.replace(track.model, deployments={"a": speaking})
    return track


def failure(track: Track) -> tuple[str | None, str | None]:
    with suppress(ApiError):  # if nothing went to the client
        run(track.run())
    (attempt,) = track.recorder.records[0].attempts
    assert attempt.outcome == "failed"
    return attempt.error_kind, attempt.error_message


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.name)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("end", [b"", DONE])
def test_the_last_event_says_why_an_answer_breaks_off(dialect: Dialect, shape: str, end: bytes) -> None:
    for said in ((delta("Hel"),), ()):
        track = told(*said, event(**SHAPES[shape]) + end, dialect=dialect)
        assert failure(track) == ("server_error", "boom")


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.name)
def test_a_whole_answer_that_breaks_off_says_why(dialect: Dialect) -> None:
    track = told(delta("Hel"), event(detail="boom"), dialect=dialect)
    track.sink = GatheringSink(dialect)
    assert failure(track) == ("server_error", "boom")


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.name)
def test_the_last_of_several_counts_and_what_it_says_of_its_kind(dialect: Dialect) -> None:
    last = event(code=429, message="slow down")
    track = told(delta("Hel"), event(message="queued"), last, dialect=dialect)
    assert failure(track) == ("rate_limited", "slow down")


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.name)
def test_an_answer_with_a_finish_reason_is_whole_whatever_stands_beside_it(dialect: Dialect) -> None:
    track = told(delta("Hel"), event(detail="boom"), FINISH, usage(), DONE, dialect=dialect)
    (attempt,) = run(track.run()).attempts
    assert attempt.outcome == "won"


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.name)
def test_an_answer_that_breaks_off_without_a_word_is_truncated(dialect: Dialect) -> None:
    track = told(delta("Hel"), event(choices=[], note={"message": "boom"}), dialect=dialect)
    assert failure(track) == ("upstream_truncated", "the stream ended without a finish reason")


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.name)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("end", [b"", DONE])
def test_text_before_the_reason_reaches_the_client_also_from_the_same_read(
    dialect: Dialect, shape: str, end: bytes
) -> None:
    track = told(delta("Hel"), delta("written") + event(**SHAPES[shape]) + end, dialect=dialect)
    assert failure(track) == ("server_error", "boom")
    assert isinstance(track.sink, RememberingSink)
    assert b"written" in track.sink.bytes


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.name)
@pytest.mark.parametrize("end", [event(detail="boom"), event(detail="boom").rstrip()])
def test_an_event_at_the_end_may_lack_its_blank_line(dialect: Dialect, end: bytes) -> None:
    track = told(delta("Hel"), delta("written") + end, dialect=dialect)
    assert failure(track) == ("server_error", "boom")
    assert isinstance(track.sink, RememberingSink)
    assert b"written" in track.sink.bytes


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.name)
@pytest.mark.parametrize("later", [(delta("written"),), (delta("written").rstrip(),), (delta("writ") + delta("ten"),)])
def test_what_came_before_later_text_is_no_reason(dialect: Dialect, later: tuple[bytes, ...]) -> None:
    track = told(delta("Hel"), event(detail="slow"), *later, dialect=dialect)
    assert failure(track) == ("upstream_truncated", "the stream ended without a finish reason")
    assert isinstance(track.sink, RememberingSink)
    assert b"".join(later).count(b"writ") == track.sink.bytes.count(b"writ")


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.name)
@pytest.mark.parametrize("nothing", [delta(), delta(role="assistant", content=""), event(choices=[]), usage()])
def test_later_events_without_text_leave_the_reason(dialect: Dialect, nothing: bytes) -> None:
    track = told(delta("Hel"), event(detail="boom"), nothing, DONE, dialect=dialect)
    assert failure(track) == ("server_error", "boom")


def named(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\n".encode() + event(type=kind, **fields)


BEGUN = {
    MESSAGES: named("message_start", message={"id": "m", "usage": {"input_tokens": 1}})
    + named("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    RESPONSES: named("response.created", response={"id": "r", "status": "in_progress", "output": []}),
    GEMINI: event(candidates=[{"content": {"parts": [{"text": "So "}]}}]),
}
TEXT = {
    MESSAGES: named("content_block_delta", index=0, delta={"type": "text_delta", "text": "written"}),
    RESPONSES: named("response.output_text.delta", output_index=0, delta="written"),
    GEMINI: event(candidates=[{"content": {"parts": [{"text": "written"}]}}]),
}
WHOLE = {
    MESSAGES: named("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 1})
    + named("message_stop"),
    RESPONSES: named("response.completed", response={"id": "r", "status": "completed", "output": []}),
    GEMINI: event(candidates=[{"finishReason": "STOP"}]),
}


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.name)
@pytest.mark.parametrize("speaks", TEXT, ids=lambda each: each.name)
@pytest.mark.parametrize("end", [b"", DONE])
def test_a_provider_of_any_api_says_why_it_breaks_off(dialect: Dialect, speaks: Dialect, end: bytes) -> None:
    for shape in SHAPES.values():
        for said in ((BEGUN[speaks] + TEXT[speaks], TEXT[speaks] + event(**shape) + end), (event(**shape) + end,)):
            track = told(*said, dialect=dialect, speaks=speaks)
            assert failure(track) == ("server_error", "boom")
            assert isinstance(track.sink, RememberingSink)
            assert track.sink.bytes.count(b"written") == b"".join(said).count(b"written")


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.name)
@pytest.mark.parametrize("speaks", TEXT, ids=lambda each: each.name)
def test_beside_an_end_of_any_api_it_is_no_reason(dialect: Dialect, speaks: Dialect) -> None:
    queued, over = event(message="queued"), event(message="over")
    track = told(queued, BEGUN[speaks], TEXT[speaks] + queued, WHOLE[speaks] + over, dialect=dialect, speaks=speaks)
    (attempt,) = run(track.run()).attempts
    assert attempt.outcome == "won"
    if dialect is CHAT:  # clients take the first choice of a chunk, if the list is not empty
        assert isinstance(track.sink, RememberingSink)
        assert all(b'"choices":' in each.data for each in events(track.sink.bytes) if each.data != b"[DONE]")


@pytest.mark.parametrize("dialect", [*DIALECTS, COMPLETIONS], ids=lambda each: each.name)
@pytest.mark.parametrize(
    ("said", "kind"),
    [
        *((each, "server_error") for each in SHAPES.values()),
        ({"message": "boom", "code": "rate_limit_exceeded"}, "rate_limited"),
        ({"error_message": "boom", "error_type": "rate_limit_error", "request": {"id": "1"}}, "rate_limited"),
        ({"detail": "", "message": None, "errors": []}, "invalid_response"),
        ({"message": {"role": "assistant", "content": "a"}}, "invalid_response"),
    ],
)
def test_whole_json_without_an_answer_says_why(dialect: Dialect, said: dict[str, Any], kind: str) -> None:
    with pytest.raises(UpstreamError) as caught:
        dialect.answers.events_of_answer(msgspec.json.encode(said), ())
    assert caught.value.kind == kind
    assert (caught.value.message == "boom") == (kind != "invalid_response")


@pytest.mark.parametrize("shape", ["detail", "code", "error_message"])
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.name)
def test_a_chat_without_choices_says_why(dialect: Dialect, shape: str) -> None:
    answer = {"id": "c1", "object": "chat.completion", "choices": [], **SHAPES[shape]}
    events = CHAT.answers.events_of_answer(msgspec.json.encode(answer), ())
    assert failure(told(events, dialect=dialect)) == ("server_error", "boom")


@pytest.mark.parametrize("beside", [{"message": "success"}, {"error_message": "", "msg": "ok", "detail": "ok"}])
def test_what_stands_beside_a_whole_answer_is_no_error(beside: dict[str, Any]) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}
    events = CHAT.answers.events_of_answer(msgspec.json.encode({"choices": [choice], **beside}), ())
    (attempt,) = run(told(events).run()).attempts
    assert attempt.outcome == "won"
