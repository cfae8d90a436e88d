"""OpenAI's older completions: what an event says, whole answers as streams and out of them, and why no other way."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import Completion

from providers.bodies import events
from providers.dialects import Chunk
from providers.dialects.chat.answers import ENDING
from providers.dialects.completions.dialect import CompletionGathering, events_of_answer, read_event
from providers.models import Usage
from providers.refusals import ErrorKind, UpstreamError

ANSWER: dict[str, Any] = {
    "id": "cmpl-1",
    "object": "text_completion",
    "created": 5,
    "model": "m",
    "vendor_field": {"kept": 1.5},
    "choices": [
        {
            "index": 0,
            "text": "Hello",
            "logprobs": {"tokens": ["He", "llo"], "token_logprobs": [-0.1, -0.2], "text_offset": [0, 2]},
            "finish_reason": "stop",
            "stop_reason": 7,
        },
        {"index": 1, "text": "Bye", "logprobs": None, "finish_reason": "length"},
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
}


def read(**event: Any) -> Chunk:
    return read_event(msgspec.json.encode(event))


def gathered(stream: bytes) -> dict[str, Any]:
    gathering = CompletionGathering()
    for event in events(stream):
        if event.data != b"[DONE]":
            gathering.take(Chunk(event.data))
    answer: dict[str, Any] = msgspec.json.decode(gathering.body())
    Completion.model_validate(answer)
    return answer


def test_text_is_an_answer_and_an_empty_text_is_not() -> None:
    chunk = read(choices=[{"index": 0, "text": "Hé", "finish_reason": None}, {"index": 1, "text": "!"}])
    assert (chunk.meaningful, chunk.answer, chunk.reasoning, chunk.text_chars) == (True, True, False, 3)
    empty = read(choices=[{"index": 0, "text": "", "finish_reason": "stop"}])
    assert (empty.meaningful, empty.finished, empty.done) == (False, True, False)


def test_usage_stands_alone_or_with_a_choice() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    alone, beside = read(choices=[], usage=usage), read(choices=[{"text": "x"}], usage=usage)
    assert (alone.usage, alone.usage_only) == (Usage(1, 2), True)
    assert (beside.usage, beside.usage_only) == (Usage(1, 2), False)


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ({"error": {"message": "x", "code": 429}}, ErrorKind.RATE_LIMITED),
        ({"error": "x"}, ErrorKind.STREAM_ERROR),
        ({"object": "error", "message": "x", "code": 400}, ErrorKind.BAD_REQUEST),
        ({"choices": [{"text": "", "finish_reason": "error"}]}, ErrorKind.STREAM_ERROR),
        ({"choices": [{"text": "", "finish_reason": "abort"}]}, ErrorKind.STREAM_ERROR),
    ],
)
def test_errors_are_of_their_codes_kind(event: dict[str, Any], kind: ErrorKind) -> None:
    error = read(**event).error
    assert error is not None
    assert error.kind is kind


def test_types_that_surprise_are_taken_as_absent() -> None:
    chunk = read(choices=[5, {"text": 5, "finish_reason": "stop"}, {"text": "x"}], usage=5, object=5)
    assert (chunk.text_chars, chunk.finished, chunk.usage) == (1, True, None)
    assert not read(choices=5).meaningful


def test_comments_and_done_are_understood_and_what_is_no_object_is_refused() -> None:
    assert read_event(b" [DONE]").done
    assert not read_event(b"").meaningful
    for data in (b"[]", b"{"):
        with pytest.raises(UpstreamError, match="not a JSON object"):
            read_event(data)


def test_a_whole_completion_told_as_a_stream_is_gathered_as_it_was() -> None:
    stream = events_of_answer(msgspec.json.format(msgspec.json.encode(ANSWER), indent=2))
    said, ended, used, done = (read_event(event.data) for event in events(stream))
    assert (said.text_chars, said.finished) == (8, False)
    assert (ended.meaningful, ended.finished) == (False, True)
    assert used.usage_only
    assert done.done
    assert stream.endswith(ENDING)
    assert gathered(stream) == ANSWER


@given(cuts=st.lists(st.integers(0, 5), max_size=4))
def test_however_a_text_is_cut_it_is_gathered_whole_with_its_log_probabilities(cuts: list[int]) -> None:
    edges = sorted({0, 5, *cuts})
    pieces = [
        {"index": 0, "text": "Hello"[start:end], "logprobs": {"tokens": ["Hello"[start:end]]}, "finish_reason": None}
        for start, end in pairwise(edges)
    ]
    top = {"id": "cmpl-1", "created": 5, "model": "m"}
    end = {**top, "choices": [{"index": 0, "text": "", "finish_reason": "stop"}], "usage": None}
    chunks = [*({**top, "choices": [piece]} for piece in pieces), end]
    answer = gathered(b"".join(b"data: " + msgspec.json.encode(chunk) + b"\n\n" for chunk in chunks))
    (choice,) = answer["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("Hello", "stop")
    assert "".join(choice["logprobs"]["tokens"]) == "Hello"


@pytest.mark.parametrize("body", [b"5", b"{}", b'{"choices":5}', b'{"choices":[5]}'])
def test_what_is_no_completion_is_an_invalid_response(body: bytes) -> None:
    with pytest.raises(UpstreamError) as caught:
        events_of_answer(body)
    assert caught.value.kind is ErrorKind.INVALID_RESPONSE


@pytest.mark.parametrize(
    "data", [b"[]", b'{"choices":[5]}', b'{"choices":[{"text":5}]}', b'{"choices":[{"index":"a"}]}']
)
def test_what_is_no_chunk_cannot_be_gathered(data: bytes) -> None:
    with pytest.raises(UpstreamError) as caught:
        CompletionGathering().take(Chunk(data))
    assert caught.value.kind is ErrorKind.INVALID_RESPONSE
