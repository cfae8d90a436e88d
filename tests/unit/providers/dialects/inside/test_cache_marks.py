"""What is marked for vendors' caches where a client marks nothing, and what is left as it is."""

import json
from math import inf
from typing import Any

import msgspec
import pytest

from providers.dialects import LastingPart, converse_from_chat
from providers.dialects.cache_marks import with_breakpoints, with_marks
from providers.models import traits_of

LONG = "Be brief and polite. " * 250  # 5 KB
ALL = LastingPart(inf, goes_on=True)
BEGINNING = LastingPart(inf, goes_on=False)
TOOL = {"name": "look", "input_schema": {"type": "object", "description": LONG}}


def said(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def raw(**body: Any) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(json.dumps(value).encode()) for name, value in body.items()}


def marked(lasting: LastingPart = ALL, least: int = 1024, **body: Any) -> dict[str, Any]:
    found = with_marks(raw(**body), least, lasting)
    return {name: json.loads(bytes(value)) for name, value in found.items()}


def places(value: Any, at: str = "") -> list[str]:
    """Return where the marks are."""
    if isinstance(value, dict):
        own = [at] if "cache_control" in value else []
        return own + [place for name, each in value.items() for place in places(each, f"{at}.{name}")]
    if isinstance(value, list):
        return [place for number, each in enumerate(value) for place in places(each, f"{at}[{number}]")]
    return []


TURNS = [
    said("user", "One"),
    said("assistant", [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]),
    said("user", [{"type": "tool_result", "tool_use_id": "a", "content": "x"}, {"type": "text", "text": "Two"}]),
    said("assistant", "Yes"),
    said("user", "Three"),
]


def test_tools_system_and_the_last_two_turns_are_marked() -> None:
    found = marked(tools=[TOOL, TOOL], system=LONG, messages=TURNS, max_tokens=9)
    assert places(found) == [
        ".tools[1]", ".system[0]", ".messages[2].content[1]", ".messages[4].content[0]",
    ]  # fmt: skip
    assert found["messages"][4]["content"][0] == {
        "type": "text",
        "text": "Three",
        "cache_control": {"type": "ephemeral"},
    }
    assert found["messages"][:2] == TURNS[:2]


def test_a_first_turn_has_its_beginning_marked_alone() -> None:
    blocks = [{"type": "text", "text": "You are an agent."}, {"type": "text", "text": LONG}]
    assert places(marked(BEGINNING, system=blocks, messages=TURNS[:1])) == [".system[1]"]


@pytest.mark.parametrize(
    ("below", "expected"), [(4096.0, []), (8192.0, [".tools[0]"]), (16_384.0, [".tools[0]", ".system[0]"])]
)
def test_what_was_not_asked_before_is_not_marked(below: float, expected: list[str]) -> None:
    found = marked(LastingPart(below, goes_on=False), tools=[TOOL], system=LONG, messages=TURNS[:1])
    assert places(found) == expected


def test_shorter_beginnings_than_the_vendor_caches_are_not_marked() -> None:
    assert places(marked(least=4096, tools=[TOOL], system=LONG, messages=TURNS)) == []
    long_turns = [*TURNS, said("assistant", LONG * 2), said("user", "Four")]
    assert places(marked(least=4096, tools=[TOOL], system=LONG, messages=long_turns)) == [".messages[6].content[0]"]


@pytest.mark.parametrize(
    "body",
    [
        {"cache_control": {"type": "ephemeral"}, "system": LONG, "messages": TURNS},
        {"system": [{"type": "text", "text": LONG, "cache_control": {"type": "ephemeral"}}], "messages": TURNS},
        {"tools": [{**TOOL, "cache_control": {"type": "ephemeral"}}], "messages": TURNS},
        {"system": LONG},
        {"system": LONG, "messages": "no turns"},
        {"system": {"a": LONG}, "messages": TURNS},
        {"tools": {"a": LONG}, "system": LONG, "messages": TURNS},
        {"tools": [5] * 9999, "messages": TURNS},
        {"system": LONG, "messages": [5]},
    ],
)
def test_a_clients_own_marks_and_what_is_malformed_are_left_alone(body: dict[str, Any]) -> None:
    fields = raw(**body)
    assert {name: bytes(each) for name, each in with_marks(fields, 1024, ALL).items()} == {
        name: bytes(each) for name, each in fields.items()
    }


def test_text_about_marks_is_no_mark() -> None:
    assert places(marked(BEGINNING, system=f'{LONG} "cache_control"', messages=TURNS[:1])) == [".system[0]"]


