"""Events read, whole messages as streams and back, and errors, in the words of Messages."""

from typing import Any

import msgspec
import pytest

from providers.bodies import events
from providers.dialects import Chunk
from providers.dialects.messages.answers import ENDING, MessageGathering, events_of_answer, failure
from providers.dialects.messages.events import error_body, read_event
from providers.models import Usage
from providers.refusals import ErrorKind, UpstreamError
from tests.unit.providers.dialects.inside.test_messages_streams import message as gathered


def read(**event: Any) -> Chunk:
    return read_event(msgspec.json.encode(event))


def delta(**fields: Any) -> Chunk:
    return read(type="content_block_delta", index=0, delta=fields)


def block(**fields: Any) -> Chunk:
    return read(type="content_block_start", index=0, content_block=fields)


def what(chunk: Chunk) -> tuple[bool, bool, bool, int]:
    return chunk.meaningful, chunk.answer, chunk.reasoning, chunk.text_chars


NOTHING = (False, False, False, 0)


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        (delta(type="text_delta", text="Hé"), (True, True, False, 2)),
        (delta(type="thinking_delta", thinking="hmm"), (True, False, True, 3)),
        (delta(type="input_json_delta", partial_json='{"'), (True, True, False, 2)),
        (delta(type="text_delta", text=""), NOTHING),
        (delta(type="input_json_delta", partial_json=""), NOTHING),
        (delta(type="signature_delta", signature="s"), NOTHING),
        (delta(type="citations_delta", citation={}), NOTHING),
        (delta(type="text_delta", text=5), NOTHING),
        (block(type="text", text=""), NOTHING),
        (block(type="thinking", thinking="", signature=""), NOTHING),
        (block(type="text", text="x"), (True, True, False, 1)),
        (block(type="tool_use", id="a", name="f", input={}), (True, True, False, 1)),
        (block(type="web_search_tool_result", content=[]), (True, True, False, 0)),
        (block(type="redacted_thinking", data="x"), (True, False, True, 0)),
        (read(type="content_block_stop", index=0), NOTHING),
        (read(type="ping"), NOTHING),
        (read(type="from_the_future", delta={"text": "x"}), NOTHING),
        (read(type=5), NOTHING),
        (read_event(b""), NOTHING),
    ],
)
def test_an_event_is_meaningful_by_what_it_brings(chunk: Chunk, expected: Any) -> None:
    assert what(chunk) == expected
    assert (chunk.finished, chunk.done, chunk.usage, chunk.error) == (False, False, None, None)


def test_a_stop_reason_finishes_and_message_stop_ends() -> None:
    assert read(type="message_delta", delta={"stop_reason": "end_turn"}).finished
    assert not read(type="message_delta", delta={"stop_reason": None}).finished
    assert read(type="message_stop").done
    assert read_event(events(ENDING)[0].data).done


