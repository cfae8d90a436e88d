"""The stand-in of OpenAI's chat completions takes what its document has, and refuses the rest with its words."""

from typing import Any

import pytest

from strict_vendors import Vendor, made
from strict_vendors.tests.asking import USER, WEATHER, Came, ask, called, chat, result

STRICT: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
CLOSED = {**STRICT, "additionalProperties": False}


@pytest.fixture
def openai() -> Vendor:
    return made("openai")


def said(came: Came) -> tuple[int, str | None, str | None, str]:
    """Return status, code, param and words of a refusal, whose rule has a page."""
    assert came.page.startswith("https://"), came.body
    error = came.body["error"]
    assert error["type"] == "invalid_request_error"
    return came.status, error["code"], error["param"], error["message"]


def function(**fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", **fields}}


def test_a_tool_loop_is_taken_with_the_messages_that_it_gave(openai: Vendor) -> None:
    first = chat(openai, "gpt-4o", {"role": "user", "content": "weather, in parallel"}, tools=[WEATHER])
    message = first.body["choices"][0]["message"]
    assert [call["id"][:5] for call in message["tool_calls"]] == ["call_"] * 2
    results = [result(call["id"]) for call in message["tool_calls"]]
    second = chat(openai, "gpt-4o", USER, message, *results, tools=[WEATHER])
    assert second.body["choices"][0]["message"]["content"] == "The tools said: sunny; sunny"
    assert second.body["usage"]["total_tokens"] > 0
    assert openai.refusals == []


def test_a_tool_may_be_described_at_length(openai: Vendor) -> None:
    assert chat(openai, "gpt-5", USER, tools=[function(description="test tool" * 4000)]).status == 200


def test_a_stream_has_usage_where_it_is_asked_for(openai: Vendor) -> None:
    came = chat(openai, "gpt-5", stream=True, stream_options={"include_usage": True})
    assert came.events[-1]["choices"] == []
    assert came.events[-1]["usage"]["completion_tokens_details"]["reasoning_tokens"] == 5
    assert all(event["usage"] is None for event in came.events[:-1])
    assert came.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("fields", "code", "param", "words"),
    [
        ({"top_k": 3}, None, None, "Unrecognized request argument supplied: top_k"),
        ({"n": 200}, "integer_above_max_value", "n",
         "Invalid 'n': integer above maximum value. Expected a value <= 128, but got 200 instead."),
        ({"temperature": 2.5}, "decimal_above_max_value", "temperature",
         "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 2.5 instead."),
        ({"temperature": "hot"}, "invalid_type", "temperature",
         "Invalid type for 'temperature': expected a decimal, but got a string instead."),
        ({"tools": []}, "empty_array", "tools",
         "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead."),
        ({"tools": [function(name=f"f{number}") for number in range(129)]}, "array_above_max_length", "tools",
         ("Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 129"
         " instead.")),
        ({"tools": [function(name="a b")]}, "invalid_value", "tools[0].function.name",
         ("Invalid 'tools[0].function.name': string does not match pattern. Expected a string that matches the pattern"
         " '^[a-zA-Z0-9_-]+$'.")),
        ({"tools": [function(parameters=STRICT, strict=True)]}, "invalid_function_parameters",
         "tools[0].function.parameters",
         ("Invalid schema for function 'f': In context=(), 'additionalProperties' is required to be supplied and to be"
         " false.")),
        ({"tools": [function(parameters={"type": "object"})]}, "invalid_function_parameters",
         "tools[0].function.parameters", "Invalid schema for function 'f': In context=(), object schema missing properties."),
        ({"stop": ["a", "b", "c", "d", "e"]}, "array_above_max_length", "stop",
         "Invalid 'stop': array too long. Expected an array with maximum length 4, but got an array with length 5 instead."),
        ({"metadata": {"a": "x"}}, None, "metadata", "The 'metadata' parameter is only allowed when 'store' is enabled."),
        ({"stream_options": {"include_usage": True}}, None, "stream_options",
         "The 'stream_options' parameter is only allowed when 'stream' is enabled."),
        ({"max_tokens": 20_000}, "invalid_value", "max_tokens",
         "max_tokens is too large: 20000. This model supports at most 16384 completion tokens, whereas you provided 20000."),
        ({"reasoning_effort": "low"}, None, None, "Unrecognized request argument supplied: reasoning_effort"),
        ({"response_format": {"type": "json_object"}}, None, "messages",
         "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'."),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": STRICT, "strict": True}}},
         None, "response_format",
         ("Invalid schema for response_format 'x': In context=(), 'additionalProperties' is required to be supplied and to"
         " be false.")),
    ],
)  # fmt: skip
def test_a_field_is_refused(openai: Vendor, fields: dict[str, Any], code: str | None, param: str, words: str) -> None:
    assert said(chat(openai, "gpt-4o", **fields)) == (400, code, param, words)


@pytest.mark.parametrize("model", ["o3", "o4-mini", "gpt-5", "gpt-5-mini-2025-08-07", "ft:gpt-5-mini:us::1"])
@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"max_tokens": 9}, "unsupported_parameter",
         "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."),
        ({"temperature": 0.5}, "unsupported_value",
         "Unsupported value: 'temperature' does not support 0.5 with this model. Only the default (1) value is supported."),
        ({"stop": "x"}, "unsupported_parameter", "Unsupported parameter: 'stop' is not supported with this model."),
        ({"top_p": 0.5}, "unsupported_parameter", "Unsupported parameter: 'top_p' is not supported with this model."),
    ],
)  # fmt: skip
def test_a_thinking_model_refuses_how_to_sample(
    openai: Vendor, model: str, fields: dict[str, Any], code: str, words: str
) -> None:
    (param,) = fields
    assert said(chat(openai, model, **fields)) == (400, code, param, words)
    assert chat(openai, model, temperature=1, max_completion_tokens=99).status == 200


