"""A whole answer as the stream that would have said the same."""

from typing import Any

import msgspec
import pytest

from providers.bodies import events
from providers.dialects import Run, events_of_answer, read_event
from providers.dialects.chat.answers import ChatGathering
from providers.dialects.chat.continuing import ChatContinuing
from providers.refusals import ErrorKind, UpstreamError, read_answer

ANSWER = {
    "id": "1",
    "object": "chat.completion",
    "created": 5,
    "model": "m",
    "system_fingerprint": "fp",
    "vendor_field": {"kept": 1.50},
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": None,
                "reasoning": "hmm",
                "annotations": [],
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                    {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
                ],
            },
            "logprobs": {"content": [{"token": "x"}]},
            "content_filter_results": {"hate": {"filtered": False}},
            "finish_reason": "tool_calls",
        },
        {"index": 1, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "length"},
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
}


def chunks(answer: Any) -> list[Any]:
    said = [event.data for event in events(events_of_answer(msgspec.json.encode(answer)))]
    assert said.pop() == b"[DONE]"
    return [msgspec.json.decode(data) for data in said]


def test_the_messages_their_ends_the_usage_and_done_come_in_this_order() -> None:
    data = [event.data for event in events(events_of_answer(msgspec.json.encode(ANSWER)))]
    said, ended, used, done = map(read_event, data)
    assert said.answer
    assert not said.finished
    assert ended.finished
    assert not ended.meaningful
    assert used.usage_only
    assert done.done


def test_every_field_of_choices_and_messages_is_kept_once() -> None:
    first, ended, used = chunks(ANSWER)
    message = first["choices"][0]["delta"]
    assert [call["index"] for call in message["tool_calls"]] == [0, 1]
    for call in message["tool_calls"]:
        del call["index"]
    assert message == ANSWER["choices"][0]["message"]  # type: ignore[index]  # a literal above
    assert first["choices"][0]["logprobs"] == {"content": [{"token": "x"}]}
    assert first["choices"][0]["content_filter_results"] == {"hate": {"filtered": False}}
    assert first["choices"][1]["delta"] == {"role": "assistant", "content": "Hi"}
    assert [choice["finish_reason"] for choice in ended["choices"]] == ["tool_calls", "length"]
    assert used["usage"] == ANSWER["usage"]
    for chunk in (first, ended, used):
        assert chunk["object"] == "chat.completion.chunk"
        assert (chunk["id"], chunk["system_fingerprint"]) == ("1", "fp")
        assert chunk["vendor_field"] == {"kept": 1.5}


def test_values_keep_the_bytes_they_had() -> None:
    body = b'{"x": 1.50, "big": 123456789012345678901234567890, "choices":[{"message":{"content": "\\u00e9"}}]}'
    stream = events_of_answer(body)
    assert b'"x":1.50' in stream
    assert b'"big":123456789012345678901234567890' in stream
    assert b'"content":"\\u00e9"' in stream


def test_a_whole_body_without_usage_or_finish_reason_still_ends() -> None:
    first, ended = chunks({"choices": [{"message": {"content": "Hi"}}]})
    assert first["choices"][0]["index"] == 0
    assert ended["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", ErrorKind.UPSTREAM_EMPTY),
        (b" \n", ErrorKind.UPSTREAM_EMPTY),
        (b"busy", ErrorKind.INVALID_RESPONSE),
        (b"5", ErrorKind.INVALID_RESPONSE),
        (b"[]", ErrorKind.INVALID_RESPONSE),
        (b"[1]", ErrorKind.INVALID_RESPONSE),
        (b'{"choices":', ErrorKind.INVALID_RESPONSE),
        (b'"\xff"', ErrorKind.INVALID_RESPONSE),
        (b'{"error":"it broke"}', ErrorKind.SERVER_ERROR),
        (b'{"error":{"code":429,"message":"slow"}}', ErrorKind.RATE_LIMITED),
        (b'[{"error":{"code":401,"message":"who"}}]', ErrorKind.PROVIDER_AUTH),
        (b'{"object":"error","message":"m","code":404}', ErrorKind.NOT_FOUND),
        (b"{}", ErrorKind.INVALID_RESPONSE),
        (b'{"choices":null}', ErrorKind.INVALID_RESPONSE),
        (b'{"choices":[{"message":"text"}]}', ErrorKind.INVALID_RESPONSE),
    ],
)
def test_what_is_no_answer_is_an_error_of_its_kind(body: bytes, kind: ErrorKind) -> None:
    with pytest.raises(UpstreamError) as caught:
        events_of_answer(body)
    assert caught.value.kind is kind


def test_an_error_of_null_is_no_error() -> None:
    assert "data" in read_answer(b'{"error": null, "data": []}')


def test_an_answer_that_is_laid_out_in_lines_is_still_one_line_an_event() -> None:
    body = b'{\n  "id": "c",\n  "choices": [\n {"index": 0, "message": {\n "content": "a\\nb"\n}}]\n}'
    for event in events(events_of_answer(body)):
        assert event.raw.count(b"\n") == 2
        if event.data != b"[DONE]":
            msgspec.json.decode(event.data)


@pytest.mark.parametrize(
    ("delta", "obstacle"),
    [({"refusal": "no"}, "refusal"), ({"audio": {"data": "x"}}, "audio"), ({"images": [{}]}, "images")],
)
def test_what_is_more_than_text_has_its_own_word(delta: dict[str, object], obstacle: str) -> None:
    begun = ChatContinuing().begun([msgspec.json.encode({"choices": [{"index": 0, "delta": delta}]})])
    assert begun.obstacle == obstacle


@pytest.mark.parametrize(
    "raw",
    [
        [b"plain", b" text", b"!"],
        [b'an escaped \\" quote', b"and a line\\n", b"\\ud83d\\ude00"],
        ["no ASCII: é".encode(), "日本".encode(), b"."],
        [b"half a letter \xc3", b"\xa9 and its rest"],
    ],
)
def test_the_text_of_a_run_is_that_of_its_events(raw: list[bytes]) -> None:
    run = Run(0, 0, b"", raw, 0)
    assert run.text() == "".join(run.texts())


def test_a_role_that_is_empty_in_every_chunk_is_the_assistant_s() -> None:
    """As from MiniMax."""
    gathering = ChatGathering()
    for content, reason in (("Hi", None), ("", "stop")):
        choice = {"index": 0, "delta": {"role": "", "content": content}, "finish_reason": reason}
        gathering.take(read_event(msgspec.json.encode({"id": "a", "choices": [choice]})))
    [choice] = msgspec.json.decode(gathering.body())["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Hi"}