def test_the_prompt_holds_what_the_cache_had_and_the_start_tells_nothing_of_the_answer() -> None:
    counts = {"input_tokens": 3, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 5, "output_tokens": 1}
    started = read(type="message_start", message={"content": [], "usage": counts})
    assert started.usage == Usage(12, None, None, 4, 5)
    counts |= {"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 6}}  # type: ignore[dict-item]  # JSON
    assert read(type="message_delta", delta={}, usage=counts).usage == Usage(12, 9, 6, 4, 5)


def test_counts_that_are_missing_are_unknown() -> None:
    assert read(type="message_delta", delta={}, usage={"output_tokens": 9}).usage == Usage(None, 9)
    assert read(type="message_delta", delta={}, usage={"output_tokens": 0}).usage == Usage()
    assert read(type="message_delta", delta={}, usage={"output_tokens": "9", "input_tokens": 3}).usage == Usage(3)
    assert read(type="message_start", message={"usage": {"input_tokens": 0, "output_tokens": 0}}).usage is None


@pytest.mark.parametrize(
    ("type_", "kind", "status"),
    [
        ("overloaded_error", ErrorKind.SERVER_ERROR, 529),
        ("api_error", ErrorKind.SERVER_ERROR, 500),
        ("timeout_error", ErrorKind.SERVER_ERROR, 504),
        ("rate_limit_error", ErrorKind.RATE_LIMITED, 429),
        ("authentication_error", ErrorKind.PROVIDER_AUTH, 401),
        ("permission_error", ErrorKind.PROVIDER_AUTH, 403),
        ("billing_error", ErrorKind.PROVIDER_AUTH, 402),
        ("not_found_error", ErrorKind.NOT_FOUND, 404),
        ("request_too_large", ErrorKind.BAD_REQUEST, 413),
        ("invalid_request_error", ErrorKind.BAD_REQUEST, 400),
        ("from_the_future", ErrorKind.STREAM_ERROR, None),
    ],
)
def test_an_error_is_of_the_kind_its_type_says(type_: str, kind: ErrorKind, status: int | None) -> None:
    data = msgspec.json.encode({"type": "error", "error": {"type": type_, "message": "not with sk-secret-key"}})
    error = read_event(data, ["sk-secret-key"]).error
    assert error is not None
    assert (error.kind, error.status, error.message) == (kind, status, "not with ***")


@pytest.mark.parametrize("data", [b"{broken", b"[]", b"5", b"\xff"])
def test_what_is_no_object_is_no_event(data: bytes) -> None:
    with pytest.raises(UpstreamError) as caught:
        read_event(data)
    assert caught.value.kind is ErrorKind.INVALID_RESPONSE


WHOLE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "xx"},
        {
            "type": "text",
            "text": "Hé",
            "citations": [{"type": "char_location", "cited_text": "é"}, {"type": "new", "x": 1}],
        },
        {"type": "text", "text": "", "citations": None},
        {
            "type": "server_tool_use",
            "id": "s",
            "name": "web_search",
            "input": {"query": "q"},
            "caller": {"type": "direct"},
        },
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"url": "u", "page_age": None}]},
        {"type": "from_the_future", "text": "t", "input": [1], "x": {"y": None}},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"big": 12345678901234567890123, "f": 1.0}},
        {"type": "tool_use", "id": "u", "name": "g", "input": {}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "stop_details": None,
    "container": {"id": "c"},
    "usage": {"input_tokens": 5, "cache_read_input_tokens": None, "output_tokens": 9, "service_tier": "standard"},
    "from_the_future": {"k": [1]},
}


def test_a_whole_message_is_the_same_after_streaming() -> None:
    stream = events_of_answer(msgspec.json.encode(WHOLE))
    assert gathered(stream) == WHOLE
    chunks = [read_event(event.data) for event in events(stream)]
    assert [chunk.finished for chunk in chunks[-2:]] == [True, False]
    assert chunks[-1].done
    assert chunks[-2].usage == Usage(5, 9, tier="")


def test_a_block_without_text_brings_no_delta() -> None:
    stream = events_of_answer(b'{"content":[{"type":"text","text":""}],"stop_reason":"end_turn"}')
    assert b"content_block_delta" not in stream


@pytest.mark.parametrize(("begun", "before"), [(None, []), ([{"n": 0}], [{"n": 0}])])
def test_citations_are_added_to_those_there_are(begun: Any, before: list[Any]) -> None:
    gathering = MessageGathering()
    take(gathering, type="content_block_start", index=0, content_block={"type": "text", "citations": begun})
    take(gathering, type="content_block_delta", index=0, delta={"type": "citations_delta", "citation": {"n": 1}})
    assert msgspec.json.decode(gathering.body())["content"][0]["citations"] == [*before, {"n": 1}]


def test_numbers_of_a_tools_input_keep_their_digits() -> None:
    body = (
        b'{"content":[{"type":"tool_use","id":"a","name":"f","input":{"x":1.10, "y":1e400}}],"stop_reason":"tool_use"}'
    )
    gathering = MessageGathering()
    for event in events(events_of_answer(body)):
        gathering.take(Chunk(event.data))
    assert b'"input":{"x":1.10, "y":1e400}' in gathering.body()


def test_a_whole_message_without_a_stop_reason_is_finished_by_being_whole() -> None:
    stream = events_of_answer(b'{"content":[{"type":"text","text":"x"}],"stop_reason":null,"usage":null}')
    assert gathered(stream)["stop_reason"] == "end_turn"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", ErrorKind.UPSTREAM_EMPTY),
        (b"<html>", ErrorKind.INVALID_RESPONSE),
        (b"{}", ErrorKind.INVALID_RESPONSE),
        (b'{"content":"x"}', ErrorKind.INVALID_RESPONSE),
        (b'{"content":[{"text":"x"}]}', ErrorKind.INVALID_RESPONSE),
        (b'{"content":[{"type":"text","text":5}]}', ErrorKind.INVALID_RESPONSE),
        (b'{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}', ErrorKind.RATE_LIMITED),
        (b'{"type":"error","error":{"type":"new","message":"?"}}', ErrorKind.SERVER_ERROR),
    ],
)
def test_a_body_that_is_no_message_raises(body: bytes, kind: ErrorKind) -> None:
    with pytest.raises(UpstreamError) as caught:
        events_of_answer(body)
    assert caught.value.kind is kind


