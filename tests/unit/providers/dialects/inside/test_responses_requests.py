"""Requests rendered as Responses and as chat completions, and what is lost between the two."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.dialects import Malformed, Wording
from providers.dialects.responses.request_from_chat import from_chat
from providers.dialects.responses.request_to_chat import to_chat

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1.50}}}
IMAGE = "data:image/png;base64,AAAA"


def raw(fields: dict[str, Any]) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}


def said(wording: Wording) -> dict[str, Any]:
    return {name: msgspec.json.decode(value) for name, value in wording.fields.items()}


def lost(wording: Wording) -> list[str]:
    return [loss.field for loss in wording.losses if not loss.hint]


def hinted(wording: Wording) -> list[str]:
    return [loss.field for loss in wording.losses if loss.hint]


# What both say, as (name, Responses, chat): each is the other's wording, with nothing lost either way.
ASSISTANT = {"type": "message", "role": "assistant"}
SAME: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "instructions and roles",
        {
            "instructions": "be brief",
            "input": [
                {"type": "message", "role": "developer", "content": "and kind"},
                {"type": "message", "role": "user", "content": "hi"},
                {**ASSISTANT, "content": "hello"},
                {"type": "message", "role": "user", "content": "bye"},
            ],
        },
        {
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "developer", "content": "and kind"},
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": "hello"},
                {"role": "user", "content": "bye"},
            ]
        },
    ),
    (
        "parts",
        {
            "input": [
                {
                    "type": "message",
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "see", "prompt_cache_breakpoint": {"mode": "explicit"}},
                        {"type": "input_image", "image_url": IMAGE, "detail": "low"},
                        {"type": "input_file", "file_data": "QUJD", "filename": "a.pdf"},
                    ],
                }
            ]
        },
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "see", "prompt_cache_breakpoint": {"mode": "explicit"}},
                        {"type": "image_url", "image_url": {"url": IMAGE, "detail": "low"}},
                        {"type": "file", "file": {"file_data": "QUJD", "filename": "a.pdf"}},
                    ],
                }
            ]
        },
    ),
    (
        "parallel calls, of functions and of custom tools, and their results",
        {
            "input": [
                {**ASSISTANT, "content": "Looking."},
                {"type": "function_call", "call_id": "a", "name": "f", "arguments": '{"x":1}'},
                {"type": "custom_tool_call", "call_id": "b", "name": "sql", "input": "SELECT 1"},
                {"type": "function_call_output", "call_id": "a", "output": "one"},
                {"type": "custom_tool_call_output", "call_id": "b", "output": "two"},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "three"},
            ]
        },
        {
            "messages": [
                {
                    "role": "assistant",
                    "content": "Looking.",
                    "tool_calls": [
                        {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
                        {"id": "b", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}},
                    ],
                },
                {"role": "tool", "tool_call_id": "a", "content": "one"},
                {"role": "tool", "tool_call_id": "b", "content": "two"},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                },
                {"role": "tool", "tool_call_id": "c", "content": "three"},
            ]
        },
    ),
    (
        "a refusal",
        {"input": [{**ASSISTANT, "content": [{"type": "refusal", "refusal": "No."}]}]},
        {"messages": [{"role": "assistant", "content": None, "refusal": "No."}]},
    ),
    (
        "tools and the choice of one",
        {
            "tools": [
                {"type": "function", "name": "f", "description": "d", "parameters": SCHEMA, "strict": True},
                {"type": "custom", "name": "g", "format": {"type": "grammar", "definition": "x", "syntax": "lark"}},
            ],
            "tool_choice": {"type": "function", "name": "f"},
            "parallel_tool_calls": False,
        },
        {
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True},
                },
                {
                    "type": "custom",
                    "custom": {
                        "name": "g",
                        "format": {"type": "grammar", "grammar": {"definition": "x", "syntax": "lark"}},
                    },
                },
            ],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "parallel_tool_calls": False,
        },
    ),
    (
        "a choice among some tools",
        {
            "tools": [{"type": "custom", "name": "g"}],
            "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "g"}]},
        },
        {
            "tools": [{"type": "custom", "custom": {"name": "g"}}],
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [{"type": "custom", "custom": {"name": "g"}}]},
            },
        },
    ),
    (
        "structured output, verbosity and effort",
        {
            "text": {
                "format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True},
                "verbosity": "low",
            },
            "reasoning": {"effort": "minimal"},
        },
        {
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}},
            "verbosity": "low",
            "reasoning_effort": "minimal",
        },
    ),
    ("any JSON", {"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
    (
        "log probabilities",
        {"include": ["message.output_text.logprobs"], "top_logprobs": 3},
        {"logprobs": True, "top_logprobs": 3},
    ),
    ("a limit", {"max_output_tokens": 100}, {"max_completion_tokens": 100}),
    (
        "what has one name in both",
        shared := {
            "stream": True,
            "temperature": 0.5,
            "top_p": 0.9,
            "metadata": {"a": "b"},
            "user": "u",
            "safety_identifier": "s",
            "prompt_cache_key": "k",
            "prompt_cache_retention": "24h",
            "service_tier": "flex",
        },
        shared,
    ),
]


@pytest.mark.parametrize(("responses", "chat"), [pair[1:] for pair in SAME], ids=[pair[0] for pair in SAME])
def test_both_apis_say_it_with_nothing_lost(responses: dict[str, Any], chat: dict[str, Any]) -> None:
    responses = {"model": "m", "store": False, "input": [], **responses}
    chat = {"model": "m", "messages": [], **chat}
    there, back = to_chat(raw(responses)), from_chat(raw(chat))
    assert said(there) == chat
    assert said(back) == responses
    assert (there.losses, back.losses) == ((), ())


def test_numbers_and_schemas_keep_their_bytes() -> None:
    tools = b'[{"type":"function","name":"f","parameters":{"maximum": 1.50e1, "big": 123456789012345678901234567890}}]'
    wording = to_chat({"input": msgspec.Raw(b'"x"'), "tools": msgspec.Raw(tools)})
    assert b'{"maximum": 1.50e1, "big": 123456789012345678901234567890}' in bytes(wording.fields["tools"])


def messages(*items: dict[str, Any]) -> Any:
    return said(to_chat(raw({"input": list(items)})))["messages"]


def test_an_input_that_is_a_string_is_the_users_message() -> None:
    assert said(to_chat(raw({"input": "hi"})))["messages"] == [{"role": "user", "content": "hi"}]


def test_what_the_sdk_replays_of_an_earlier_answer_is_one_message_without_names_and_states() -> None:
    items = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        {
            "type": "message",
            "id": "msg_1",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Hm.", "annotations": [], "logprobs": []}],
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "status": "completed",
            "call_id": "a",
            "name": "f",
            "arguments": "{}",
        },
    ]
    wording = to_chat(raw({"input": items}))
    called = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert said(wording)["messages"] == [{"role": "assistant", "content": "Hm.", "tool_calls": [called]}]
    assert (lost(wording), hinted(wording)) == ([], ["input[0]"])


def test_what_the_assistant_says_after_a_call_stays_with_it_so_that_the_result_follows() -> None:
    call = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "1"}]}
    answer = {"role": "assistant", "content": "Wait."}
    assert [(one["role"], one.get("content")) for one in messages(call, answer, result, answer)] == [
        ("assistant", "Wait."),
        ("tool", "1"),
        ("assistant", "Wait."),
    ]
    more = {"type": "text", "text": "Wait."}
    assert messages(answer, call, answer, result)[0]["content"] == [more, more]


def test_facts_that_only_servers_state_say_nothing() -> None:
    call = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}", "caller": {"type": "direct"}}
    assert to_chat(raw({"input": [{**call, "id": "fc_1", "status": "completed"}]})).losses == ()
    plain = {"type": "function", "name": "f", "allowed_callers": ["direct"], "defer_loading": False}
    assert to_chat(raw({"input": "x", "tools": [plain]})).losses == ()


def test_a_text_and_a_refusal_stay_in_one_answer() -> None:
    parts = [{"type": "text", "text": "Well."}, {"type": "refusal", "refusal": "No."}]
    there = said(from_chat(raw({"messages": [{"role": "assistant", "content": parts}]})))["input"]
    assert (
        there
        == said(from_chat(raw({"messages": [{"role": "assistant", "content": "Well.", "refusal": "No."}]})))["input"]
    )
    assert messages(*there) == [{"role": "assistant", "content": parts}]


def test_a_chat_function_without_strict_is_not_made_strict_by_responses() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]
    assert said(from_chat(raw({"messages": [], "tools": tools})))["tools"][0]["strict"] is False


def test_a_chat_completion_is_never_stored_as_a_response() -> None:
    wording = from_chat(raw({"messages": [], "store": True}))
    assert said(wording)["store"] is False
    assert lost(wording) == ["store"]


@pytest.mark.parametrize(
    ("translate", "asked", "param"),
    [
        (to_chat, {"model": "m"}, "input"),
        (to_chat, {"input": 5}, "input"),
        (to_chat, {"input": [{"role": "user"}]}, "input[0].content"),
        (to_chat, {"input": [{"type": "message", "content": "x"}]}, "input[0].role"),
        (to_chat, {"input": [{"role": "nobody", "content": "x"}]}, "input[0].role"),
        (to_chat, {"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[0].call_id"),
        (to_chat, {"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
        (to_chat, {"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0].file_data"),
        (to_chat, {"input": "x", "tools": [{"name": "f"}]}, "tools[0].type"),
        (to_chat, {"input": "x", "instructions": ["a"]}, "instructions"),
        (to_chat, {"input": "x", "text": "json"}, "text"),
        (from_chat, {"model": "m"}, "messages"),
        (from_chat, {"messages": "x"}, "messages"),
        (from_chat, {"messages": [{"content": "x"}]}, "messages[0].role"),
        (from_chat, {"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        (from_chat, {"messages": [], "max_tokens": "many"}, "max_tokens"),
    ],
)
def test_a_malformed_request_is_named_by_its_path(translate: Any, asked: dict[str, Any], param: str) -> None:
    with pytest.raises(Malformed) as caught:
        translate(raw(asked))
    assert caught.value.param == param


texts = st.text(max_size=6)
calls = st.lists(st.tuples(st.sampled_from("fg"), st.sampled_from(["{}", "[7]", "{"])), min_size=1, max_size=3)
turns = st.lists(
    st.one_of(st.tuples(st.just("user"), texts), st.tuples(st.just("calls"), st.tuples(texts, calls))), max_size=6
)


@given(system=st.none() | texts, turns=turns)
def test_a_conversation_comes_back_from_responses_as_it_was(system: str | None, turns: list[Any]) -> None:
    chat: list[dict[str, Any]] = [] if system is None else [{"role": "system", "content": system}]
    for number, (kind, turn) in enumerate(turns):
        if kind == "user":
            chat += [{"role": "user", "content": turn}, {"role": "assistant", "content": turn}]
            continue
        text, made = turn
        ids = [f"call_{number}_{i}" for i in range(len(made))]
        named = [
            {"id": one, "type": "function", "function": {"name": name, "arguments": arguments}}
            for one, (name, arguments) in zip(ids, made, strict=True)
        ]
        chat.append({"role": "user", "content": "go on"})
        chat.append({"role": "assistant", "content": text or None, "tool_calls": named})
        chat += [{"role": "tool", "tool_call_id": one, "content": text} for one in ids]
    there = from_chat(raw({"messages": chat}))
    back = to_chat(there.fields)
    assert said(back)["messages"] == chat
    assert (*there.losses, *back.losses) == ()


def test_markers_for_prompt_caches_keep_nobody_out() -> None:
    part = {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}
    wording = from_chat(raw({"messages": [{"role": "user", "content": [part]}]}))
    assert [(loss.field, loss.hint) for loss in wording.losses] == [("messages[0].content[0].cache_control", True)]


def test_what_a_client_tells_of_itself_keeps_nobody_out() -> None:
    wording = to_chat(raw({"input": "Hi", "client_metadata": {"x-agent": "1"}}))
    assert [(loss.field, loss.hint) for loss in wording.losses] == [("client_metadata", True)]


def test_an_earlier_call_without_arguments_has_none_in_json() -> None:
    item = {"type": "function_call", "call_id": "a", "name": "f", "arguments": ""}
    message = said(to_chat(raw({"input": [item]})))["messages"][0]
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}


def test_tools_that_the_input_adds_are_among_the_request_s() -> None:
    """Codex may have all of its tools there."""
    shell = {"type": "function", "name": "shell", "parameters": {"type": "object", "properties": {}}}
    wait = {"type": "namespace", "name": "team", "tools": [{"type": "function", "name": "wait"}]}
    items = [{"type": "additional_tools", "id": "at_1", "role": "developer", "tools": [shell, wait]}]
    items.append({"role": "user", "content": 'Say "additional_tools".'})
    wording = to_chat(raw({"model": "m", "input": items, "tools": None, "tool_choice": "auto"}))
    assert [tool["function"]["name"] for tool in said(wording)["tools"]] == ["shell", "team__wait"]
    assert said(wording)["messages"] == items[1:]
    assert not wording.losses
    more = to_chat(raw({"model": "m", "input": items, "tools": [{"type": "function", "name": "own"}]}))
    assert [tool["function"]["name"] for tool in said(more)["tools"]] == ["own", "shell", "team__wait"]


def test_a_result_of_several_texts_is_one() -> None:
    texts = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    items = [
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": texts},
    ]
    assert said(to_chat(raw({"model": "m", "input": items})))["messages"][-1]["content"] == "a\n\nb"
