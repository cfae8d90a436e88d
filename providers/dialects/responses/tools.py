"""Translates tools and tool_choice: flat in Responses, nested in an object named by the type in chat completions."""

from typing import Any

import msgspec

from providers.dialects.responses.fields import Fields, Losses, Object, is_string, objects_of
from providers.dialects.responses.namespaces import opened
from providers.dialects.wording import Malformed, decoded

_FALSE = msgspec.Raw(b"false")
_NO_SUCH_FIELD = "the other API has no such field in a tool"


def chat_tools(raw: msgspec.Raw | None, losses: Losses) -> list[Any]:
    """Return the tools of a Responses request in chat's form; a hosted tool is a loss.

    A tool in a namespace gets the namespace as a part of its name (``namespaces.py``).
    """
    said: list[Any] = []
    names: set[bytes] = set()
    for tool in opened(raw, losses):
        match kind := tool.take("type", str):
            case "function":
                said.append({"type": kind, kind: _chat_function(tool)})
            case "custom":
                said.append({"type": kind, kind: _chat_custom(tool, losses)})
            case None:
                raise Malformed(f"Missing required parameter: '{tool.named('type')}'.", tool.named("type"))
            case _:
                losses.add(tool.path, f"chat completions have no {kind} tool")
                continue
        name = bytes(said[-1][kind]["name"])
        if name in names:
            losses.add(tool.path, "chat completions would have two tools of this name")
            said.pop()
        names.add(name)
        tool.lose("allowed_callers", losses, _NO_SUCH_FIELD, b'["direct"]')
        tool.lose("defer_loading", losses, _NO_SUCH_FIELD, b"false")
        tool.lose_rest(losses, _NO_SUCH_FIELD)
    return said


def responses_tools(raw: msgspec.Raw | None, losses: Losses) -> list[Any]:
    """Return the tools of a chat completion in Responses' form."""
    said: list[Any] = []
    for tool in objects_of(raw, "tools"):
        kind = tool.take("type", str)
        if kind not in {"function", "custom"}:
            losses.add(tool.path, f"Responses has no tool of type {kind!r}")
            continue
        inner = tool.inner(kind)
        flat: dict[str, Any] = {"type": kind, "name": inner.need("name"), **inner.several("description")}
        if kind == "function":
            # Unless ``strict`` is false, Responses makes a schema strict, and with it all fields required.
            flat |= {"parameters": None, "strict": False, **inner.several("parameters", "strict")}
        elif format_ := _flat_format(inner.inner("format"), losses):
            flat["format"] = format_
        inner.lose_rest(losses, _NO_SUCH_FIELD)
        tool.lose_rest(losses, _NO_SUCH_FIELD)
        said.append(flat)
    return said


def chat_tool_choice(raw: msgspec.Raw | None, losses: Losses) -> Any:
    """Return a Responses request's tool_choice in chat's form, None where chat has no such choice."""
    if raw is None or is_string(raw):
        return raw
    choice = Fields(decoded(raw, Object, "tool_choice"), "tool_choice")
    said: dict[str, Any]
    match kind := choice.take("type", str):
        case "function" | "custom":
            said = {"type": kind, kind: {"name": choice.need("name")}}
        case "allowed_tools":
            allowed = [_chat_reference(tool, losses) for tool in objects_of(choice.raw("tools"), "tool_choice.tools")]
            said = {"type": kind, kind: {**choice.several("mode"), "tools": [tool for tool in allowed if tool]}}
        case _:
            losses.add("tool_choice", f"chat completions have no {kind} tool")
            return None
    choice.lose_rest(losses, _NO_SUCH_FIELD)
    return said


def responses_tool_choice(raw: msgspec.Raw | None, losses: Losses) -> Any:
    """Return a chat completion's tool_choice in Responses' form, None where Responses has no such choice."""
    if raw is None or is_string(raw):
        return raw
    choice = Fields(decoded(raw, Object, "tool_choice"), "tool_choice")
    said: dict[str, Any]
    match kind := choice.take("type", str):
        case "function" | "custom":
            said = {"type": kind, "name": choice.inner(kind).need("name")}
        case "allowed_tools":
            inner = choice.inner(kind)
            tools = objects_of(inner.raw("tools"), "tool_choice.allowed_tools.tools")
            allowed = [_flat_reference(tool, losses) for tool in tools]
            said = {"type": kind, **inner.several("mode"), "tools": [tool for tool in allowed if tool]}
        case _:
            losses.add("tool_choice", f"Responses has no choice of type {kind!r}")
            return None
    choice.lose_rest(losses, _NO_SUCH_FIELD)
    return said


def _chat_function(tool: Fields) -> Object:
    function = {"name": tool.need("name"), **tool.several("description", "parameters", "strict")}
    # Without ``strict``, Responses is strict where the schema allows. Chat refuses other schemas, so it is not set.
    if function.get("strict") == _FALSE:
        del function["strict"]
    return function


def _chat_custom(tool: Fields, losses: Losses) -> dict[str, Any]:
    custom: dict[str, Any] = {"name": tool.need("name"), **tool.several("description")}
    format_ = tool.inner("format")
    match format_.take("type", str):
        case "grammar":
            custom["format"] = {"type": "grammar", "grammar": format_.several("definition", "syntax")}
        case "text":
            custom["format"] = {"type": "text"}
        case None:
            pass
        case kind:
            losses.add(format_.named("type"), f"chat completions have no format {kind!r} of a custom tool")
    return custom


def _flat_format(format_: Fields, losses: Losses) -> dict[str, Any] | None:
    match kind := format_.take("type", str):
        case "grammar":
            return {"type": kind, **format_.inner("grammar").several("definition", "syntax")}
        case "text":
            return {"type": kind}
        case str():
            losses.add(format_.named("type"), f"Responses has no format {kind!r} of a custom tool")
    return None


def _chat_reference(tool: Fields, losses: Losses) -> dict[str, Any] | None:
    """Return one of the allowed tools, each given by its type and name."""
    kind = tool.take("type", str)
    if kind in {"function", "custom"}:
        return {"type": kind, kind: {"name": tool.need("name")}}
    losses.add(tool.path, f"chat completions have no {kind} tool")
    return None


def _flat_reference(tool: Fields, losses: Losses) -> dict[str, Any] | None:
    kind = tool.take("type", str)
    if kind in {"function", "custom"}:
        return {"type": kind, "name": tool.inner(kind).need("name")}
    losses.add(tool.path, f"Responses has no tool of type {kind!r}")
    return None
