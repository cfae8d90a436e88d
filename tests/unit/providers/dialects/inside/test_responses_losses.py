"""What is lost between Responses and chat completions: named by its path, and told apart from what asks for nothing."""

from typing import Any

import msgspec
import pytest

from providers.dialects import Wording
from providers.dialects.responses.request_from_chat import from_chat
from providers.dialects.responses.request_to_chat import to_chat

IMAGE = "data:image/png;base64,AAAA"


def raw(fields: dict[str, Any]) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}


def lost(wording: Wording) -> list[str]:
    return [loss.field for loss in wording.losses if not loss.hint]


def hinted(wording: Wording) -> list[str]:
    return [loss.field for loss in wording.losses if loss.hint]


RESPONSES_LOSSES: list[tuple[Any, list[str]]] = [
    ({"previous_response_id": "resp_1"}, ["previous_response_id"]),
    ({"conversation": {"id": "c"}}, ["conversation"]),
    ({"prompt": {"id": "p"}}, ["prompt"]),
    ({"background": True}, ["background"]),
    ({"store": True}, ["store"]),
    ({"truncation": "auto"}, ["truncation"]),
    ({"max_tool_calls": 3}, ["max_tool_calls"]),
    ({"some_day": {"a": 1}}, ["some_day"]),
    ({"text": {"some_day": 1}}, ["text.some_day"]),
    ({"reasoning": {"mode": "pro"}}, ["reasoning.mode"]),
    ({"tools": [{"type": "web_search"}, {"type": "function", "name": "f"}, {"type": "mcp"}]}, ["tools[0]", "tools[2]"]),
    ({"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}, ["tools[0]", "tool_choice"]),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, ["input[0]"]),
    ({"input": [{"id": "msg_1"}]}, ["input[0]"]),
    ({"input": [{"type": "some_day_call", "call_id": "a"}]}, ["input[0]"]),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
        ["input[0].content[0].file_id"],
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "u", "file_id": "f"}]}]},
        ["input[0].content[0].file_id"],
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "u"}]}]},
        ["input[0].content[0].file_url"],
    ),
    ({"input": [{"role": "user", "content": "x", "some_day": 1}]}, ["input[0].some_day"]),
    ({"input": [{"role": "user", "content": [{"type": "some_day"}]}]}, ["input[0].content[0]"]),
    (
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f", "detail": "high"}]}]},
        ["input[0].content[0].detail"],
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "u", "detail": "original"}]}]},
        ["input[0].content[0].detail"],
    ),
    (
        {
            "tools": [
                {"type": "function", "name": "n__f"},
                {"type": "namespace", "name": "n", "some_day": 1, "tools": [{"type": "function", "name": "f"}]},
            ]
        },
        ["tools[1].some_day", "tools[1].tools[0]"],
    ),
    ({"text": {"format": {"type": "some_day"}}}, ["text.format.type"]),
    ({"tools": [{"type": "custom", "name": "g", "format": {"type": "some_day"}}]}, ["tools[0].format.type"]),
    (
        {
            "tools": [{"type": "function", "name": "f"}],
            "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp"}]},
        },
        ["tool_choice.tools[0]"],
    ),
]


@pytest.mark.parametrize(("asked", "fields"), RESPONSES_LOSSES)
def test_what_chat_cannot_say_is_a_loss_by_name(asked: dict[str, Any], fields: list[str]) -> None:
    wording = to_chat(raw({"input": "x", **asked}))
    assert lost(wording) == fields
    assert hinted(wording) == []


@pytest.mark.parametrize(
    ("asked", "fields"),
    [
        ({"reasoning": {"effort": "low", "summary": "auto"}}, ["reasoning.summary"]),
        ({"tools": [{"type": "function", "name": "f", "defer_loading": True}]}, ["tools[0].defer_loading"]),
        (
            {
                "tools": [
                    {
                        "type": "namespace",
                        "name": "n",
                        "tools": [{"type": "function", "name": "f", "defer_loading": True}],
                    }
                ]
            },
            ["tools[0].tools[0].defer_loading"],
        ),
        ({"include": ["reasoning.encrypted_content"]}, ["include[0]"]),
        ({"stream_options": {"include_obfuscation": True}}, ["stream_options.include_obfuscation"]),
        ({"input": [{"role": "assistant", "content": "x", "phase": "commentary"}] * 2}, ["input[0].phase"]),
    ],
)
def test_what_changes_no_answer_is_a_hint_told_once(asked: dict[str, Any], fields: list[str]) -> None:
    wording = to_chat(raw({"input": "x", **asked}))
    assert hinted(wording) == fields
    assert lost(wording) == []