def test_what_can_have_no_mark_has_none() -> None:
    turns = [*TURNS[:4], said("user", [{"type": "text", "text": " "}])]
    deferred = {**TOOL, "defer_loading": True}
    assert places(marked(tools=[deferred], system=" ", messages=turns)) == [".messages[2].content[1]"]
    assert places(marked(tools=[], system=[], messages=[said("user", LONG), said("assistant", "{")])) == [
        ".messages[0].content[0]"
    ]


def test_in_chat_the_marks_become_converses() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    function = {"name": "look", "parameters": {"type": "object", "description": LONG}}
    turns = [
        said("system", LONG),
        said("developer", "Always."),
        said("user", "One"),
        {"role": "assistant", "tool_calls": [call, {**call, "id": "b"}]},
        {"role": "tool", "tool_call_id": "a", "content": "x"},
        {"role": "tool", "tool_call_id": "b", "content": "y"},
        said("assistant", "Yes"),
        said("user", [{"type": "text", "text": "Two"}]),
    ]
    fields = with_marks(raw(tools=[{"type": "function", "function": function}], messages=turns), 1024, ALL)
    found = {name: json.loads(bytes(each)) for name, each in fields.items()}
    assert places(found) == [".tools[0]", ".messages[1].content[0]", ".messages[5]", ".messages[7].content[0]"]
    wording = converse_from_chat(fields, "us.anthropic.claude-sonnet-4-5")
    assert wording.losses == ()
    sent = json.loads(msgspec.json.encode(wording.fields))
    assert json.dumps(sent).count('"cachePoint"') == 4
    point = {"cachePoint": {"type": "default"}}
    assert [sent["system"][-1], sent["toolConfig"]["tools"][-1]] == [point] * 2
    assert [turn["content"][-1] for turn in sent["messages"] if turn["role"] == "user"][1:] == [point] * 2


@pytest.mark.parametrize(
    ("model", "least"),
    [
        ("claude-haiku-4-5", 4096),
        ("us.anthropic.claude-opus-4-6-v1", 4096),
        ("claude-opus-4-7", 2048),
        ("claude-3-5-haiku-20241022", 2048),
        ("claude-opus-5", 512),
        ("claude-sonnet-4-5", 1024),
        ("claude-opus-4-8", 1024),
    ],
)
def test_each_model_has_its_least(model: str, least: int) -> None:
    assert traits_of(model).marks_from == least


BREAK = {"mode": "explicit"}
LED = [said("system", LONG), said("user", "One")]


@pytest.mark.parametrize(
    ("body", "content"),
    [
        ({"messages": LED}, [{"type": "text", "text": LONG, "prompt_cache_breakpoint": BREAK}]),
        (
            {"input": [said("developer", [{"type": "input_text", "text": LONG}]), said("user", "One")]},
            [{"type": "input_text", "text": LONG, "prompt_cache_breakpoint": BREAK}],
        ),
        (
            {"input": [said("developer", LONG)]},
            [{"type": "input_text", "text": LONG, "prompt_cache_breakpoint": BREAK}],
        ),
        ({"messages": LED, "prompt_cache_options": {"mode": "explicit"}}, LONG),
        ({"messages": [*LED, said("user", [{"type": "text", "text": "x", "prompt_cache_breakpoint": BREAK}])]}, LONG),
        ({"messages": [said("system", "Short."), said("user", LONG)]}, "Short."),
        ({"messages": [said("user", LONG)]}, LONG),
        ({"messages": [said("system", []), said("user", LONG)], "tools": [TOOL]}, []),
    ],
)
def test_openais_mark_stands_behind_the_instructions(body: dict[str, Any], content: Any) -> None:
    found = with_breakpoints(raw(**body), 1024, ALL)
    [turn, *_] = json.loads(bytes(found.get("messages") or found["input"]))
    assert turn["content"] == content
    assert with_breakpoints(raw(**body), 1024, LastingPart(10, goes_on=True)) == raw(**body)


def test_an_input_that_is_a_text_has_no_mark() -> None:
    body = raw(input="One", instructions=LONG)
    assert with_breakpoints(body, 1024, ALL) == body


def test_gpt_from_5_6_on_takes_marks_at_openai_while_its_reasoning_is_not_bound_to_what_is_before_it() -> None:
    names = ("gpt-5.5", "gpt-5.6-sol", "gpt-6-astra", "gpt-6.1-terra", "gpt-6.2-sol")
    assert [traits_of(name, "openai").breakpoints for name in names] == [False, True, True, True, False]
    assert not traits_of("gpt-5.6", "openrouter").breakpoints
