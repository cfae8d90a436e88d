"""The stand-in of DeepSeek takes what its pages have, and refuses the rest with its status and words."""

from typing import Any

import pytest

from strict_vendors import Vendor, made
from strict_vendors.tests.asking import USER, WEATHER, Came, ask, called, chat, result

PRO = "deepseek-v4-pro"
READ = "Failed to deserialize the JSON body into the target type: "
OFF = {"type": "disabled"}


@pytest.fixture
def deepseek() -> Vendor:
    return made("deepseek")


def words(came: Came) -> str:
    assert came.status == 400
    assert came.body["error"]["code"] == "invalid_request_error"
    return str(came.body["error"]["message"])


def test_a_tool_loop_with_its_thoughts_is_taken(deepseek: Vendor) -> None:
    first = chat(deepseek, PRO, tools=[WEATHER])
    message = first.body["choices"][0]["message"]
    assert message["reasoning_content"]
    call_id = message["tool_calls"][0]["id"]
    second = chat(deepseek, PRO, USER, message, result(call_id), tools=[WEATHER])
    assert second.body["choices"][0]["message"]["content"] == "The tools said: sunny"
    assert second.body["usage"]["prompt_cache_miss_tokens"]


def test_calls_without_their_thoughts_are_refused_while_it_thinks(deepseek: Vendor) -> None:
    loop = [USER, called("call_1"), result("call_1")]
    said = "The `reasoning_content` in the thinking mode must be passed back to the API."
    assert words(chat(deepseek, PRO, *loop, tools=[WEATHER])) == said
    later = [*loop, {"role": "assistant", "content": "Sunny"}, USER]
    assert words(chat(deepseek, PRO, *later, tools=[WEATHER])) == said
    assert chat(deepseek, PRO, *loop, tools=[WEATHER], thinking=OFF).status == 200
    empty = [USER, called("call_1", reasoning_content=""), result("call_1")]
    assert chat(deepseek, PRO, *empty, tools=[WEATHER]).status == 200


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            READ + "messages[0]: invalid type: sequence, expected a string",
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
            READ + "messages[0]: unknown variant `image_url`, expected",
        ),
        (
            {"role": "developer", "content": "Be kind"},
            READ + "messages[0].role: unknown variant `developer`, expected one of `system`, `user`, `assistant`,",
        ),
        (
            {"role": "user"},
            READ + "messages[0]: missing field `content`",
        ),
    ],
)
def test_messages_of_another_type_are_refused(deepseek: Vendor, message: Any, said: str) -> None:
    assert words(chat(deepseek, PRO, message, USER)).startswith(said)


def test_calls_and_results_must_belong_together(deepseek: Vendor) -> None:
    said = words(chat(deepseek, PRO, USER, called("a"), USER, thinking=OFF))
    assert said.endswith("'tool_call_id'. (insufficient tool messages following tool_calls message)")
    said = words(chat(deepseek, PRO, USER, result("a"), thinking=OFF))
    assert said == "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"max_tokens": 400_000}, "Invalid max_tokens value, the valid range of max_tokens is [1, 393216]"),
        ({"tools": [WEATHER], "tool_choice": "required"}, "Thinking mode does not support this tool_choice"),
        ({"response_format": {"type": "json_schema"}}, "This response_format type is unavailable now"),
        ({"response_format": {"type": "json_object"}}, "Prompt must contain the word 'json' in some form to use"),
        (
            {"reasoning_effort": "none"},
            READ + "reasoning_effort: unknown",
        ),
        ({"temperature": 3}, "Invalid temperature value, the valid range of temperature is [0, 2]"),
    ],
)
def test_what_it_does_not_take_is_refused(deepseek: Vendor, fields: Any, said: str) -> None:
    assert words(chat(deepseek, PRO, **fields)).startswith(said)


def test_fields_that_it_does_not_know_are_passed_over(deepseek: Vendor) -> None:
    assert chat(deepseek, PRO, store=False, prompt_cache_key="a", max_completion_tokens=3).status == 200


def test_a_stream_begins_with_a_comment_and_ends_with_the_usage(deepseek: Vendor) -> None:
    came = chat(deepseek, PRO, stream=True)
    assert came.text.startswith(": keep-alive\n\n")
    assert came.events[1]["choices"][0]["delta"] == {"reasoning_content": "Let "}
    assert came.events[-1]["usage"]["completion_tokens_details"]["reasoning_tokens"]


def test_a_prefix_is_one_of_the_betas(deepseek: Vendor) -> None:
    body = {"model": PRO, "messages": [USER, {"role": "assistant", "content": "He", "prefix": True}], "thinking": OFF}
    assert ask(deepseek, "/v1/chat/completions", body).status == 400
    assert ask(deepseek, "/beta/chat/completions", body).status == 200
