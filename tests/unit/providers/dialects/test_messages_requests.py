"""Requests in the words of Messages and of chat: what is said on both sides, what is lost, what is refused."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.dialects.messages.requests import from_chat, to_chat
from providers.dialects.messages.thoughts import without_unsigned_thoughts
from providers.dialects.wording import Malformed, Wording

PNG = {"type": "base64", "media_type": "image/png", "data": "aGk="}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "aGk="}
ASK = [{"role": "user", "content": "Hi"}]
SCHEMA = {"type": "object", "properties": {"x": {"type": "number"}}, "additionalProperties": False}
MARK = {"type": "ephemeral"}


def raw(fields: Mapping[str, Any]) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}


def said(wording: Wording) -> dict[str, Any]:
    return {name: msgspec.json.decode(value) for name, value in wording.fields.items()}


def lost(wording: Wording) -> dict[str, bool]:
    return {loss.field: loss.hint for loss in wording.losses}


def chat_of(**fields: Any) -> Wording:
    return to_chat(raw({"max_tokens": 9, "messages": ASK, **fields}))


def messages_of(*, options: Mapping[str, Any] | None = None, **fields: Any) -> Wording:
    return from_chat(raw({"max_tokens": 9, "messages": ASK, **fields}), **(options or {}))


def call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


# What both say without loss, in the words of each.
SAME_CONVERSATION = [
    (
        {"system": "Be brief.", "messages": ASK},
        [{"role": "system", "content": "Be brief."}, *ASK],
    ),
    (
        {"system": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}], "messages": ASK},
        [{"role": "system", "content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]}, *ASK],
    ),
    (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "Look"},
                        {"type": "image", "source": PNG},
                        {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}},
                        {"type": "document", "source": PDF, "title": "a.pdf"},
                    ],
                }
            ]
        },
        [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
                    {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}},
                    {
                        "type": "file",
                        "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="},
                    },
                ],
            }
        ],
    ),
    (
        {
            "messages": [
                *ASK,
                {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "Both."},
                        {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1.0}},
                        {"type": "tool_use", "id": "b", "name": "g", "input": {}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "a", "content": "1"},
                        {
                            "type": "tool_result",
                            "tool_use_id": "b",
                            "content": [{"type": "text", "text": "2"}, {"type": "text", "text": "3"}],
                        },
                        {"type": "text", "text": "Go on"},
                    ],
                },
            ]
        },
        [
            *ASK,
            {
                "role": "assistant",
                "content": "Both.",
                "tool_calls": [call("a", "f", '{"x":1.0}'), call("b", "g", "{}")],
            },
            {"role": "tool", "tool_call_id": "a", "content": "1"},
            {
                "role": "tool",
                "tool_call_id": "b",
                "content": [{"type": "text", "text": "2"}, {"type": "text", "text": "3"}],
            },
            {"role": "user", "content": "Go on"},
        ],
    ),
]

TOOL_CHOICES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"type": "auto"}, {"tool_choice": "auto"}),
    ({"type": "any"}, {"tool_choice": "required"}),
    ({"type": "none"}, {"tool_choice": "none"}),
    ({"type": "tool", "name": "f"}, {"tool_choice": {"type": "function", "function": {"name": "f"}}}),
    (
        {"type": "any", "disable_parallel_tool_use": True},
        {"tool_choice": "required", "parallel_tool_calls": False},
    ),
]
SAME_SETTINGS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"model": "m", "stream": True}, {"model": "m", "stream": True}),
    ({"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5, "top_p": 0.9}),
    ({"metadata": {"user_id": "u"}}, {"user": "u"}),
    ({"service_tier": "standard_only"}, {"service_tier": "default"}),
    (
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True},
            }
        },
    ),
    (
        {"tools": [{"name": "f", "description": "d", "input_schema": SCHEMA, "strict": True}]},
        {
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True},
                }
            ]
        },
    ),
    *(
        (
            {"tools": [{"name": "f", "input_schema": SCHEMA}], "tool_choice": theirs},
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}], **ours},
        )
        for theirs, ours in TOOL_CHOICES
    ),
]


@pytest.mark.parametrize(("theirs", "ours"), SAME_CONVERSATION)
def test_a_conversation_is_said_in_both_dialects_without_loss(theirs: Any, ours: Any) -> None:
    chat, messages = chat_of(**theirs), messages_of(messages=ours)
    assert (said(chat)["messages"], chat.losses) == (ours, ())
    assert (said(messages), messages.losses) == ({"max_tokens": 9, **theirs}, ())


@pytest.mark.parametrize(("theirs", "ours"), SAME_SETTINGS)
def test_a_setting_is_said_in_both_dialects_without_loss(theirs: Any, ours: Any) -> None:
    chat, messages = chat_of(**theirs), messages_of(**ours)
    assert (said(chat), chat.losses) == ({"max_completion_tokens": 9, "messages": ASK, **ours}, ())
    assert (said(messages), messages.losses) == ({"max_tokens": 9, "messages": ASK, **theirs}, ())


def test_stop_sequences_are_said_with_a_hint_that_chat_does_not_tell_which_was_met() -> None:
    wording = chat_of(stop_sequences=["a", "b"])
    assert (said(wording)["stop"], lost(wording)) == (["a", "b"], {"stop_sequences": True})
    assert said(messages_of(stop="a"))["stop_sequences"] == ["a"]


@pytest.mark.parametrize(
    ("fields", "effort"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "low"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, "medium"),
        ({"thinking": {"type": "enabled", "budget_tokens": 31999}}, "high"),
        ({"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "max"}}, "max"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}, "output_config": {"effort": "high"}}, "high"),
        ({"thinking": {"type": "adaptive"}}, None),
        ({"thinking": {"type": "disabled"}}, None),
    ],
)
def test_thinking_becomes_an_effort(fields: dict[str, Any], effort: str | None) -> None:
    wording = chat_of(**fields)
    assert (said(wording).get("reasoning_effort"), wording.losses) == (effort, ())


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
    ("fields", "field", "hint"),
    [
        ({"top_k": 5}, "top_k", False),
        ({"mcp_servers": [{"url": "u"}]}, "mcp_servers", False),
        ({"container": "c"}, "container", False),
        ({"inference_geo": "eu"}, "inference_geo", False),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "context_management", False),
        ({"context_management": {"edits": [{"type": "clear_thinking_20251015"}]}}, "context_management", True),
        ({"speed": "fast"}, "speed", True),
        ({"service_tier": "from_the_future"}, "service_tier", True),
        ({"cache_control": MARK}, "cache_control", True),
        ({"from_the_future": 1}, "from_the_future", False),
        ({"max_tokens": 0}, "max_tokens", False),
        ({"stop_sequences": ["1", "2", "3", "4", "5"]}, "stop_sequences", False),
        ({"metadata": {"user_id": "u", "x": 1}}, "metadata.x", False),
        ({"output_config": {"task_budget": {}}}, "output_config.task_budget", False),
        ({"thinking": {"type": "between_tools"}}, "thinking", False),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0]", False),
        ({"tools": [{"name": "f", "input_schema": {}, "cache_control": MARK}]}, "tools[0].cache_control", True),
        ({"tools": [{"name": "f", "input_schema": {}, "input_examples": [{}]}]}, "tools[0].input_examples", False),
        ({"system": [{"type": "text", "text": "s", "cache_control": MARK}]}, "system[0].cache_control", True),
    ],
)
def test_what_chat_cannot_say_of_a_request_is_a_loss(fields: dict[str, Any], field: str, hint: bool) -> None:
    assert lost(chat_of(**fields)) == {field: hint}


@pytest.mark.parametrize(
    ("block", "field", "hint"),
    [
        ({"type": "text", "text": "x", "cache_control": MARK}, ".cache_control", True),
        ({"type": "image", "source": {"type": "file", "file_id": "f"}}, ".source", False),
        ({"type": "document", "source": {"type": "url", "url": "u"}}, ".source", False),
        ({"type": "document", "source": PDF, "citations": {"enabled": True}}, ".citations", False),
        ({"type": "document", "source": PDF, "context": "c"}, ".context", False),
        ({"type": "search_result", "source": "s", "title": "t", "content": []}, "", False),
        ({"type": "from_the_future"}, "", False),
        (
            {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image", "source": PNG}]},
            ".content[0]",
            True,
        ),
    ],
)
def test_what_chat_cannot_say_of_a_block_is_a_loss(block: dict[str, Any], field: str, hint: bool) -> None:
    wording = chat_of(messages=[{"role": "user", "content": [block]}])
    assert lost(wording) == {f"messages[0].content[0]{field}": hint}


@pytest.mark.parametrize(
    "fields",
    [
        {"service_tier": "auto", "speed": "standard", "mcp_servers": [], "container": None, "metadata": {}},
        {"tools": [{"type": "custom", "name": "f", "input_schema": {}, "defer_loading": False}]},
        {"tools": [{"name": "f", "input_schema": {}, "allowed_callers": ["direct"]}]},
    ],
)
def test_what_is_the_default_of_messages_is_no_loss(fields: dict[str, Any]) -> None:
    assert chat_of(**fields).losses == ()


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
        ({"service_tier": "flex"}, True),
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


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 1, "logprobs": False, "top_logprobs": 0, "frequency_penalty": 0, "presence_penalty": 0.0},
        {"store": False, "parallel_tool_calls": True, "seed": None, "logit_bias": {}, "modalities": ["text"]},
        {"temperature": 1, "top_p": 1.0, "service_tier": "auto", "response_format": {"type": "text"}},
        {"stream_options": {"include_usage": True}, "verbosity": "medium", "tool_choice": "auto"},
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


def test_a_tools_failure_is_told_by_its_text() -> None:
    def told(text: Any) -> Any:
        result = {"type": "tool_result", "tool_use_id": "a", "is_error": True, "content": text}
        return said(chat_of(messages=[{"role": "user", "content": [result]}]))["messages"][0]["content"]

    assert told("no such file") == "Error: no such file"
    assert told([{"type": "text", "text": "ERROR 5"}]) == "ERROR 5"
    assert told([]) == "Error"


def test_thoughts_in_history_are_left_out_with_a_hint() -> None:
    thoughts = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
    ]
    turn = {"role": "assistant", "content": [*thoughts, {"type": "text", "text": "A"}, {"type": "text", "text": "B"}]}
    wording = chat_of(messages=[*ASK, turn, *ASK])
    assert said(wording)["messages"] == [*ASK, {"role": "assistant", "content": "AB"}, *ASK]
    assert lost(wording) == {"messages[1].content[0]": True, "messages[1].content[1]": True}


def test_cache_markers_in_chat_are_those_of_messages() -> None:
    part = {"type": "text", "text": "x", "cache_control": MARK}
    tool = {"type": "function", "function": {"name": "f"}, "cache_control": MARK}
    wording = messages_of(messages=[{"role": "user", "content": [part]}], tools=[tool])
    assert said(wording)["messages"] == [{"role": "user", "content": [part]}]
    assert said(wording)["tools"] == [{"name": "f", "input_schema": {"type": "object"}, "cache_control": MARK}]
    assert wording.losses == ()


def test_a_plain_text_file_is_a_document_of_text() -> None:
    part = {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,SMOp"}}
    wording = messages_of(messages=[{"role": "user", "content": [part]}])
    source = {"type": "text", "media_type": "text/plain", "data": "Hé"}
    assert said(wording)["messages"][0]["content"] == [{"type": "document", "source": source, "title": "a.txt"}]


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


def test_a_system_message_among_the_turns_is_one_of_chat_too() -> None:
    late = {"role": "system", "content": "Now in French."}
    assert said(chat_of(messages=[*ASK, late]))["messages"] == [*ASK, late]


def test_an_assistants_last_message_is_a_loss_in_both_directions() -> None:
    begun = [*ASK, {"role": "assistant", "content": "The answer is ("}]
    assert lost(chat_of(messages=begun)) == {"messages[1]": False}
    assert lost(messages_of(messages=begun)) == {"messages[1]": False}


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
        ({"messages": "Hi"}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tool_choice": {}}, "tool_choice.type"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
        ({"stop_sequences": "x"}, "stop_sequences"),
    ],
)
def test_what_messages_forbids_is_malformed(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(Malformed) as caught:
        chat_of(**fields)
    assert caught.value.param == param


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


TEXT = st.text(min_size=1).filter(str.strip)
NAME = st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True)
PART = st.one_of(
    TEXT.map(lambda text: {"type": "text", "text": text}),
    st.binary().map(lambda data: {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data.hex()}"}}),
)
ARGUMENTS = st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text()).map(
    lambda value: msgspec.json.encode(value).decode()
)


@st.composite
def exchanges(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Return a user's message, and perhaps an answer that calls tools, and their results."""
    parts = draw(st.lists(PART, min_size=2, max_size=3))
    asked: list[dict[str, Any]] = [{"role": "user", "content": draw(TEXT | st.just(parts))}]
    calls = draw(st.lists(st.builds(call, NAME, NAME, ARGUMENTS), max_size=3))
    text = draw(TEXT)
    asked.append({"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})})
    asked += [{"role": "tool", "tool_call_id": one["id"], "content": draw(st.text())} for one in calls]
    return asked


@given(
    system=st.lists(TEXT.map(lambda text: {"role": "system", "content": text}), max_size=1),
    turns=st.lists(exchanges(), max_size=3),
    last=TEXT,
    settings=st.fixed_dictionaries(
        {},
        optional={
            "temperature": st.floats(0, 0.9),
            "stop": st.lists(TEXT, min_size=1, max_size=4),
            "user": st.text().filter(lambda name: not re.search(r"[@\d\s().-]", name)),  # tells nobody who it is
            "reasoning_effort": st.sampled_from(["low", "medium", "high", "xhigh", "max"]),
        },
    ),
)
def test_chat_comes_back_from_messages_as_it_was(
    system: list[Any], turns: list[list[Any]], last: str, settings: dict[str, Any]
) -> None:
    if "reasoning_effort" in settings:
        settings.pop("temperature", None)
    conversation = [*system, *(message for turn in turns for message in turn), {"role": "user", "content": last}]
    asked = {"model": "m", "max_completion_tokens": 5, "messages": conversation, **settings}
    there = from_chat(raw(asked))
    back = to_chat(there.fields)
    assert said(back) == asked
    assert not any(not loss.hint for loss in (*there.losses, *back.losses))


def test_thoughts_that_nobody_signed_do_not_go_to_messages() -> None:
    unsigned = {"type": "thinking", "thinking": "hm", "signature": ""}
    signed = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    text = {"type": "text", "text": 'I wrote "signature":""'}
    turns = [
        *ASK,
        {"role": "assistant", "content": [unsigned, signed, text]},
        *ASK,
        {"role": "assistant", "content": [unsigned]},
        *ASK,
    ]
    wording = without_unsigned_thoughts(raw({"model": "m", "messages": turns}))
    kept = {"role": "assistant", "content": [signed, text]}
    assert said(wording) == {"model": "m", "messages": [*ASK, kept, *ASK, *ASK]}
    assert lost(wording) == {"messages[1].content[0]": True, "messages[3].content[0]": True}


def test_a_request_without_such_thoughts_keeps_its_bytes() -> None:
    for content in ("Hi", 'I wrote "signature":""', [{"type": "text", "text": "x", "signature": ""}]):
        fields = {"messages": msgspec.Raw(b" " + msgspec.json.encode([{"role": "user", "content": content}]))}
        assert without_unsigned_thoughts(fields).fields is fields


def test_a_loss_says_why() -> None:
    assert [loss.reason for loss in chat_of(top_k=5, speed="fast", other=1).losses] == [
        "chat has no top_k",
        "chat has no fast mode",
        "chat has no such field",
    ]


def test_tools_and_choices_that_messages_does_not_have_are_losses() -> None:
    function = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    custom = {"type": "custom", "custom": {"name": "g"}}
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function"}]}}
    wording = messages_of(tools=[custom, function], tool_choice=allowed)
    assert said(wording)["tools"] == [{"name": "f", "input_schema": {"type": "object"}}]
    assert lost(wording) == {"tools[0]": False, "tool_choice": False}


def test_an_answer_sent_back_as_the_sdk_had_it_is_said_without_loss() -> None:
    answer: dict[str, Any] = {
        "role": "assistant",
        "content": "A",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "tool_calls": None,
    }
    wording = messages_of(messages=[*ASK, answer, *ASK])
    assert said(wording)["messages"] == [*ASK, {"role": "assistant", "content": "A"}, *ASK]
    assert wording.losses == ()
    cited = messages_of(messages=[*ASK, {**answer, "annotations": [{"type": "url_citation"}]}, *ASK])
    assert lost(cited) == {"messages[1].annotations": False}


def test_a_user_who_says_nothing_is_malformed() -> None:
    with pytest.raises(Malformed, match=r"messages\[0\].content: Field required"):
        to_chat(raw({"messages": [{"role": "user"}], "max_tokens": 5}))


def test_the_note_for_anthropics_bill_is_no_part_of_the_prompt() -> None:
    note = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=abc12;"}
    wording = chat_of(system=[note, {"type": "text", "text": "Be brief."}])
    assert said(wording)["messages"] == [{"role": "system", "content": "Be brief."}, *ASK]
    assert lost(wording) == {"system[0]": True}
    assert said(chat_of(system=[note]))["messages"] == ASK


@pytest.mark.parametrize(
    "text", ["Never write x-anthropic-billing-header: a", "x-anthropic-billing-header: a\nBe brief."]
)
def test_a_prompt_that_says_more_than_whom_to_bill_is_kept(text: str) -> None:
    wording = chat_of(system=[{"type": "text", "text": text}])
    assert said(wording)["messages"] == [{"role": "system", "content": text}, *ASK]
    assert lost(wording) == {}


def test_a_system_prompt_without_text_is_not_said() -> None:
    assert said(chat_of(system=[]))["messages"] == ASK


def test_top_k_which_servers_of_open_models_take_is_said_without_loss() -> None:
    wording = messages_of(top_k=5)
    assert (said(wording)["top_k"], lost(wording)) == (5, {})


def test_a_picture_called_jpg_is_a_jpeg() -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/jpg;base64,aGk="}}
    wording = messages_of(messages=[{"role": "user", "content": [part]}])
    source = {"type": "base64", "media_type": "image/jpeg", "data": "aGk="}
    assert said(wording)["messages"][0]["content"] == [{"type": "image", "source": source}]
    assert lost(wording) == {}
