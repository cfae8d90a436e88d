"""Translates a Messages request into a chat completion request."""

from collections.abc import Container, Mapping, Sequence

import msgspec

from providers.dialects.messages.fields import effort_of_budget, name_in_chat
from providers.dialects.messages.own_tools import own_tool
from providers.dialects.messages.toolsets import ToolsetMember, members_of, offered_members
from providers.dialects.messages.turns_to_chat import InstructedChanges, conversation, mark_of
from providers.dialects.reading import Object, RawObject, object_at, objects_at, present, text_at
from providers.dialects.stored import KEEPS_NONE
from providers.dialects.wording import (
    CACHE_REASON,
    MARK,
    Losses,
    Malformed,
    Wording,
    as_strict,
    decoded,
    is_null,
    raw_json,
    short_name,
    with_properties,
)

_SAME = ("model", "stream", "temperature", "top_p")
_TRANSLATED = frozenset(
    {
        *_SAME,
        "max_tokens",
        "messages",
        "metadata",
        "output_config",
        "service_tier",
        "stop_sequences",
        "system",
        "thinking",
        "tool_choice",
        "tools",
    }
)
_MOST_STOPS = 4  # stop sequences in chat
_DEFAULTS: Mapping[str, tuple[bytes, ...]] = {  # default values
    "speed": (b'"standard"',),
    "mcp_servers": (b"[]",),
    "context_management": (b"{}",),
}
_HINTS: Mapping[str, str] = {
    "cache_control": CACHE_REASON,
    "diagnostics": "chat does not report why a cache was missed",
    "speed": "chat has no fast mode",
}
_REASONS: Mapping[str, str] = {
    "compaction": "only Claude compacts a conversation so: ask for an answer that sums it up, and go on from that",
    "container": "chat has no containers",
    "context_management": "chat does not edit its context",
    "fallback_credit_token": "chat has no credits for refused requests",
    "inference_geo": "chat has no choice of where it runs",
    "mcp_servers": "chat has no MCP servers",
    "thread": f"chat {KEEPS_NONE}",
    "top_k": "chat has no top_k",
}
_NO_TOOL_FIELD = "chat's functions have no such field"
_AT_ONCE = "chat loads every tool at once"


def to_chat(
    fields: Mapping[str, msgspec.Raw],
    *,
    thoughts: bool = False,
    marks: bool = False,
    signed: str = "",
    beyond: Container[str] = (),
) -> Wording:
    """Translate a Messages request into a chat completion request.

    ``system`` becomes the first message, and each tool result a message. The text of a failed tool's result says that
    the tool failed. A budget of thinking tokens becomes an effort (``effort_of_budget``). Adaptive thinking and
    disabled thinking become no effort.

    ``thoughts``: send earlier thinking as ``reasoning_content``. ``signed``: the vendor that gets back the thoughts it
    has signed. ``marks``: keep marks of what to cache; else marks are lost. ``beyond``: parts for which chat has no
    place, and which the pivot's own fields keep. A mark on a call alone has no place: the mark of the next turn covers
    the call.

    Raises:
        Malformed: the request is not valid in Messages.

    """
    losses = Losses(marks=marks, beyond=beyond)
    asked = present(fields)
    chat: Object = {name: asked[name] for name in _SAME if name in asked}
    chat["messages"], changes = conversation(asked, losses, thoughts=thoughts, signed=signed)
    chat.update(_limits(asked, losses))
    tools = _tools(asked, losses, changes)
    choice = _tool_choice(asked, losses)
    if tools:  # "'tool_choice' is only allowed when 'tools' are specified"
        chat.update(tools | choice)
    chat.update(_output(asked, losses, None if changes is None else changes.effort))
    chat.update(_user(asked, losses))
    if (mark := mark_of(asked, losses)) is not None and chat["messages"]:
        _mark_last(chat["messages"][-1], mark)
    for name, value in asked.items():
        if name == MARK and marks:
            continue
        if name == "top_k" and name in losses.beyond:
            chat[name] = value
            continue
        if name not in _TRANSLATED and bytes(value) not in _DEFAULTS.get(name, ()):
            hint = name in _HINTS or (name == "context_management" and _only_clears_thoughts(value))
            losses.add(name, _HINTS.get(name) or _REASONS.get(name, "chat has no such field"), hint=hint)
    return losses.with_chat(chat)


def _mark_last(last: Object, mark: msgspec.Raw) -> None:
    """Mark the end of the prompt, its ``last`` message: the request leaves the place of the mark to Anthropic."""
    if last["role"] == "tool":
        last[MARK] = mark
    elif not last["content"]:  # no part of the message is left to mark
        pass
    elif isinstance(last["content"], list):
        last["content"][-1] = last["content"][-1] | {MARK: mark}
    else:
        last["content"] = [{"type": "text", "text": last["content"], MARK: mark}]


