"""What one event of a Responses stream says, and whole responses as streams and out of them."""

import sys
from contextlib import suppress
from typing import Any, get_args

import httpx
import msgspec
import openai
import pytest
from openai.types.responses import ResponseStreamEvent
from pydantic import BaseModel

from providers.bodies import events
from providers.dialects import RESPONSES, Chunk
from providers.dialects.responses.events import ENDING, ResponseGathering, events_of_answer, read_event
from providers.dialects.responses.fields import failure, numbered
from providers.models import Usage
from providers.refusals import ErrorKind, UpstreamError


def read(kind: str, **fields: Any) -> Chunk:
    return read_event(msgspec.json.encode({"type": kind, "sequence_number": 1, **fields}), ["sk-secret"])


def what(chunk: Chunk) -> tuple[bool, bool, bool, int]:
    return chunk.meaningful, chunk.answer, chunk.reasoning, chunk.text_chars


NOTHING = (False, False, False, 0)


@pytest.mark.parametrize(
    "kind",
    ["output_text", "refusal", "function_call_arguments", "custom_tool_call_input", "mcp_call_arguments"],
)
def test_a_piece_of_text_or_of_an_argument_is_an_answer(kind: str) -> None:
    assert what(read(f"response.{kind}.delta", delta="Hé")) == (True, True, False, 2)
    assert what(read(f"response.{kind}.delta", delta="")) == NOTHING


@pytest.mark.parametrize("kind", ["reasoning_text", "reasoning_summary_text"])
def test_a_piece_of_reasoning_is_meaningful_and_no_answer(kind: str) -> None:
    assert what(read(f"response.{kind}.delta", delta="hm")) == (True, False, True, 2)


def test_the_name_of_a_call_is_an_answer_and_a_message_that_begins_is_not() -> None:
    call = {"type": "function_call", "call_id": "a", "name": "weather", "arguments": ""}
    assert what(read("response.output_item.added", item=call)) == (True, True, False, 7)
    assert what(read("response.output_item.added", item={"type": "message", "content": []})) == NOTHING
    assert what(read("response.output_item.done", item=call)) == NOTHING


@pytest.mark.parametrize(
    ("item", "is_answer"),
    [
        ({"type": "computer_call", "call_id": "a", "actions": [{"type": "click", "x": 1, "y": 2}]}, True),
        ({"type": "local_shell_call", "call_id": "a", "action": {"type": "exec", "command": ["ls"]}}, True),
        ({"type": "shell_call", "call_id": "a", "environment": {"type": "local"}}, True),
        ({"type": "shell_call", "call_id": "a", "environment": None}, True),
        ({"type": "shell_call", "call_id": "a", "environment": {"type": "container_reference"}}, False),
        ({"type": "apply_patch_call", "call_id": "a", "operation": {"type": "delete_file", "path": "a"}}, True),
        ({"type": "tool_search_call", "call_id": "a", "execution": "client", "arguments": {}}, True),
        ({"type": "tool_search_call", "call_id": None, "execution": "server", "arguments": {}}, False),
        ({"type": "web_search_call", "status": "in_progress"}, False),
    ],
)
def test_a_call_of_a_tool_that_the_client_runs_is_an_answer(item: dict[str, Any], is_answer: bool) -> None:
    for event in ("response.output_item.added", "response.output_item.done"):
        assert what(read(event, item=item)) == (is_answer, is_answer, False, 0)
    last = read("response.completed", response={"status": "completed", "output": [item]})
    assert RESPONSES.answers.with_answer is not None
    assert what(RESPONSES.answers.with_answer(last))[:2] == (is_answer, is_answer)


def test_sounds_and_images_are_answers() -> None:
    image = {"type": "image_generation_call", "result": "AAAA"}
    for chunk in (
        read("response.audio.delta", delta="AAAA"),
        read("response.image_generation_call.partial_image", partial_image_b64="AAAA"),
        read("response.output_item.done", item=image),
    ):
        assert what(chunk) == (True, True, False, 0)


