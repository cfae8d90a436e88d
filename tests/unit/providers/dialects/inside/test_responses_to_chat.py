"""Answers in Responses, told as chat completions."""

from typing import Any

import msgspec
import pytest

from providers.dialects import read_event as read_chat
from providers.dialects.responses.stream_to_chat import ToChat
from providers.refusals import ErrorKind
from tests.unit.providers.dialects.inside.responses_streams import deltas, to_chat

RESPONSE = {"id": "resp_1", "object": "response", "created_at": 5, "model": "m", "output": []}


def test_chat_ends_with_the_finish_reason_then_usage_alone_then_done() -> None:
    usage = {
        "input_tokens": 7,
        "output_tokens": 5,
        "total_tokens": 12,
        "output_tokens_details": {"reasoning_tokens": 2},
    }
    first, text, end, last, done = to_chat(
        {"type": "response.created", "response": RESPONSE},
        {"type": "response.output_text.delta", "output_index": 0, "delta": "Hi"},
        {"type": "response.completed", "response": {**RESPONSE, "usage": usage}},
    )
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert (text["id"], text["created"], text["model"]) == ("resp_1", 5, "m")
    assert end["choices"][0]["finish_reason"] == "stop"
    assert last["choices"] == []
    assert last["usage"]["completion_tokens_details"] == {"reasoning_tokens": 2}
    assert done == b"[DONE]"


def test_each_event_that_repeats_the_tools_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decode, looked = msgspec.json.decode, list[int]()

    def counting(data: Any, **how: Any) -> Any:
        looked.append(len(data))
        return decode(data, **how)

    monkeypatch.setattr(msgspec.json, "decode", counting)
    long = {**RESPONSE, "tools": [{"type": "function", "name": "f", "description": "x" * 10_000}]}
    translation = ToChat()
    for state in ("created", "in_progress", "completed"):
        translation.feed(b"data: %b\n\n" % msgspec.json.encode({"type": f"response.{state}", "response": long}))
    assert sum(size > 10_000 for size in looked) == 3


@pytest.mark.parametrize(
    ("details", "reason"),
    [({"reason": "max_output_tokens"}, "length"), ({"reason": "content_filter"}, "content_filter"), (None, "length")],
)
def test_an_incomplete_response_has_its_finish_reason(details: Any, reason: str) -> None:
    chunks = to_chat({"type": "response.incomplete", "response": {**RESPONSE, "incomplete_details": details}})
    assert [one["choices"][0]["finish_reason"] for one in chunks[:-1]] == [None, reason]


ITEMS: list[dict[str, Any]] = [
    {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]},
    {"type": "message", "id": "msg", "content": [{"type": "output_text", "text": "Hi"}]},
    {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}"},
]
CALLED = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}
TOLD = [
    {"role": "assistant", "content": ""},
    {"reasoning_content": "hm"},
    {"content": "Hi"},
    {"tool_calls": [CALLED]},
    {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
    {},
]


@pytest.mark.parametrize("events_told", [1, 0])
def test_what_no_delta_tells_is_told_with_the_whole_item_or_the_whole_answer(events_told: int) -> None:
    done = [{"type": "response.output_item.done", "output_index": i, "item": item} for i, item in enumerate(ITEMS)]
    end = {"type": "response.completed", "response": {**RESPONSE, "output": ITEMS}}
    assert deltas(to_chat(*done * events_told, end)) == TOLD


def test_what_deltas_have_told_is_not_told_again_even_by_servers_that_count_parts_wrongly() -> None:
    said = [
        {"type": "response.output_text.delta", "output_index": 1, "content_index": 7 + i, "delta": letter}
        for i, letter in enumerate("Hi")
    ]
    done = {"type": "response.output_item.done", "output_index": 1, "item": ITEMS[1]}
    end = {"type": "response.completed", "response": {**RESPONSE, "output": ITEMS}}
    assert "".join(delta.get("content", "") for delta in deltas(to_chat(*said, done, end))) == "Hi"


def test_a_call_that_only_the_whole_answer_has_is_told_after_a_text_that_was_streamed() -> None:
    said = {"type": "response.output_text.delta", "output_index": 0, "delta": "Hi"}
    end = {"type": "response.completed", "response": {**RESPONSE, "output": ITEMS}}
    chunks = to_chat(said, end)
    assert deltas(chunks)[1:4] == [{"content": "Hi"}, *TOLD[3:5]]
    assert [one["choices"][0]["finish_reason"] for one in chunks[:-1]][-1] == "tool_calls"


def test_a_call_that_was_streamed_under_another_index_is_not_told_again() -> None:
    said = [
        {"type": "response.output_item.added", "output_index": 0, "item": {**ITEMS[2], "arguments": ""}},
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "{}"},
    ]
    end = {"type": "response.completed", "response": {**RESPONSE, "output": ITEMS}}
    assert deltas(to_chat(*said, end)) == [TOLD[0], *TOLD[3:-1], TOLD[2], TOLD[-1]]


def test_parts_of_a_summary_are_paragraphs_and_raw_reasoning_is_not_told_beside_it() -> None:
    def piece(kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": f"response.{kind}", "output_index": 0, **fields}

    chunks = to_chat(
        piece("reasoning_summary_part.added", summary_index=0),
        piece("reasoning_summary_text.delta", summary_index=0, delta="One."),
        piece("reasoning_text.delta", content_index=0, delta="raw"),
        piece("reasoning_summary_part.added", summary_index=1),
        piece("reasoning_summary_text.delta", summary_index=1, delta="Two."),
    )
    assert "".join(delta.get("reasoning_content", "") for delta in deltas(chunks)) == "One.\n\nTwo."


@pytest.mark.parametrize(
    "failed",
    [
        {"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded", "message": "slow"}}},
        {"type": "error", "code": "rate_limit_exceeded", "message": "slow", "param": None},
        {"type": "error", "error": {"type": "too_many_requests", "code": "too_many_requests", "message": "slow"}},
    ],
)
def test_a_failed_response_is_an_error_of_its_kind_in_chat_too(failed: dict[str, Any]) -> None:
    (told,) = to_chat(failed)
    error = read_chat(msgspec.json.encode(told)).error
    assert error is not None
    assert (error.kind, error.message) == (ErrorKind.RATE_LIMITED, "slow")


def test_a_response_that_broke_off_gives_chat_no_end() -> None:
    assert deltas(to_chat({"type": "response.created", "response": RESPONSE})) == [{"role": "assistant", "content": ""}]
    assert to_chat() == []
