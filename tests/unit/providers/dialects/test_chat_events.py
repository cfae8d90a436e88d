"""What one event says, in every shape providers really send."""

from typing import Any

import msgspec
import pytest

from providers.dialects import CHAT, Chunk, read_event
from providers.models import Usage
from providers.refusals import ErrorKind, UpstreamError


def read(**event: Any) -> Chunk:
    return read_event(msgspec.json.encode(event))


def delta(**fields: Any) -> Chunk:
    return read(id="1", object="chat.completion.chunk", choices=[{"index": 0, "delta": fields, "finish_reason": None}])


def what(chunk: Chunk) -> tuple[bool, bool, bool]:
    return chunk.meaningful, chunk.answer, chunk.reasoning


NOTHING = (False, False, False)
ANSWER = (True, True, False)
REASONING = (True, False, True)


def test_content_is_an_answer() -> None:
    chunk = delta(content="Hé")
    assert what(chunk) == ANSWER
    assert chunk.text_chars == 2
    assert [chunk.finished, chunk.done, chunk.usage_only] == [False, False, False]
    assert chunk.usage is None
    assert chunk.error is None


def test_the_data_is_kept_as_it_came() -> None:
    data = b'{ "choices" : [] , "unknown": 1 }'
    assert read_event(data).data is data


@pytest.mark.parametrize(
    "fields",
    [
        {"role": "assistant"},
        {"role": "assistant", "content": "", "refusal": None, "tool_calls": []},
        {"content": None, "reasoning": None, "reasoning_content": ""},
        {"content": []},
        {"tool_calls": [{"index": 0, "function": {"name": "", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "id": "call_1", "type": "function"}]},
        {"audio": {"id": "audio_1", "expires_at": 5}},
        {},
    ],
)
def test_role_only_and_empty_deltas_mean_nothing(fields: dict[str, Any]) -> None:
    assert what(delta(**fields)) == NOTHING


def test_azures_first_chunk_of_filter_results_means_nothing() -> None:
    chunk = read(choices=[], prompt_filter_results=[{"prompt_index": 0}], usage=None)
    assert what(chunk) == NOTHING
    assert not chunk.usage_only


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_under_either_name_is_no_answer(name: str) -> None:
    chunk = delta(content="", **{name: "hmm"})
    assert what(chunk) == REASONING
    assert chunk.text_chars == 3


def test_reasoning_sent_under_both_names_counts_once() -> None:
    assert delta(reasoning="hmm", reasoning_content="hmm").text_chars == 3


def test_mistrals_typed_parts_are_thinking_or_text() -> None:
    thinking = delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hmm"}]}])
    text = delta(content=[{"type": "text", "text": "Yes"}])
    assert (what(thinking), thinking.text_chars) == (REASONING, 3)
    assert (what(text), text.text_chars) == (ANSWER, 3)
    assert what(delta(content=[{"type": "thinking", "thinking": "hmm"}])) == REASONING
    assert what(delta(content=[{"type": "text", "text": ""}])) == NOTHING


@pytest.mark.parametrize(
    "fields",
    [
        {"refusal": "I cannot"},
        {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]},
        {"function_call": {"name": "f"}},
        {"audio": {"data": "UklGRg=="}},
        {"audio": {"transcript": "Hi"}},
        {"images": [{"type": "image_url", "image_url": {"url": "data:"}}]},
    ],
)
def test_refusals_tool_calls_sounds_and_images_are_answers(fields: dict[str, Any]) -> None:
    assert what(delta(**fields)) == ANSWER


def test_any_of_several_choices_counts() -> None:
    chunk = read(choices=[{"delta": {}}, {"delta": {"content": "b"}, "finish_reason": "stop"}])
    assert what(chunk) == ANSWER
    assert chunk.finished


def test_a_finish_reason_finishes_and_an_empty_one_does_not() -> None:
    assert read(choices=[{"delta": {}, "finish_reason": "stop"}]).finished
    assert not read(choices=[{"delta": {}, "finish_reason": ""}]).finished


@pytest.mark.parametrize("data", [b"[DONE]", b" [DONE] ", b"[DONE]\n"])
def test_done_is_done(data: bytes) -> None:
    chunk = read_event(data)
    assert chunk.done
    assert not chunk.meaningful


def test_an_event_without_data_says_nothing() -> None:
    assert what(read_event(b"")) == NOTHING


