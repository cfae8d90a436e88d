"""Translates tools and tool_choice: flat in Responses, nested in an object named by the type in chat completions."""

from collections.abc import Container
from typing import Any

import msgspec

from providers.dialects.reading import RawObject, each_at, inner_at, needed_at, object_at, present, said_of
from providers.dialects.responses.built_in import BUILT_IN, SEARCH, built_in, chosen
from providers.dialects.responses.fields import is_clients, opened
from providers.dialects.wording import Losses, Malformed, decoded, is_string, raw_json, with_properties

AT_ONCE = "no tool is deferred there: all are offered at once"

_FALSE = msgspec.Raw(b"false")
_NO_SUCH_FIELD = "the other API has no such field in a tool"


def chat_tools(raw: msgspec.Raw | None, losses: Losses) -> list[Any]:
    """Return the tools of a Responses request in chat's form; a hosted tool is a loss.

    A tool in a namespace gets the namespace as a part of its name (``opened``).
    """
    said: list[Any] = []
    names: set[bytes] = set()
    for path, tool in opened(raw, losses):
        known: tuple[str, ...] = ("type", "name", "description", "allowed_callers", "defer_loading")
        match kind := decoded(tool.get("type"), str, f"{path}.type"):
            case "function":
                known = (*known, "parameters", "strict")
                said.append(losses.places.put({"type": kind, kind: _chat_function(tool, path)}, path))
            case "custom":
                known = (*known, "format")
                said.append(losses.places.put({"type": kind, kind: _chat_custom(tool, path, losses)}, path))
            case "tool_search" if is_clients(tool):
                kind, known = "function", (*known, "execution", "parameters")
                function = {"name": raw_json(SEARCH.name), **said_of(tool, "description", "parameters")}
                said.append(losses.places.put({"type": kind, kind: function}, path))
            case "tool_search":
                losses.add(path, AT_ONCE, hint=True)
                continue
            case None:
                raise Malformed(f"Missing required parameter: '{path}.type'.", f"{path}.type")
            case _ if kind in BUILT_IN and (own := built_in(plain := _plain(tool))) is not None:
                kind, known = "function", ("type", "allowed_callers", *own.settings)
                function = {name: raw_json(value) for name, value in own.told(plain).items()}
                said.append(losses.places.put({"type": kind, kind: function}, path))
            case _:
                losses.add(path, f"chat completions have no {kind} tool")
                continue
        name = bytes(said[-1][kind]["name"])
        if name in names:
            losses.add(path, "chat completions would have two tools of this name")
            said.pop()
        names.add(name)
        losses.lose(tool, "allowed_callers", path, _NO_SUCH_FIELD, b'["direct"]')
        losses.lose(tool, "async", path, _NO_SUCH_FIELD, b"false")
        losses.lose(tool, "defer_loading", path, AT_ONCE, b"false", hint=True)
        losses.rest(tool, (*known, "async"), path, _NO_SUCH_FIELD)
    return said


def _plain(tool: RawObject) -> dict[str, Any]:
    return {name: msgspec.json.decode(value) for name, value in tool.items()}


def responses_tools(raw: msgspec.Raw | None, losses: Losses) -> list[Any]:
    """Return the tools of a chat completion in Responses' form."""
    said: list[Any] = []
    for path, tool in each_at(raw, "tools"):
        kind = decoded(tool.get("type"), str, f"{path}.type")
        if kind not in {"function", "custom"}:
            losses.add(path, f"Responses has no tool of type {kind!r}")
            continue
        inner, at = inner_at(tool, kind, path), f"{path}.{kind}"
        known: tuple[str, ...] = ("name", "description")
        flat: dict[str, Any] = {"type": kind, "name": needed_at(inner, "name", at), **said_of(inner, "description")}
        if kind == "function":
            known = (*known, "parameters", "strict")
            # Unless ``strict`` is false, Responses makes a schema strict, and so all fields required.
            flat |= {"parameters": None, "strict": False, **said_of(inner, "parameters", "strict")}
            if flat["parameters"] is not None:
                flat["parameters"] = with_properties(flat["parameters"])
        else:
            known = (*known, "format")
            if format_ := _flat_format(inner_at(inner, "format", at), f"{at}.format", losses):
                flat["format"] = format_
        losses.rest(inner, known, at, _NO_SUCH_FIELD)
        losses.rest(tool, ("type", kind), path, _NO_SUCH_FIELD)
        said.append(flat)
    return said