@pytest.mark.parametrize(
    "kind", ["created", "in_progress", "queued", "content_part.added", "output_text.done", "some_day"]
)
def test_all_other_events_mean_nothing(kind: str) -> None:
    chunk = read(f"response.{kind}", response={"error": None, "usage": None}, text="x", part={"text": "x"})
    assert what(chunk) == NOTHING
    assert (chunk.finished, chunk.done, chunk.usage, chunk.error) == (False, False, None, None)


@pytest.mark.parametrize("kind", ["completed", "incomplete"])
def test_the_last_event_is_the_end_and_has_the_usage(kind: str) -> None:
    usage = {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 12,
    }
    chunk = read(f"response.{kind}", response={"output": [{}], "usage": usage, "error": None})
    assert (chunk.finished, chunk.done, chunk.usage_only, what(chunk)) == (True, True, False, NOTHING)
    assert chunk.usage == Usage(7, 5, 2, 4)


@pytest.mark.parametrize(
    ("event", "kind", "message"),
    [
        (
            {"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded", "message": "slow"}}},
            ErrorKind.RATE_LIMITED,
            "slow",
        ),
        (
            {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "x"}}},
            "server_error",
            "x",
        ),
        (
            {"type": "response.failed", "response": {"error": {"code": "invalid_image", "message": "x"}}},
            "bad_request",
            "x",
        ),
        ({"type": "response.cancelled", "response": {}}, "stream_error", "the provider cancelled the response"),
        ({"type": "error", "code": "context_length_exceeded", "message": "long", "param": None}, "bad_request", "long"),
        ({"type": "error", "code": None, "message": "key sk-secret is bad"}, "stream_error", "key *** is bad"),
        (
            {"type": "error", "error": {"type": "insufficient_quota", "code": None, "message": "x"}},
            "provider_auth",
            "x",
        ),
        ({"type": "error", "error": {"code": "invalid_api_key", "message": "x"}}, "provider_auth", "x"),
        ({"error": {"message": "x", "code": 503}}, "server_error", "x"),
        # As another gateway of this kind tells that its provider's answer could not be read.
        ({"error": {"type": "upstream_error", "code": "invalid_response", "message": "x"}}, "stream_error", "x"),
        ({"error": "x"}, "stream_error", "x"),
    ],
)
def test_errors_are_told_in_every_shape_there_is_and_are_of_their_codes_kind(
    event: dict[str, Any], kind: str, message: str
) -> None:
    error = read_event(msgspec.json.encode(event), ["sk-secret"]).error
    assert error is not None
    assert (error.kind, error.message) == (kind, message)


def test_types_that_surprise_are_taken_as_absent() -> None:
    assert what(read("response.output_text.delta", delta=5)) == NOTHING
    assert what(read("response.output_text.delta", delta="x", error=5, response="odd")) == (True, True, False, 1)
    assert what(read("response.output_item.added", item={"type": 5, "name": "f"})) == (True, True, False, 1)
    chunk = read("response.completed", response={"usage": {"input_tokens": 1}, "error": 5})
    assert chunk.usage == Usage(1)
    assert read("response.completed", response="odd").done


@pytest.mark.parametrize(
    "data",
    [
        b'{"type":"response.failed","response":{"error":{"code":"server_error","message":"\xe9"}}}',
        b'{"type":"error","error":{"code":"server_error","message":"\xe9"}}',
        b'{"type":"error","code":"server_error","message":"\xe9"}',
        b'{"type":"response.completed","response":{"usage":{"input_tokens":7,"note":"\xe9"}}}',
    ],
)
def test_text_that_is_not_utf_8_does_not_stop_the_reading(data: bytes) -> None:
    chunk = read_event(data)
    assert chunk.done or chunk.error is not None


def test_comments_and_done_are_understood_and_what_is_no_object_is_refused() -> None:
    assert what(read_event(b"")) == NOTHING
    assert read_event(b"[DONE]").done
    for data in (b"[]", b"{", b"5"):
        with pytest.raises(UpstreamError, match="not a JSON object"):
            read_event(data)


