"""Requests that Messages and chat both say without loss: what is said on both sides."""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.dialects.messages.request_from_chat import from_chat
from providers.dialects.messages.request_to_chat import to_chat
from tests.unit.providers.dialects.inside.messages_wordings import (
    ASK,
    MARK,
    PDF,
    PNG,
    SCHEMA,
    call,
    chat_of,
    lost,
    messages_of,
    raw,
    said,
)

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
                        {"type": "tool_result", "tool_use_id": "b", "content": "2"},
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
            {"role": "tool", "tool_call_id": "b", "content": "2"},
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


def test_cache_markers_in_chat_are_those_of_messages() -> None:
    part = {"type": "text", "text": "x", "cache_control": MARK}
    tool = {"type": "function", "function": {"name": "f"}, "cache_control": MARK}
    wording = messages_of(messages=[{"role": "user", "content": [part]}], tools=[tool])
    assert said(wording)["messages"] == [{"role": "user", "content": [part]}]
    assert said(wording)["tools"] == [{"name": "f", "input_schema": {"type": "object"}, "cache_control": MARK}]
    assert wording.losses == ()


def test_a_system_message_among_the_turns_is_one_of_chat_too() -> None:
    late = {"role": "system", "content": "Now in French."}
    assert said(chat_of(messages=[*ASK, late]))["messages"] == [*ASK, late]


def test_an_assistants_last_message_is_a_loss_in_both_directions() -> None:
    begun = [*ASK, {"role": "assistant", "content": "The answer is ("}]
    assert lost(chat_of(messages=begun)) == {"messages[1]": False}
    assert lost(messages_of(messages=begun)) == {"messages[1]": False}


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
    calls = draw(st.lists(st.builds(call, NAME, NAME, ARGUMENTS), max_size=3, unique_by=lambda one: one["id"]))
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
            "user": st.text(max_size=64).filter(
                lambda name: not re.search(r"[@\d\s().-]", name)
            ),  # tells nobody who it is
            "reasoning_effort": st.sampled_from(["low", "medium", "high", "xhigh", "max"]),
        },
    ),
)
def test_chat_comes_back_from_messages_as_it_was(
    system: list[Any], turns: list[list[Any]], last: str, settings: dict[str, Any]
) -> None:
    if "reasoning_effort" in settings:
        settings.pop("temperature", None)
    for number, turn in enumerate(turns):  # Messages takes an id once
        for one in turn:
            for called in one.get("tool_calls", ()):
                called["id"] = f"{number}_{called['id']}"
            if "tool_call_id" in one:
                one["tool_call_id"] = f"{number}_{one['tool_call_id']}"
    conversation = [*system, *(message for turn in turns for message in turn), {"role": "user", "content": last}]
    asked = {"model": "m", "max_completion_tokens": 5, "messages": conversation, **settings}
    there = from_chat(raw(asked))
    back = to_chat(there.fields)
    assert said(back) == asked
    assert not any(not loss.hint for loss in (*there.losses, *back.losses))


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
