"""Requests of chat in the words of Messages: what is said, what is lost, what is refused."""

from typing import Any

import pytest

from providers.dialects import Malformed
from providers.dialects.messages.request_from_chat import from_chat
from providers.dialects.messages.request_to_chat import to_chat
from tests.unit.providers.dialects.inside.messages_wordings import (
    ASK,
    SCHEMA,
    call,
    chat_of,
    lost,
    messages_of,
    raw,
    said,
)


@pytest.mark.parametrize(
    ("effort", "adaptive", "expected"),
    [
        ("none", True, {"thinking": {"type": "disabled"}}),
        *(
            (
                effort,
                True,
                {
                    "thinking": {"type": "adaptive", "display": "summarized"},
                    "output_config": {"effort": theirs},
                },
            )
            for effort, theirs in [("minimal", "low"), ("low", "low"), ("high", "high"), ("max", "max")]
        ),
        ("low", False, {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
        ("high", False, {"thinking": {"type": "enabled", "budget_tokens": 4096}}),
        ("max", False, {"thinking": {"type": "enabled", "budget_tokens": 7999}}),  # must stay below the limit
    ],
)
def test_an_effort_becomes_thinking(effort: str, adaptive: bool, expected: dict[str, Any]) -> None:
    wording = messages_of(max_tokens=8000, reasoning_effort=effort, options={"adaptive_thinking": adaptive})
    assert said(wording) == {"max_tokens": 8000, "messages": ASK, **expected}
    assert wording.losses == ()


def test_without_a_limit_the_default_one_is_sent_and_grows_by_what_is_thought() -> None:
    assert said(from_chat(raw({"messages": ASK})))["max_tokens"] == 4096
    assert said(from_chat(raw({"messages": ASK}), default_max_tokens=100))["max_tokens"] == 100
    thinks = from_chat(raw({"messages": ASK, "reasoning_effort": "medium"}), adaptive_thinking=False)
    assert said(thinks)["max_tokens"] == 4096 + 2048


def test_effort_and_schema_share_the_output_config() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
    wording = messages_of(response_format=form, reasoning_effort="low")
    assert said(wording)["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}, "effort": "low"}


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        *(
            ({name: value}, False)
            for name, value in [
                ("n", 2),
                ("seed", 1),
                ("logprobs", True),
                ("logit_bias", {"1": 2}),
                ("frequency_penalty", 0.5),
                ("store", True),
                ("modalities", ["text", "audio"]),
                ("web_search_options", {}),
                ("verbosity", "low"),
                ("temperature", 1.5),
                ("stop", [" "]),
                ("response_format", {"type": "json_object"}),
                ("reasoning_effort", "boundless"),
                ("from_the_future", 1),
                ("tool_choice", "required"),
            ]
        ),
        ({"metadata": {"a": "b"}}, True),
        ({"prompt_cache_key": "k"}, True),
        ({"service_tier": "flex"}, False),  # demands.py says which tier is a must
        ({"prediction": {"type": "content", "content": "x"}}, True),
    ],
)
def test_what_messages_cannot_say_of_a_request_is_a_loss(fields: dict[str, Any], hint: bool) -> None:
    wording = messages_of(**fields)
    (field,) = fields
    assert lost(wording) == {field: hint}
    assert said(wording) == {"max_tokens": 9, "messages": ASK}


@pytest.mark.parametrize(
    ("message", "field", "hint"),
    [
        ({"role": "user", "name": "Al", "content": "x"}, "messages[0].name", False),
        (
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]},
            "messages[0].content[0]",
            False,
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/bmp;base64,aGk="}}]},
            "messages[0].content[0].image_url.url",
            False,
        ),
        (
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": "https://x.test", "detail": "low"}}],
            },
            "messages[0].content[0].image_url.detail",
            True,
        ),
        (
            {"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]},
            "messages[0].content[0].file.file_id",
            False,
        ),
        (
            {"role": "user", "content": [{"type": "file", "file": {"filename": "a.pdf", "file_id": None}}]},
            "messages[0].content[0].file.file_data",
            False,
        ),
        ({"role": "assistant", "content": "x", "reasoning_content": "hm"}, "messages[0].reasoning_content", True),
        ({"role": "assistant", "content": "x", "audio": {"id": "a"}}, "messages[0].audio", False),
        (
            {"role": "assistant", "tool_calls": [call("a", "f", "{broken")]},
            "messages[0].tool_calls[0].function.arguments",
            False,
        ),
        ({"role": "user", "content": " "}, "messages[0].content", True),
        ({"role": "function", "name": "f", "content": "x"}, "messages[0]", False),
    ],
)
def test_what_messages_cannot_say_of_a_message_is_a_loss(message: dict[str, Any], field: str, hint: bool) -> None:
    assert lost(messages_of(messages=[message, *ASK])) == {field: hint}