EVENT_TYPES: dict[str, type[BaseModel]] = {
    get_args(model.model_fields["type"].annotation)[0]: model for model in get_args(get_args(ResponseStreamEvent)[0])
}
ANSWER: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 5,
    "status": "completed",
    "model": "m",
    "vendor_field": {"kept": 1.50},
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "error": None,
    "output": [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "hm"}],
            "content": [{"type": "reasoning_text", "text": "hmm"}],
        },
        {
            "type": "message",
            "id": "msg_1",
            "status": "completed",
            "role": "assistant",
            "content": [
                {
                    "type": "output_text",
                    "text": "Hi",
                    "annotations": [{"type": "file_path", "file_id": "f", "index": 0}],
                    "logprobs": [],
                },
                {"type": "refusal", "refusal": "No."},
            ],
        },
        {"type": "function_call", "id": "fc_1", "status": "completed", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "b", "name": "g", "input": "x"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
    ],
    "usage": {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 12,
    },
}
BODY = msgspec.json.encode(ANSWER).replace(b'"kept":1.5', b'"kept":1.50e0')
LAID_OUT = msgspec.json.format(BODY, indent=2)  # as OpenAI sends it


def test_a_whole_response_is_told_with_a_delta_for_each_text_and_ends_with_its_own_bytes() -> None:
    told = events(events_of_answer(LAID_OUT))
    chunks = [read_event(event.data) for event in told]
    assert [chunk.text_chars for chunk in chunks if chunk.meaningful] == [2, 3, 2, 3, 1, 2, 1, 1]
    assert [chunk.done for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].usage == Usage(7, 5, 2, 4, 1, units={"web_search": 1})
    assert (
        told[-1].raw
        == b'event: response.completed\ndata: {"type":"response.completed","sequence_number":%d,' % (len(told) - 1)
        + b'"response":'
        + BODY
        + b"}\n\n"
    )


def test_the_sdk_hears_a_whole_response_as_a_stream() -> None:
    with sdk(events_of_answer(LAID_OUT)).responses.stream(model="m", input="hi") as stream:
        told = list(stream)
        final = stream.get_final_response()
    said = [event.snapshot for event in told if event.type == "response.output_text.delta"]
    snapshots = [event.snapshot for event in told if event.type == "response.function_call_arguments.delta"]
    assert said == ["Hi"]
    for event in events(events_of_answer(LAID_OUT)):
        one = msgspec.json.decode(event.data)
        EVENT_TYPES[one["type"]].model_validate(one)
    assert snapshots == ["{}"]
    assert [item.type for item in final.output] == [item["type"] for item in ANSWER["output"]]


def test_gathering_gives_the_response_back_with_the_bytes_of_every_value() -> None:
    gathering = ResponseGathering()
    for event in events(events_of_answer(LAID_OUT)):
        gathering.take(Chunk(event.data))
    assert gathering.body() == BODY


def test_what_was_taken_is_given_back_however_deep_it_is_nested_and_the_caller_is() -> None:
    def nested(depth: int) -> bytes:
        return b'{"type": "response.completed", "response": {"metadata": ' + b"[" * depth + b"]" * depth + b"}}"

    def body_from(frames: int) -> bytes:
        return body_from(frames - 1) if frames else gathering.body()

    gathering = ResponseGathering()
    gathering.take(Chunk(b'{"type": "response.output_item.done", "output_index": 0, "item": {"id": 0}}'))
    deepest = 0
    with suppress(UpstreamError):  # not with each Python
        for depth in range(1, sys.getrecursionlimit()):
            gathering.take(Chunk(nested(depth)))
            deepest = depth
    assert body_from(10).endswith(b"[" * deepest + b"]" * deepest + b',"output":[{"id":0}]}')


def test_an_output_that_the_last_event_lacks_is_gathered_from_the_items() -> None:
    gathering = ResponseGathering()
    for index in (1, 0):
        item = {"type": "message", "id": index}
        event = {"type": "response.output_item.done", "output_index": index, "item": item}
        gathering.take(Chunk(msgspec.json.encode(event)))
    gathering.take(Chunk(msgspec.json.encode({"type": "response.completed", "response": {"id": "r", "output": []}})))
    assert msgspec.json.decode(gathering.body()) == {
        "id": "r",
        "output": [{"type": "message", "id": 0}, {"type": "message", "id": 1}],
    }