def test_usage_on_a_last_chunk_without_choices_is_usage_only() -> None:
    details = {"completion_tokens_details": {"reasoning_tokens": 4}, "prompt_tokens_details": {"cached_tokens": 8}}
    chunk = read(choices=[], usage={"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, **details})
    assert chunk.usage_only
    assert chunk.usage == Usage(10, 5, 4, 8)


def test_usage_on_every_chunk_leaves_the_chunk_an_answer() -> None:
    chunk = read(choices=[{"delta": {"content": "a"}}], usage={"prompt_tokens": 1, "completion_tokens": 1})
    assert what(chunk) == ANSWER
    assert chunk.usage == Usage(1, 1)
    assert not chunk.usage_only


def test_usage_of_null_is_no_usage() -> None:
    assert delta(content="a").usage is None
    assert read(choices=[], usage=None).usage is None


def test_xais_completion_tokens_get_the_reasoning_they_leave_out() -> None:
    details = {"reasoning_tokens": 300}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 315, "completion_tokens_details": details}
    assert read(choices=[{"delta": {}, "finish_reason": "stop"}], usage=usage).usage == Usage(10, 305, 300)


def test_thinking_that_only_the_total_shows_is_counted() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 45}
    assert read(choices=[], usage=usage).usage == Usage(10, 35, 30)


@pytest.mark.parametrize("name", ["cache_write_tokens", "cache_creation_input_tokens"])
def test_tokens_written_to_a_cache_are_read_under_either_name(name: str) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 2, name: 6}}
    assert read(choices=[], usage=usage).usage == Usage(10, 5, None, 2, 6)


@pytest.mark.parametrize(
    ("details", "known"),
    [({"cached_tokens": 30}, Usage(10, 5, None, 30)), ({"cache_write_tokens": 30}, Usage(10, 5, None, None, 30))],
)
def test_a_total_that_counts_a_cache_s_tokens_apart_changes_nothing(details: dict[str, int], known: Usage) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 45, "prompt_tokens_details": details}
    assert read(choices=[], usage=usage).usage == known


def test_groqs_usage_is_found_where_it_is() -> None:
    groq = {"id": "req_1", "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}
    chunk = read(choices=[{"delta": {}, "finish_reason": "stop"}], x_groq=groq)
    assert chunk.usage == Usage(3, 2)
    assert not chunk.usage_only


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens_details": {"cached_tokens": 6, "cache_creation_tokens": 3}},  # LiteLLM, which says it twice
        {"prompt_tokens_details": {"cached_tokens": 6}, "cache_creation_input_tokens": 3},
        {"cache_read_input_tokens": 6, "cache_creation_input_tokens": 3},
    ],
)
def test_what_a_proxy_says_of_anthropics_cache_is_read(usage: dict[str, Any]) -> None:
    chunk = read(choices=[], usage={"prompt_tokens": 10, "completion_tokens": 1, **usage})
    assert chunk.usage == Usage(10, 1, None, 6, 3)


@pytest.mark.parametrize("name", ["prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens"])
def test_cache_hits_beside_the_counts_are_cached_tokens(name: str) -> None:  # DeepSeek; Moonshot, Together; LiteLLM
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10, name: 8}
    assert read(choices=[], usage=usage).usage == Usage(9, 1, None, 8)


@pytest.mark.parametrize(
    ("event", "kind", "status", "message"),
    [
        ({"error": {"message": "Overloaded", "code": 503}}, ErrorKind.SERVER_ERROR, 503, "Overloaded"),
        ({"error": {"message": "Slow down", "code": "429"}}, ErrorKind.RATE_LIMITED, 429, "Slow down"),
        ({"error": {"message": "Failed", "code": "oops"}}, ErrorKind.STREAM_ERROR, None, "Failed"),
        ({"error": {"message": "x", "code": "rate_limit_exceeded"}}, ErrorKind.RATE_LIMITED, None, "x"),
        ({"error": {"message": "x", "type": "insufficient_quota", "code": None}}, ErrorKind.PROVIDER_AUTH, None, "x"),
        ({"error": {"message": "x", "code": "invalid_api_key"}}, ErrorKind.PROVIDER_AUTH, None, "x"),
        ({"error": {"message": "x", "type": "invalid_request_error"}}, ErrorKind.BAD_REQUEST, None, "x"),
        ({"error": "it broke"}, ErrorKind.STREAM_ERROR, None, "it broke"),
        ({"object": "error", "message": "too long", "code": 400}, ErrorKind.BAD_REQUEST, 400, "too long"),
        (
            {"choices": [{"delta": {}, "finish_reason": "error", "error": {"code": 502, "message": "vendor died"}}]},
            ErrorKind.SERVER_ERROR,
            502,
            "vendor died",
        ),
    ],
)
def test_an_error_object_is_an_error_whatever_its_shape(
    event: dict[str, Any], kind: ErrorKind, status: int | None, message: str
) -> None:
    error = read(**event).error
    assert error is not None
    assert (error.kind, error.status, error.message) == (kind, status, message)