def test_only_usage_is_wanted_of_a_stream_without_a_loss() -> None:
    options = {"include_usage": True, "include_obfuscation": True, "continuous_usage_stats": True}
    assert lost(messages_of(stream_options=options)) == {
        "stream_options.include_obfuscation": True,
        "stream_options.continuous_usage_stats": False,
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 1, "logprobs": False, "top_logprobs": 0, "frequency_penalty": 0, "presence_penalty": 0.0},
        {"store": False, "parallel_tool_calls": True, "seed": None, "logit_bias": {}, "modalities": ["text"]},
        {"temperature": 1, "top_p": 1.0, "service_tier": "auto", "response_format": {"type": "text"}},
        {"stream_options": {"include_usage": True, "include_obfuscation": False}},
        {"verbosity": "medium", "tool_choice": "auto"},
    ],
)
def test_what_is_the_default_of_chat_is_no_loss_and_is_not_sent(fields: dict[str, Any]) -> None:
    wording = messages_of(**fields)
    assert (said(wording), wording.losses) == ({"max_tokens": 9, "messages": ASK}, ())


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"temperature": 0.2}, "temperature"),
        ({"top_p": 0.5}, "top_p"),
        ({"top_k": 3}, "top_k"),
        (
            {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required"},
            "reasoning_effort",
        ),
    ],
)
def test_what_the_api_refuses_of_a_model_that_thinks_is_a_loss(fields: dict[str, Any], field: str) -> None:
    wording = messages_of(reasoning_effort="high", **fields)
    assert lost(wording) == {field: False}
    assert ("thinking" in wording.fields) == (field != "reasoning_effort")


def test_ids_of_calls_are_put_into_letters_that_messages_allows() -> None:
    asked = [
        *ASK,
        {"role": "assistant", "content": "", "tool_calls": [call("functions.f:0", "f", "")]},
        {"role": "tool", "tool_call_id": "functions.f:0", "content": ""},
    ]
    turns = said(messages_of(messages=asked))["messages"]
    assert turns[1]["content"] == [{"type": "tool_use", "id": "functions_2e_f_3a_0", "name": "f", "input": {}}]
    assert turns[2]["content"] == [{"type": "tool_result", "tool_use_id": "functions_2e_f_3a_0", "content": ""}]


LATE = {"role": "developer", "content": "Now in French."}


@pytest.mark.parametrize(
    ("messages", "roles"),
    [
        ([*ASK, LATE], ["user"]),
        ([*ASK, {"role": "assistant", "content": "A"}, LATE, *ASK], ["user", "assistant", "user", "user"]),
        ([*ASK, LATE, LATE, {"role": "assistant", "content": "A"}, *ASK], ["user", "assistant", "user"]),
    ],
)
def test_a_later_system_message_is_said_where_it_stands_in_the_users_turn(messages: Any, roles: list[str]) -> None:
    wording = messages_of(messages=[{"role": "system", "content": "A"}, *messages])
    turns = said(wording)["messages"]
    assert said(wording)["system"] in ("A", [{"type": "text", "text": "A"}])
    assert [turn["role"] for turn in turns] == roles
    texts = [block["text"] for turn in turns for block in turn["content"] if isinstance(block, dict)]
    assert texts.count("<system>\nNow in French.\n</system>") == messages.count(LATE)
    assert set(lost(wording).values()) == {True}


def test_a_budget_is_not_sent_between_tools_where_signed_thoughts_are_demanded() -> None:
    asked = [
        *ASK,
        {"role": "assistant", "tool_calls": [call("a", "f", "{}")]},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
    ]
    wording = messages_of(messages=asked, max_tokens=2048, reasoning_effort="low", options={"adaptive_thinking": False})
    assert "thinking" not in wording.fields
    assert lost(wording) == {"reasoning_effort": True}  # an agent's task that was begun is not refused in the middle
    assert messages_of(messages=asked, reasoning_effort="low").losses == ()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        ({"max_tokens": 0}, "max_completion_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"tools": [{"type": "function"}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "any"}, "tool_choice"),
    ],
)
def test_what_chat_forbids_is_malformed(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(Malformed) as caught:
        messages_of(**fields)
    assert caught.value.param == param


def test_a_user_who_says_nothing_is_malformed() -> None:
    with pytest.raises(Malformed, match=r"messages\[0\].content: Field required"):
        to_chat(raw({"messages": [{"role": "user"}], "max_tokens": 5}))


def test_a_system_prompt_without_text_is_not_said() -> None:
    assert said(chat_of(system=[]))["messages"] == ASK


def test_a_picture_called_jpg_is_a_jpeg() -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/jpg;base64,aGk="}}
    wording = messages_of(messages=[{"role": "user", "content": [part]}])
    source = {"type": "base64", "media_type": "image/jpeg", "data": "aGk="}
    assert said(wording)["messages"][0]["content"] == [{"type": "image", "source": source}]
    assert lost(wording) == {}


def test_calls_that_came_with_one_id_in_several_turns_have_each_their_own() -> None:
    """Messages refuses a conversation in which an id comes twice."""
    turns = [
        part
        for answer in ("x", "y", "z")
        for part in (
            {"role": "assistant", "content": None, "tool_calls": [call("f:0", "f", "{}")]},
            {"role": "tool", "tool_call_id": "f:0", "content": answer},
        )
    ]
    content = [turn["content"][0] for turn in said(messages_of(messages=[*ASK, *turns]))["messages"][1:]]
    assert [block["id"] for block in content[::2]] == ["f_3a_0", "f_3a_0_2", "f_3a_0_3"]
    assert [(block["tool_use_id"], block["content"]) for block in content[1::2]] == [
        ("f_3a_0", "x"),
        ("f_3a_0_2", "y"),
        ("f_3a_0_3", "z"),
    ]


def test_a_call_whose_id_is_empty_has_one() -> None:
    turns = [
        {"role": "assistant", "content": None, "tool_calls": [call("", "f", "{}")]},
        {"role": "tool", "tool_call_id": "", "content": "x"},
    ]
    _, called, answered = said(messages_of(messages=[*ASK, *turns]))["messages"]
    assert called["content"][0]["id"] == answered["content"][0]["tool_use_id"] == "call"