def _limits(asked: RawObject, losses: Losses) -> Object:
    limit = decoded(asked.get("max_tokens"), int, "max_tokens")
    if limit is None:
        raise Malformed("max_tokens: Field required", "max_tokens")
    if limit < 0:
        raise Malformed("max_tokens: must not be negative", "max_tokens")
    said: Object = {}
    if limit == 0:
        losses.add("max_tokens", "chat cannot fill a cache without answering")
    else:
        said["max_completion_tokens"] = limit
    stops = decoded(asked.get("stop_sequences"), list[str], "stop_sequences")
    if stops:
        said["stop"] = stops[:_MOST_STOPS]
        if len(stops) > _MOST_STOPS:
            losses.add("stop_sequences", f"chat takes {_MOST_STOPS} stop sequences at most")
        else:
            losses.add("stop_sequences", "chat does not report which one ended an answer", hint=True)
    return said


def _tools(asked: RawObject, losses: Losses, changes: InstructedChanges | None) -> Object:
    said: list[Object] = []
    given, paths = objects_at(asked.get("tools"), "tools"), dict[int, str]()
    if changes is not None:
        given, paths = changes.offered(given)
    for number, tool in enumerate(given):
        path = paths.get(number) or f"tools[{number}]"
        kind = decoded(tool.get("type"), str, f"{path}.type")
        if not kind or kind == "custom":  # Go's programs send "" for no type
            said.append(_function(tool, path, losses))
        elif (members := members_of(raw_json(tool))) is not None:
            said += _functions(members, tool, path, losses)
        elif (own := _own_tool(kind, tool)) is not None:
            said.append(_function(own[0], path, losses, own[1]))
        else:
            losses.add(path, f"chat has no tool of type {kind!r}")
    return {"tools": said} if said else {}


def _function(tool: RawObject, path: str, losses: Losses, settings: Sequence[str] = ()) -> Object:
    """Return the function for a tool; ``settings`` go into the description."""
    schema = tool.get("input_schema")
    if schema is None:
        raise Malformed(f"{path}.input_schema: Field required", f"{path}.input_schema")
    function: Object = {"name": short_name(text_at(tool, "name", path))}
    if not is_null(tool.get("description", msgspec.Raw(b"null"))):
        function["description"] = tool["description"]
    function["parameters"] = with_properties(schema)
    if "strict" in tool:
        function |= _strict(function["parameters"], tool["strict"], f"{path}.strict", losses)
    mark = mark_of(tool, losses)
    chats = {"type": "function", "function": function} | ({} if mark is None else {MARK: mark})
    known = {"type", "name", "description", "input_schema", "strict", "defer_loading", *settings}
    losses.lose(tool, "defer_loading", path, _AT_ONCE, b"false", b"null", hint=True)
    if decoded(tool.get("allowed_callers"), list[str], f"{path}.allowed_callers") in ([], ["direct"]):
        known.add("allowed_callers")
    if "eager_input_streaming" in tool:
        known.add("eager_input_streaming")
        losses.add(f"{path}.eager_input_streaming", "chat has no setting for streaming arguments", hint=True)
    losses.rest(tool, known, path, _NO_TOOL_FIELD)
    return losses.places.put(chats, path)


def _functions(members: Sequence[ToolsetMember], tool: RawObject, path: str, losses: Losses) -> list[Object]:
    """Return a function for each member of a toolset; the last function gets the toolset's mark."""
    said: list[Object] = [
        {
            "type": "function",
            "function": {"name": each.function, "description": each.about, "parameters": each.parameters},
        }
        for each in members
    ]
    if said and (mark := mark_of(tool, losses)) is not None:
        said[-1][MARK] = mark
    if b'"defer_loading":true' in bytes(tool.get("configs", b"")).translate(None, b" \t\r\n"):
        losses.add(f"{path}.configs", _AT_ONCE, hint=True)
    losses.rest(tool, ("type", "configs"), path, _NO_TOOL_FIELD)
    return [losses.places.put(each, path) for each in said]


def _own_tool(kind: str, tool: RawObject) -> tuple[RawObject, tuple[str, ...]] | None:
    """Return a tool of Anthropic's with a description and a schema, and the fields that they express."""
    own = own_tool(kind, {name: msgspec.json.decode(value) for name, value in tool.items()})
    if own is None:
        return None
    told = {"description": raw_json(own.about), "input_schema": raw_json(own.parameters)}
    return {**tool, **told}, own.settings