def test_a_model_that_may_not_think_samples_where_it_does_not(openai: Vendor) -> None:
    assert chat(openai, "gpt-5.1", temperature=0.5).status == 200
    assert chat(openai, "gpt-5.1", temperature=0.5, reasoning_effort="low").status == 400


@pytest.mark.parametrize(("model", "effort", "status"), [
    ("gpt-5.2", None, 200), ("gpt-5.2", "low", 200),
    ("gpt-5.4", None, 200), ("gpt-5.4", "low", 400), ("gpt-5.5", None, 400), ("gpt-5.5", "none", 200),
])  # fmt: skip
def test_newer_models_have_tools_in_chat_only_without_thinking(
    openai: Vendor, model: str, effort: str | None, status: int
) -> None:
    fields = {} if effort is None else {"reasoning_effort": effort}
    came = chat(openai, model, tools=[WEATHER], **fields)
    assert came.status == status
    if status == 400:
        assert said(came)[2:] == (
            "reasoning_effort",
            (
                f"Function tools with reasoning_effort are not supported for {model} in /v1/chat/completions. To use function"
                " tools, use /v1/responses or set reasoning_effort to 'none'."
            ),
        )


@pytest.mark.parametrize("model", ["gpt-5-codex", "gpt-5-pro", "gpt-5.1-codex-max", "o3-pro"])
def test_a_model_of_responses_alone_is_a_404(openai: Vendor, model: str) -> None:
    words = "This model is only supported in v1/responses and not in v1/chat/completions."
    assert said(chat(openai, model)) == (404, None, "model", words)


def test_a_model_that_is_unknown_is_a_404(openai: Vendor) -> None:
    words = "The model `nope` does not exist or you do not have access to it."
    assert said(chat(openai, "nope")) == (404, "model_not_found", None, words)


LONG = "x" * 41


@pytest.mark.parametrize(
    ("messages", "code", "param", "words"),
    [
        ([USER, called("a"), USER], None, "messages.[2].role",
         ("An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The"
         " following tool_call_ids did not have response messages: a")),
        ([USER, result("a")], None, "messages.[1].role",
         "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."),
        ([USER, called("a"), result("b")], None, "messages.[2].tool_call_id",
         "Invalid parameter: 'tool_call_id' of 'b' not found in 'tool_calls' of previous message."),
        ([USER, called("a"), result("a"), result("a")], None, "messages.[3].tool_call_id",
         "Invalid parameter: Duplicate value for 'tool_call_id' of 'a', in messages[2] and messages[3]."),
        ([USER, called(LONG), result(LONG)], "string_above_max_length", "messages[1].tool_calls[0].id",
         ("Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a"
         " string with length 41 instead.")),
        ([USER, {"role": "assistant", "content": "x", "reasoning_content": "y"}, USER], "unknown_parameter",
         "messages[1].reasoning_content", "Unknown parameter: 'messages[1].reasoning_content'."),
        ([{"role": "user", "content": [{"type": "input_text", "text": "x"}]}], "invalid_value",
         "messages[0].content[0].type",
         "Invalid value: 'input_text'. Supported values are: 'text', 'image_url', 'input_audio', and 'file'."),
        ([{"role": "user", "content": None}], "invalid_type", "messages[0].content",
         "Invalid type for 'messages[0].content': expected one of a string or an array, but got null instead."),
        ([{"role": "user"}], "missing_required_parameter", "messages[0].content",
         "Missing required parameter: 'messages[0].content'."),
    ],
)  # fmt: skip
def test_a_history_is_refused(openai: Vendor, messages: list[Any], code: str | None, param: str, words: str) -> None:
    assert said(chat(openai, "gpt-4o", *messages)) == (400, code, param, words)


def test_a_prompt_that_the_context_does_not_hold_is_refused(openai: Vendor) -> None:
    came = chat(openai, "gpt-4o", {"role": "user", "content": "word " * 200_000})
    status, code, param, words = said(came)
    assert (status, code, param) == (400, "context_length_exceeded", "messages")
    assert words.startswith("This model's maximum context length is 128000 tokens. However, your messages resulted in")


def test_a_key_is_needed(openai: Vendor) -> None:
    body = {"model": "gpt-4o", "messages": [USER]}
    assert ask(openai, "/v1/chat/completions", body, headers={}).status == 401
    came = ask(openai, "/v1/chat/completions", body, headers={"authorization": "Bearer sk-wrong"})
    assert (came.status, came.body["error"]["code"]) == (401, "invalid_api_key")


def test_embeddings_are_of_models_of_embeddings(openai: Vendor) -> None:
    came = ask(openai, "/v1/embeddings", {"model": "text-embedding-3-small", "input": ["a", "b"], "dimensions": 8})
    assert [len(each["embedding"]) for each in came.body["data"]] == [8, 8]
    assert said(ask(openai, "/v1/embeddings", {"model": "gpt-4o", "input": "a"}))[0] == 403
    assert said(ask(openai, "/v1/embeddings", {"model": "text-embedding-3-small", "input": ""}))[1] == "empty_string"
    assert (
        said(ask(openai, "/v1/embeddings", {"model": "text-embedding-ada-002", "input": "a", "dimensions": 8}))[0]
        == 400
    )


def test_a_text_may_ask_for_a_failure_once(openai: Vendor) -> None:
    prompt = {"role": "user", "content": "fail: 500 times 1 here"}
    assert chat(openai, "gpt-4o", prompt).status == 500
    assert chat(openai, "gpt-4o", prompt).status == 200