@pytest.mark.parametrize("vendor", ["anthropic", "google"])
def test_encrypted_thoughts_are_no_loss_where_signed_ones_come_as_such(vendor: str) -> None:
    asked = raw({"input": "x", "include": ["reasoning.encrypted_content", "code_interpreter_call.outputs"]})
    assert hinted(to_chat(asked, signed=vendor)) == ["include[1]"]


DEFAULTS_OF_RESPONSES: dict[str, Any] = {
    "background": False,
    "conversation": None,
    "include": [],
    "instructions": None,
    "max_output_tokens": None,
    "metadata": None,
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "store": False,
    "stream_options": {"include_obfuscation": False},
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "truncation": "disabled",
}


def test_defaults_of_responses_ask_for_nothing() -> None:
    wording = to_chat(raw({"input": "x", **DEFAULTS_OF_RESPONSES}))
    assert set(wording.fields) == {"messages"}
    assert wording.losses == ()


USER = [{"role": "user", "content": "x"}]
CHAT_LOSSES: list[tuple[Any, list[str]]] = [
    ({"n": 2}, ["n"]),
    ({"stop": ["x"]}, ["stop"]),
    ({"seed": 1}, ["seed"]),
    ({"frequency_penalty": 0.5, "presence_penalty": -1}, ["frequency_penalty", "presence_penalty"]),
    ({"logit_bias": {"1": 5}}, ["logit_bias"]),
    ({"audio": {"voice": "a"}, "modalities": ["text", "audio"]}, ["audio", "modalities"]),
    ({"web_search_options": {}}, ["web_search_options"]),
    ({"functions": [{"name": "f"}], "function_call": {"name": "f"}}, ["functions", "function_call"]),
    ({"top_k": 5}, ["top_k"]),
    ({"max_tokens": 5}, ["max_tokens"]),
    ({"top_logprobs": 3}, ["top_logprobs"]),
    ({"messages": [{"role": "user", "name": "ann", "content": "x"}]}, ["messages[0].name"]),
    ({"messages": [{"role": "user", "content": [{"type": "some_day"}]}]}, ["messages[0].content[0]"]),
    ({"messages": [{"role": "assistant", "content": [{"type": "some_day"}]}]}, ["messages[0].content[0]"]),
    ({"messages": [{"role": "assistant", "content": "x", "audio": {"id": "a"}}]}, ["messages[0].audio"]),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "a", "type": "some_day"}]}]},
        ["messages[0].tool_calls[0]"],
    ),
    ({"response_format": {"type": "some_day"}}, ["response_format.type"]),
    ({"tools": [{"type": "some_day"}]}, ["tools[0]"]),
    ({"tools": [{"type": "function", "function": {"name": "f", "some_day": 1}}]}, ["tools[0].function.some_day"]),
    (
        {"tools": [{"type": "custom", "custom": {"name": "g", "format": {"type": "some_day"}}}]},
        ["tools[0].custom.format.type"],
    ),
    (
        {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": {"type": "some_day"}},
        ["tool_choice"],
    ),
    ({"messages": [{"role": "function", "name": "f", "content": "x"}]}, ["messages[0]"]),
    (
        {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
        ["messages[0].content[0]"],
    ),
]


@pytest.mark.parametrize(("asked", "fields"), CHAT_LOSSES)
def test_what_responses_cannot_say_is_a_loss_by_name(asked: dict[str, Any], fields: list[str]) -> None:
    wording = from_chat(raw({"messages": USER, **asked}))
    assert lost(wording) == fields
    assert hinted(wording) == []


def test_reasoning_that_is_sent_back_and_predictions_are_hints() -> None:
    asked = {
        "messages": [{"role": "assistant", "content": "x", "reasoning_content": "hm", "annotations": [{"type": "a"}]}],
        "prediction": {"type": "content", "content": "x"},
    }
    wording = from_chat(raw(asked))
    assert (lost(wording), hinted(wording)) == (
        [],
        ["messages[0].reasoning_content", "messages[0].annotations", "prediction"],
    )


DEFAULTS_OF_CHAT = {
    "n": 1,
    "stop": None,
    "frequency_penalty": 0,
    "presence_penalty": 0.0,
    "logit_bias": {},
    "logprobs": False,
    "modalities": ["text"],
    "response_format": {"type": "text"},
    "store": False,
    "stream_options": {"include_usage": True, "include_obfuscation": False},
    "tools": [],
}


def test_defaults_of_chat_ask_for_nothing() -> None:
    wording = from_chat(raw({"messages": USER, **DEFAULTS_OF_CHAT}))
    assert set(wording.fields) == {"input", "store"}
    assert wording.losses == ()