def take(gathering: MessageGathering, **event: Any) -> None:
    gathering.take(Chunk(msgspec.json.encode(event)))


def test_gathering_adds_up_what_it_does_not_know() -> None:
    gathering = MessageGathering()
    take(gathering, type="message_start", message={"id": "m", "usage": {"input_tokens": 3, "output_tokens": 1}})
    take(gathering, type="ping")
    take(gathering, type="content_block_start", index=0, content_block={"type": "new", "content": "a"})
    take(gathering, type="content_block_delta", index=0, delta={"type": "new_delta", "content": "b", "n": 1})
    take(gathering, type="content_block_delta", index=0, delta={"type": "new_delta", "content": "c", "n": 2})
    take(gathering, type="from_the_future", x=1)
    take(gathering, type="message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 9}, context=[1])
    take(gathering, type="message_stop")
    assert msgspec.json.decode(gathering.body()) == {
        "id": "m",
        "content": [{"type": "new", "content": "abc", "n": 2}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 3, "output_tokens": 9},
        "context": [1],
    }


def test_arguments_cut_off_in_the_middle_are_wrapped() -> None:
    gathering = MessageGathering()
    take(gathering, type="content_block_start", index=0, content_block={"type": "tool_use", "input": {}})
    take(gathering, type="content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": '{"x'})
    assert msgspec.json.decode(gathering.body())["content"] == [{"type": "tool_use", "input": {"INVALID_JSON": '{"x'}}]


@pytest.mark.parametrize(
    "event",
    [
        {"type": "content_block_delta", "index": 7, "delta": {"type": "input_json_delta", "partial_json": "x"}},
        {"type": "content_block_start", "index": 0},
        {"type": "message_start", "message": 5},
        {},
    ],
)
def test_gathering_refuses_what_is_no_event(event: dict[str, Any]) -> None:
    with pytest.raises(UpstreamError) as caught:
        take(MessageGathering(), **event)
    assert caught.value.kind is ErrorKind.INVALID_RESPONSE


@pytest.mark.parametrize(
    ("kind", "type_"),
    [
        ("rate_limited", "rate_limit_error"),
        ("bad_request", "invalid_request_error"),
        ("stall_timeout", "timeout_error"),
        ("provider_auth", "api_error"),  # the provider's 401 is no fault of the client's key
        ("upstream_truncated", "api_error"),
    ],
)
def test_a_failure_is_an_error_event(kind: str, type_: str) -> None:
    stream = failure(kind, "why")
    assert stream.startswith(b"event: error\n")
    error = {"type": "error", "error": {"type": type_, "message": "why"}}
    assert msgspec.json.decode(events(stream)[0].data) == error


@pytest.mark.parametrize(
    ("status", "type_", "expected"),
    [
        (400, "bad_request", "invalid_request_error"),
        (401, "unauthorized", "authentication_error"),
        (403, "", "permission_error"),
        (404, "", "not_found_error"),
        (413, "", "request_too_large"),
        (418, "", "invalid_request_error"),
        (422, "", "invalid_request_error"),
        (429, "", "rate_limit_error"),
        (500, "", "api_error"),
        (424, "provider_auth", "api_error"),
        (502, "server_error", "api_error"),
        (503, "", "overloaded_error"),
        (504, "", "timeout_error"),
        (529, "", "overloaded_error"),
        (400, "billing_error", "billing_error"),
    ],
)
def test_an_errors_body_has_the_type_of_its_status(status: int, type_: str, expected: str) -> None:
    error = {"type": "error", "error": {"type": expected, "message": "why"}}
    assert msgspec.json.decode(error_body(status, type_, "why", None)) == error
    assert msgspec.json.decode(error_body(status, type_, "why", "req_1")) == {**error, "request_id": "req_1"}


def test_blocks_that_a_server_gives_one_index_are_all_kept_in_their_order() -> None:
    stream = MessageGathering()
    thought, text = {"type": "thinking", "thinking": "", "signature": ""}, {"type": "text", "text": ""}
    for event in (
        {"type": "message_start", "message": {"id": "m", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": text},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "---"}},
        {"type": "content_block_start", "index": 0, "content_block": thought},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Yes"}},  # never begun
    ):
        stream.take(Chunk(msgspec.json.encode(event)))
    assert msgspec.json.decode(stream.body())["content"] == [
        {"type": "text", "text": "---"},
        {"type": "thinking", "thinking": "Hm", "signature": ""},
        {"type": "text", "text": "Yes"},
    ]
