"""Tools in namespaces, asked of a model that speaks chat: one name there, and the namespace again in the answer."""

from typing import Any

import msgspec
import pytest
from openai.types.responses import ResponseCustomToolCall, ResponseFunctionToolCall

from providers.bodies import events
from providers.dialects import Malformed
from providers.dialects.responses.request_to_chat import to_chat
from providers.dialects.responses.stream_from_chat import FromChat
from providers.dialects.wording import flat_name

AGENTS = {
    "type": "namespace",
    "name": "agents",
    "description": "Other agents.",
    "tools": [
        {"type": "function", "name": "spawn", "description": "Start one.", "parameters": {"type": "object"}},
        {"type": "function", "name": "wait", "description": "Wait for one.", "parameters": {"type": "object"}},
        {"type": "custom", "name": "patch"},
    ],
}
PLAIN = {"type": "function", "name": "spawn", "parameters": {"type": "object"}}
ASKED = {"model": "m", "input": "hi", "tools": [PLAIN, AGENTS]}


def raw(fields: dict[str, Any]) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}


def answered(kind: str, name: str, argument: str) -> list[dict[str, Any]]:
    """Return the events of a chat answer that calls one tool."""
    call = {"index": 0, "id": "c", "type": kind, kind: {"name": name, argument: "{}"}}
    choice = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    said = FromChat(raw(ASKED)).feed(b"data: " + msgspec.json.encode(chunk) + b"\n\ndata: [DONE]\n\n")
    return [msgspec.json.decode(event.data) for event in events(said)]


def test_the_tools_of_a_namespace_have_names_that_say_both() -> None:
    wording = to_chat(raw(ASKED))
    tools = msgspec.json.decode(wording.fields["tools"])
    assert [tool[tool["type"]]["name"] for tool in tools] == ["spawn", "agents__spawn", "agents__wait", "agents__patch"]
    assert wording.losses == ()


def test_what_a_namespace_says_of_itself_is_told_once() -> None:
    tools = msgspec.json.decode(to_chat(raw(ASKED)).fields["tools"])
    said = [tool[tool["type"]].get("description") for tool in tools]
    assert said == [None, "Start one.\n\nAll agents tools: Other agents.", "Wait for one.", None]


@pytest.mark.parametrize(
    ("kind", "argument", "name", "model"),
    [
        ("function", "arguments", "wait", ResponseFunctionToolCall),
        ("custom", "input", "patch", ResponseCustomToolCall),
    ],
)
def test_a_call_of_a_tool_in_a_namespace_names_it_as_the_client_does(
    kind: str, argument: str, name: str, model: type[ResponseFunctionToolCall | ResponseCustomToolCall]
) -> None:
    told = answered(kind, f"agents__{name}", argument)
    items = [event["item"] for event in told if "item" in event] + told[-1]["response"]["output"]
    assert len(items) == len(("added", "done", "completed"))
    for item in items:
        call = model.model_validate(item)
        assert (call.namespace, call.name) == ("agents", name)
    assert [event["name"] for event in told if "name" in event] == ([name] if kind == "function" else [])


def test_a_call_of_a_plain_tool_has_no_namespace() -> None:
    told = answered("function", "spawn", "arguments")
    assert all("namespace" not in event["item"] for event in told if "item" in event)


def test_earlier_calls_have_the_names_the_tools_have() -> None:
    call = {"type": "function_call", "call_id": "c", "namespace": "agents", "name": "wait", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "namespace": "agents", "name": "wait", "output": "done"}
    wording = to_chat(raw({**ASKED, "input": [call, result]}))
    asked, answer = msgspec.json.decode(wording.fields["messages"])
    assert asked["tool_calls"][0]["function"] == {"name": "agents__wait", "arguments": "{}"}
    assert answer == {"role": "tool", "tool_call_id": "c", "content": "done"}
    assert wording.losses == ()


def test_a_namespace_that_ends_in_underscores_gets_no_more_of_them() -> None:
    assert flat_name("mcp__files__", "read") == "mcp__files__read"


@pytest.mark.parametrize("others", [("a.b", "c"), ("a", "c" * 70), ("n" * 64, "c")])
def test_names_that_no_api_takes_are_changed_and_stay_apart(others: tuple[str, str]) -> None:
    name = flat_name(*others)
    assert len(name) <= 64
    assert name.replace("_", "").isalnum()
    assert name == flat_name(*others)
    assert name != flat_name(others[0], others[1] + "x")


@pytest.mark.parametrize(
    ("namespace", "param"),
    [
        ({"tools": []}, "tools[0].name"),
        ({"name": "n"}, "tools[0].tools"),
        ({"name": "n", "tools": [{"type": "function"}]}, "tools[0].tools[0].name"),
        ({"name": "n", "tools": 1}, "tools[0].tools"),
    ],
)
def test_a_namespace_without_what_it_needs_is_malformed(namespace: dict[str, Any], param: str) -> None:
    with pytest.raises(Malformed) as caught:
        to_chat(raw({"input": "x", "tools": [{"type": "namespace", **namespace}]}))
    assert caught.value.param == param