def _strict(schema: msgspec.Raw, strict: msgspec.Raw, path: str, losses: Losses) -> Object:
    if bytes(strict) != b"true":
        return {"strict": strict}
    kept, is_strict, lost = as_strict(schema, path)
    losses.note(lost)
    return {"parameters": kept, "strict": is_strict}


def _tool_choice(asked: RawObject, losses: Losses) -> Object:
    if "tool_choice" not in asked:
        return {}
    choice = object_at(asked["tool_choice"], "tool_choice")
    kind = text_at(choice, "type", "tool_choice")
    said: Object = {}
    if kind == "tool":
        said["tool_choice"] = {"type": "function", "function": {"name": _chosen(asked, choice)}}
    elif kind in {"auto", "any", "none"}:
        said["tool_choice"] = {"auto": "auto", "any": "required", "none": "none"}[kind]
    else:
        losses.add("tool_choice", f"chat has no tool choice {kind!r}")
    if decoded(choice.get("disable_parallel_tool_use"), bool, "tool_choice.disable_parallel_tool_use"):
        said["parallel_tool_calls"] = False
    losses.rest(choice, ("type", "name", "disable_parallel_tool_use"), "tool_choice", "chat has no such field")
    return said


def _chosen(asked: RawObject, choice: RawObject) -> str:
    """Return the function that must be called: the client's own of this name comes before a member of a toolset."""
    name = text_at(choice, "name", "tool_choice")
    own = f'"{name}"'.encode()
    if not any(bytes(tool.get("name", b"")) == own for tool in objects_at(asked.get("tools"), "tools")):
        members = offered_members(asked.get("tools", msgspec.Raw()))
        name = next((each.function for each in members if each.name == name), name)
    return short_name(name)


def _output(asked: RawObject, losses: Losses, later: str | None) -> Object:
    """Return the fields for the reasoning effort (``later`` comes first), and for the format of the answer."""
    said: Object = {}
    config = object_at(asked.get("output_config"), "output_config")
    effort = later or decoded(config.get("effort"), str, "output_config.effort")
    if "format" in config and not is_null(config["format"]):
        path = "output_config.format"
        form = object_at(config["format"], path)
        if text_at(form, "type", path) == "json_schema" and "schema" in form:
            kept, strict, lost = as_strict(form["schema"], f"{path}.schema")
            losses.note(lost)
            schema = {"name": "answer", "schema": kept, "strict": strict}  # chat requires a name
            said["response_format"] = {"type": "json_schema", "json_schema": schema}
            losses.rest(form, ("type", "schema"), path, "chat has no such field")
        else:
            losses.add(path, "chat has no such output format")
    losses.rest(config, ("effort", "format"), "output_config", "chat has no such field")
    thinking = object_at(asked.get("thinking"), "thinking")
    if thinking:
        kind = text_at(thinking, "type", "thinking")
        if kind == "enabled":
            budget = decoded(thinking.get("budget_tokens"), int, "thinking.budget_tokens")
            if budget is None:
                raise Malformed("thinking.budget_tokens: Field required", "thinking.budget_tokens")
            effort = effort or effort_of_budget(budget)
            if "thinking_budget" in losses.beyond:
                said["thinking_budget"] = budget
        elif kind not in {"adaptive", "disabled"}:
            losses.add("thinking", f"chat cannot think the way {kind!r} means")
        hides = kind == "disabled" or bytes(thinking.get("display", b"")) == b'"omitted"'
        if "thoughts" in losses.beyond and not hides:
            said["shows_thoughts"] = True
        losses.rest(thinking, ("type", "budget_tokens", "display"), "thinking", "chat has no such field")
    if effort is not None:
        said["reasoning_effort"] = effort
    return said


def _user(asked: RawObject, losses: Losses) -> Object:
    """Return the fields for the user's name and the service tier."""
    said: Object = {}
    metadata = object_at(asked.get("metadata"), "metadata")
    if "user_id" in metadata and not is_null(metadata["user_id"]):
        said["user"] = name_in_chat(text_at(metadata, "user_id", "metadata"), losses)
    losses.rest(metadata, ("user_id",), "metadata", "chat has no such field")
    tier = decoded(asked.get("service_tier"), str, "service_tier")
    if tier == "standard_only":
        said["service_tier"] = "default"
    elif tier not in {None, "auto"}:
        losses.add("service_tier", f"chat has no service tier {tier!r}")
    return said


def _only_clears_thoughts(management: msgspec.Raw) -> bool:
    """Whether context management only removes thinking, which chat is not sent anyway."""
    try:
        edits = msgspec.json.decode(management)["edits"]
        return all(edit["type"].startswith("clear_thinking_") for edit in edits)
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        return False
