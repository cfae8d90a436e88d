"""The stand-in of Groq takes what its SDK has, and refuses the rest with its status and words."""

from typing import Any

import pytest

from strict_vendors import Vendor, made
from strict_vendors.tests.asking import USER, WEATHER, Came, ask, chat, result

OSS, LLAMA, QWEN = "openai/gpt-oss-120b", "llama-3.3-70b-versatile", "qwen/qwen3-32b"
FUNCTION = {"type": "function", "name": "get_weather"}  # in Responses
SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}


@pytest.fixture
def groq() -> Vendor:
    return made("groq")


def words(came: Came) -> str:
    assert came.status == 400
    assert came.body["error"]["type"] == "invalid_request_error"
    return str(came.body["error"]["message"])


@pytest.mark.parametrize("model", [OSS, LLAMA, QWEN])
def test_a_tool_loop_is_taken(groq: Vendor, model: str) -> None:
    first = chat(groq, model, tools=[WEATHER])
    message = first.body["choices"][0]["message"]
    second = chat(groq, model, USER, message, result(message["tool_calls"][0]["id"]), tools=[WEATHER])
    assert second.body["choices"][0]["message"]["content"] == "The tools said: sunny"
    assert groq.refusals == []


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("verbosity", "property 'verbosity' is unsupported"),
        ("prompt_cache_key", "property 'prompt_cache_key' is unsupported"),
        ("stops", "property 'stops' is unsupported, did you mean 'stop'?"),
    ],
)
def test_unknown_fields_are_refused(groq: Vendor, field: str, said: str) -> None:
    assert words(chat(groq, LLAMA, **{field: "x"})) == said


def test_unknown_fields_of_messages_are_refused_with_their_place(groq: Vendor) -> None:
    came = chat(groq, LLAMA, USER, {"role": "assistant", "content": "Hi", "reasoning_content": "So"}, USER)
    assert words(came) == (
        "'messages.1' : for 'role:assistant' the following must be satisfied"
        "[('messages.1' : property 'reasoning_content' is unsupported)]"
    )


@pytest.mark.parametrize(
    ("model", "fields", "said"),
    [
        (LLAMA, {"reasoning_effort": "low"}, "`reasoning_effort` is not supported with this model"),
        (QWEN, {"reasoning_effort": "low"}, "`reasoning_effort` must be one of `none` or `default`"),
        (
            OSS,
            {"reasoning_effort": "xhigh"},
            "'reasoning_effort' : value is not one of the allowed values ['none','def",
        ),
        (LLAMA, {"logprobs": True}, "`logprobs` is not supported with this model"),
        (LLAMA, {"n": 2}, "'n' : number must be at most 1"),
        (QWEN, {"max_tokens": 99_999}, "`max_tokens` must be less than or equal to `40960`, the maximum value for"),
        (LLAMA, {"response_format": SCHEMA}, "This model does not support response format `json_schema`."),
        (
            OSS,
            {"response_format": SCHEMA, "tools": [WEATHER]},
            "json mode cannot be combined with tool/function calling",
        ),
        (
            OSS,
            {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "x"}}},
            "requested tool does",
        ),
    ],
)
def test_models_refuse_what_they_do_not_take(groq: Vendor, model: str, fields: Any, said: str) -> None:
    assert words(chat(groq, model, **fields)).startswith(said)


def respond(groq: Vendor, choice: Any) -> Came:
    body = {"model": OSS, "input": "Hello", "tools": [FUNCTION], "tool_choice": choice}
    return ask(groq, f"{groq.base}/responses", body)


def test_responses_take_the_choices_of_chat(groq: Vendor) -> None:
    assert [respond(groq, choice).status for choice in ("auto", "required", FUNCTION)] == [200, 200, 200]
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [FUNCTION]}
    assert words(respond(groq, allowed)).startswith("'tool_choice.type' : value is not one of the allowed values")


def test_a_prompt_that_is_too_long_is_refused(groq: Vendor) -> None:
    came = chat(groq, LLAMA, {"role": "user", "content": "word " * 120_000})
    assert came.body["error"] == {
        "message": "Please reduce the length of the messages or completion.",
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }


def test_qwen_thinks_in_its_text_unless_asked_otherwise(groq: Vendor) -> None:
    raw = chat(groq, QWEN).body["choices"][0]["message"]
    assert raw["content"].startswith("<think>\nLet me think about it.\n</think>\n\nHello from")
    parsed = chat(groq, QWEN, reasoning_format="parsed").body["choices"][0]["message"]
    assert parsed["reasoning"] == "Let me think about it."
    streamed = chat(groq, QWEN, stream=True).events
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in streamed)
    assert text == raw["content"]


def test_the_usage_of_a_stream_is_in_a_field_of_its_own(groq: Vendor) -> None:
    events = chat(groq, OSS, stream=True).events
    assert events[0]["x_groq"]["id"].startswith("req_")
    assert events[-1]["x_groq"]["usage"]["total_tokens"]
    assert "usage" not in events[-1]