# The others are vLLM's, Z.ai's and DeepSeek's.
@pytest.mark.parametrize("reason", ["error", "abort", "network_error", "insufficient_system_resource"])
def test_a_finish_reason_that_says_the_server_failed_is_an_error(reason: str) -> None:
    chunk = read(choices=[{"delta": {"content": ""}, "finish_reason": reason}])
    assert chunk.finished
    assert chunk.error is not None
    assert chunk.error.kind is ErrorKind.STREAM_ERROR
    assert chunk.error.message == f"the answer ended with finish_reason '{reason}'"


def test_geminis_error_in_an_array_is_an_error() -> None:
    error = read_event(b'[{"error":{"code":429,"message":"Quota","details":[{"retryDelay":"34s"}]}}]').error
    assert error is not None
    assert (error.kind, error.retry_after_s) == (ErrorKind.RATE_LIMITED, 34.0)


def test_an_error_of_null_is_none() -> None:
    assert read(error=None, choices=[{"delta": {"content": "a"}}]).error is None


def test_an_errors_message_loses_its_secrets() -> None:
    chunk = read_event(b'{"error":{"message":"bad key my-own-secret and sk-abcdefghijkl"}}', ["my-own-secret"])
    assert chunk.error is not None
    assert chunk.error.message == "bad key *** and ***"


def test_surprising_types_are_taken_as_absent() -> None:
    call = {"index": "0", "function": {"name": "f", "arguments": {"a": 1}}}
    choice = {"delta": {"content": 5, "reasoning": ["x"], "tool_calls": [call, None]}, "finish_reason": 7}
    chunk = read(choices=[choice, "odd"], usage=[], x_groq=3)
    assert what(chunk) == ANSWER
    assert chunk.text_chars == 1
    assert chunk.usage is None
    assert what(read(choices={"delta": 1}, object=4)) == NOTHING


@pytest.mark.parametrize(
    "data", [b"null", b"5", b'"text"', b"[]", b"[1]", b"{", b"<html>", b"\xff\xfe", b'{"object":"\xff"}']
)
def test_what_is_no_json_object_is_an_invalid_response(data: bytes) -> None:
    with pytest.raises(UpstreamError) as caught:
        read_event(data)
    assert caught.value.kind is ErrorKind.INVALID_RESPONSE


def test_a_custom_tools_input_is_an_answer() -> None:
    chunk = read_event(b'{"choices":[{"delta":{"tool_calls":[{"index":0,"custom":{"name":"sh","input":"ls"}}]}}]}')
    assert (chunk.meaningful, chunk.answer, chunk.text_chars) == (True, True, 4)


def told(text: str) -> bytes:
    """The event of a text."""
    return b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % text.encode()


ODD = told("odd").replace(b'"c"', b'"d"')


@pytest.mark.parametrize("behind", [b"", b": a ping\n\n", b"event: x\ndata: {}\n\n", b"data: [1]\n\n", b"data"])
@pytest.mark.parametrize("ahead", [b"", b": a ping\n\n", ODD + b"data: [1]\n\n"])
def test_plain_events_are_found_between_others(ahead: bytes, behind: bytes) -> None:
    learn, texts = CHAT.answers.learned, [" to", "ken", "\\n\\ndata: ", "é"]
    assert learn is not None
    pattern = learn(told("Hi"), read_event(told("Hi")[6:-2]))
    assert pattern is not None
    plain = b"".join(map(told, texts))
    run = pattern.find(ahead + plain + behind, len(ahead))
    assert run is not None
    assert (run.start, run.end, bytes(run.data)) == (len(ahead), len(ahead + plain), plain)
    assert run.raw_texts == [text.encode() for text in texts]
    assert pattern.find(ahead + plain + ODD + plain + behind, len(ahead)) is None