def chat_tool_choice(raw: msgspec.Raw | None, losses: Losses, offered: Container[bytes]) -> Any:
    """Return a Responses request's tool_choice in chat's form; None: chat has no such choice.

    ``offered``: the names of the tools.
    """
    path = "tool_choice"
    if raw is None or is_string(raw):
        return raw
    choice = present(object_at(raw, path))
    known: tuple[str, ...]
    said: dict[str, Any] | None
    match kind := decoded(choice.get("type"), str, f"{path}.type"):
        case "function" | "custom":
            said, known = {"type": kind, kind: {"name": needed_at(choice, "name", path)}}, ("type", "name")
        case "allowed_tools":
            tools = each_at(choice.get("tools"), f"{path}.tools")
            allowed = [_chat_reference(tool, at, losses, offered) for at, tool in tools]
            inner = {**said_of(choice, "mode"), "tools": [tool for tool in allowed if tool]}
            said, known = {"type": kind, kind: inner}, ("type", "mode", "tools")
        case _ if (said := _chat_built_in(kind, offered)) is not None:
            known = ("type",)
        case _:
            losses.add(path, f"chat completions have no {kind} tool")
            return None
    losses.rest(choice, known, path, _NO_SUCH_FIELD)
    return said


def responses_tool_choice(raw: msgspec.Raw | None, losses: Losses) -> Any:
    """Return a chat completion's tool_choice in Responses' form; None: Responses has no such choice."""
    path = "tool_choice"
    if raw is None or is_string(raw):
        return raw
    choice = present(object_at(raw, path))
    said: dict[str, Any]
    match kind := decoded(choice.get("type"), str, f"{path}.type"):
        case "function" | "custom":
            said = {"type": kind, "name": needed_at(inner_at(choice, kind, path), "name", f"{path}.{kind}")}
        case "allowed_tools":
            inner = inner_at(choice, kind, path)
            tools = each_at(inner.get("tools"), f"{path}.allowed_tools.tools")
            allowed = [_flat_reference(tool, at, losses) for at, tool in tools]
            said = {"type": kind, **said_of(inner, "mode"), "tools": [tool for tool in allowed if tool]}
        case _:
            losses.add(path, f"Responses has no choice of type {kind!r}")
            return None
    losses.rest(choice, ("type", kind), path, _NO_SUCH_FIELD)
    return said


def _chat_function(tool: RawObject, path: str) -> RawObject:
    function = {"name": needed_at(tool, "name", path), **said_of(tool, "description", "parameters", "strict")}
    if "parameters" in function:
        function["parameters"] = with_properties(function["parameters"])
    # Without ``strict``, Responses is strict where the schema allows. Chat refuses other schemas, so ``strict`` stays
    # unset.
    if function.get("strict") == _FALSE:
        del function["strict"]
    return function


def _chat_custom(tool: RawObject, path: str, losses: Losses) -> dict[str, Any]:
    custom: dict[str, Any] = {"name": needed_at(tool, "name", path), **said_of(tool, "description")}
    format_, at = inner_at(tool, "format", path), f"{path}.format.type"
    match decoded(format_.get("type"), str, at):
        case "grammar":
            custom["format"] = {"type": "grammar", "grammar": said_of(format_, "definition", "syntax")}
        case "text":
            custom["format"] = {"type": "text"}
        case None:
            pass
        case kind:
            losses.add(at, f"chat completions have no format {kind!r} of a custom tool")
    return custom


def _flat_format(format_: RawObject, path: str, losses: Losses) -> dict[str, Any] | None:
    match kind := decoded(format_.get("type"), str, f"{path}.type"):
        case "grammar":
            return {"type": kind, **said_of(inner_at(format_, "grammar", path), "definition", "syntax")}
        case "text":
            return {"type": kind}
        case str():
            losses.add(f"{path}.type", f"Responses has no format {kind!r} of a custom tool")
    return None


def _chat_built_in(kind: str | None, offered: Container[bytes]) -> dict[str, Any] | None:
    name = chosen(kind)
    if name is None or bytes(raw_json(name)) not in offered:
        return None
    return {"type": "function", "function": {"name": name}}


def _chat_reference(tool: RawObject, path: str, losses: Losses, offered: Container[bytes]) -> dict[str, Any] | None:
    """Return one of the allowed tools, each given by its type and name."""
    kind = decoded(tool.get("type"), str, f"{path}.type")
    if kind in {"function", "custom"}:
        return {"type": kind, kind: {"name": needed_at(tool, "name", path)}}
    if (own := _chat_built_in(kind, offered)) is not None:
        return own
    losses.add(path, f"chat completions have no {kind} tool")
    return None


def _flat_reference(tool: RawObject, path: str, losses: Losses) -> dict[str, Any] | None:
    kind = decoded(tool.get("type"), str, f"{path}.type")
    if kind in {"function", "custom"}:
        return {"type": kind, "name": needed_at(inner_at(tool, kind, path), "name", f"{path}.{kind}")}
    losses.add(path, f"Responses has no tool of type {kind!r}")
    return None