@pytest.mark.parametrize("index", [10**30, -(10**30), -1, 7])
def test_an_item_with_an_odd_index_is_not_lost(index: int) -> None:
    gathering = ResponseGathering()
    first = {"type": "message", "id": "a", "content": [{"type": "output_text", "text": "Hi"}]}
    call = {"type": "function_call", "id": "b", "call_id": "c", "name": "f", "arguments": "{}"}
    done = {"type": "response.output_item.done", "output_index": index, "item": call}
    for event in (done, {"type": "response.completed", "response": {"id": "r", "output": [first]}}):
        gathering.take(Chunk(msgspec.json.encode(event)))
    output = msgspec.json.decode(gathering.body())["output"]
    assert sorted(item["id"] for item in output) == ["a", "b"]


def test_a_delta_that_is_no_text_adds_nothing_to_an_item() -> None:
    gathering = ResponseGathering()
    place = {"output_index": 0, "content_index": 0}
    item = {"id": "m", "type": "message", "role": "assistant", "content": []}
    gathering.take(Chunk(msgspec.json.encode({"type": "response.output_item.added", **place, "item": item})))
    for delta in ("H", None, {"text": "x"}, "i"):
        gathering.take(Chunk(msgspec.json.encode({"type": "response.output_text.delta", **place, "delta": delta})))
    gathering.take(Chunk(msgspec.json.encode({"type": "response.completed", "response": {"id": "r", "output": []}})))
    (said,) = msgspec.json.decode(gathering.body())["output"]
    assert [part["text"] for part in said["content"]] == ["Hi"]


def test_an_incomplete_response_ends_as_one() -> None:
    body = msgspec.json.encode({**ANSWER, "status": "incomplete"})
    assert events(events_of_answer(body))[-1].raw.startswith(b"event: response.incomplete\n")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", ErrorKind.UPSTREAM_EMPTY),
        (b"<html>", ErrorKind.INVALID_RESPONSE),
        (b'{"id":"r"}', ErrorKind.INVALID_RESPONSE),
        (b'{"output":[5]}', ErrorKind.INVALID_RESPONSE),
        (b'{"output":[{"content":"odd"}]}', ErrorKind.INVALID_RESPONSE),
        (b'{"error":{"message":"x","code":429}}', ErrorKind.RATE_LIMITED),
        (b'{"status":"failed","error":{"message":"x","code":"rate_limit_exceeded"}}', ErrorKind.RATE_LIMITED),
        (b'{"status":"cancelled","error":null}', ErrorKind.STREAM_ERROR),
        (b'{"status":"failed","error":{"message":"\xe9"}}', ErrorKind.STREAM_ERROR),
    ],
)
def test_what_is_no_response_is_an_error_of_its_kind(body: bytes, kind: ErrorKind) -> None:
    with pytest.raises(UpstreamError) as caught:
        events_of_answer(body)
    assert caught.value.kind is kind


def test_what_is_no_event_cannot_be_gathered() -> None:
    for data in (b"[]", b'{"type":5}'):
        with pytest.raises(UpstreamError) as caught:
            ResponseGathering().take(Chunk(data))
        assert caught.value.kind is ErrorKind.INVALID_RESPONSE


def test_a_failure_makes_the_sdk_raise_and_nothing_stands_for_the_end() -> None:
    with pytest.raises(openai.APIError, match="it stalled") as caught:
        list(sdk(failure("stall_timeout", "it stalled")).responses.create(model="m", input="hi", stream=True))
    assert caught.value.code == "ETIMEDOUT"
    assert ENDING == b""


def sdk(stream: bytes) -> openai.OpenAI:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=stream)

    transport = httpx.Client(transport=httpx.MockTransport(answer))
    return openai.OpenAI(api_key="k", base_url="http://gateway/v1", http_client=transport, max_retries=0)


def test_the_event_of_an_error_counts_on_from_the_last_event_and_not_from_text_in_it() -> None:
    before = b'data: {"type":"x","sequence_number":41,"delta":"\\"sequence_number\\":7"}\n\n'
    assert b'"sequence_number":42' in numbered(failure("disconnected", "gone"), before)
    assert b'"sequence_number":0' in numbered(failure("disconnected", "gone"), b": ping\n\n")
