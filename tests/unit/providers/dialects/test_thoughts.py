"""Thoughts of a chat model that are sent back to it: some vendors refuse a call without what led to it."""

from typing import Any

import msgspec
import pytest

from providers import load_catalog
from providers.dialects import CHAT, GEMINI, MESSAGES, RESPONSES, Dialect, Habits, Wording, rendered

THINKS = Habits(takes_thoughts=True)


def wording(source: Dialect, habits: Habits, **fields: Any) -> Wording:
    raw = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in {"model": "m", **fields}.items()}
    return rendered(raw, source, CHAT, habits)


def said(one: Wording) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = msgspec.json.decode(one.fields["messages"])
    return messages


def thought(text: str, signature: str = "") -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": signature}


USE = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
TURNS = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": [thought("I should look."), USE]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]},
]
UNSIGNED_TURN = {"role": "assistant", "content": [thought("I should look.", "google-text:"), USE]}
ITEMS = [
    {"role": "user", "content": "Hi"},
    {"type": "reasoning", "id": "rs_translated_0", "summary": [{"type": "summary_text", "text": "I should look."}]},
    {"type": "function_call", "call_id": "t", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "t", "output": "x"},
]
ASKED: list[tuple[Dialect, dict[str, Any]]] = [
    (MESSAGES, {"max_tokens": 9, "messages": TURNS}),
    (MESSAGES, {"max_tokens": 9, "messages": [TURNS[0], UNSIGNED_TURN, TURNS[2]]}),
    (RESPONSES, {"input": ITEMS}),
]


@pytest.mark.parametrize(("source", "fields"), ASKED)
def test_a_model_that_wants_its_thoughts_back_gets_them_with_the_calls_they_led_to(
    source: Dialect, fields: dict[str, Any]
) -> None:
    one = wording(source, THINKS, **fields)
    _, call, _ = said(one)
    assert (call["reasoning_content"], call["tool_calls"][0]["id"]) == ("I should look.", "t")
    assert one.losses == ()


@pytest.mark.parametrize(("source", "fields"), ASKED)
def test_any_other_model_gets_none(source: Dialect, fields: dict[str, Any]) -> None:
    one = wording(source, Habits(), **fields)
    assert all("reasoning_content" not in message for message in said(one))
    assert [loss.hint for loss in one.losses] == [True]


def test_thoughts_between_what_the_assistant_says_and_does_are_of_the_same_message() -> None:
    text = {"type": "message", "role": "assistant", "content": "Wait."}
    more = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Both."}]}
    _, message, _ = said(wording(RESPONSES, THINKS, input=[*ITEMS[:2], text, more, *ITEMS[2:]]))
    assert (message["content"], message["reasoning_content"]) == ("Wait.", "I should look.\n\nBoth.")


@pytest.mark.parametrize(
    ("source", "fields"),
    [
        (MESSAGES, {"max_tokens": 9, "messages": [{"role": "assistant", "content": [thought("a")]}, TURNS[0]]}),
        (RESPONSES, {"input": [ITEMS[1], ITEMS[0]]}),
        (RESPONSES, {"input": [{"type": "reasoning", "summary": [], "encrypted_content": "e"}, ITEMS[0]]}),
    ],
)
def test_thoughts_that_led_to_nothing_are_left_out_with_a_hint(source: Dialect, fields: dict[str, Any]) -> None:
    one = wording(source, THINKS, **fields)
    assert said(one) == [{"role": "user", "content": "Hi"}]
    assert [loss.hint for loss in one.losses] == [True]


def test_the_catalog_knows_who_refuses_calls_without_thoughts() -> None:
    assert {name for name, vendor in load_catalog().items() if vendor.quirks.habits.takes_thoughts} == {
        "deepseek",
        "moonshot",
    }


@pytest.mark.parametrize(
    ("source", "fields", "field"),
    [
        (
            MESSAGES,
            {"max_tokens": 9, "messages": TURNS[:1], "output_config": {"effort": "high"}},
            "thinking",
        ),
        (RESPONSES, {"input": "Hi", "reasoning": {"effort": "high"}}, "reasoning.effort"),
    ],
)
def test_a_model_that_does_not_think_is_not_told_how_hard(source: Dialect, fields: dict[str, Any], field: str) -> None:
    one = wording(source, Habits(thinks=False), **fields)
    assert "reasoning_effort" not in one.fields
    assert [(loss.field, loss.hint) for loss in one.losses] == [(field, True)]
    assert "reasoning_effort" in wording(source, Habits(), **fields).fields


@pytest.mark.parametrize("target", [MESSAGES, RESPONSES, GEMINI])
def test_what_another_model_has_added_to_its_calls_keeps_nobody_out(target: Dialect) -> None:
    signed = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}, **signed}
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [call], "thinking_blocks": [thought("Hm")], **signed},
        {"role": "tool", "tool_call_id": "c", "name": "f", "content": "x"},
    ]
    raw = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in {"model": "m", "messages": turns}.items()}
    losses = rendered(raw, CHAT, target, Habits()).losses
    assert losses
    assert all(loss.hint for loss in losses)
