"""Translates a Messages request into a chat completion request."""

from collections.abc import Mapping

import msgspec

from providers.dialects.messages.effort import effort_of_budget
from providers.dialects.messages.history_to_chat import conversation
from providers.dialects.messages.losses import (
    CACHE_REASON,
    Losses,
    Object,
    RawObject,
    is_null,
    object_at,
    objects_at,
    text_at,
)
from providers.dialects.messages.user_names import name_in_chat
from providers.dialects.tool_names import short_name
from providers.dialects.wording import Malformed, Wording, decoded, raw_json

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
_DEFAULTS: Mapping[str, tuple[bytes, ...]] = {  # values that are the default
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
    "container": "chat has no containers",
    "context_management": "chat does not edit its context",
    "inference_geo": "chat has no choice of where it runs",
    "mcp_servers": "chat has no MCP servers",
    "top_k": "chat has no top_k",
}
_NO_TOOL_FIELD = "chat's functions have no such field"


def to_chat(fields: Mapping[str, msgspec.Raw], *, thoughts: bool = False) -> Wording:
    """Translate a Messages request into a chat completion request.

    ``system`` becomes the first message; each tool result becomes a message; a failed tool is marked in the text of its
    result; a budget of thinking tokens becomes an effort (``effort.py``), adaptive and disabled thinking become none.
    With ``thoughts``, earlier thinking is sent as ``reasoning_content``.

    Raises:
        Malformed: the request is not valid in Messages.

    """
    losses = Losses()
    asked = {name: value for name, value in fields.items() if not is_null(value)}
    chat: Object = {name: asked[name] for name in _SAME if name in asked}
    chat["messages"] = conversation(asked, losses, thoughts=thoughts)
    chat.update(_limits(asked, losses))
    tools = _tools(asked, losses)
    choice = _tool_choice(asked, losses)
    if tools:  # chat refuses tool_choice without tools
        chat.update(tools | choice)
    chat.update(_output(asked, losses))
    chat.update(_user(asked, losses))
    for name, value in asked.items():
        if name not in _TRANSLATED and bytes(value) not in _DEFAULTS.get(name, ()):
            hint = name in _HINTS or (name == "context_management" and _only_clears_thoughts(value))
            losses.add(name, _HINTS.get(name) or _REASONS.get(name, "chat has no such field"), hint=hint)
    return Wording({name: raw_json(value) for name, value in chat.items()}, losses.met())


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


def _tools(asked: RawObject, losses: Losses) -> Object:
    said: list[Object] = []
    for number, tool in enumerate(objects_at(asked.get("tools"), "tools")):
        path = f"tools[{number}]"
        kind = decoded(tool.get("type"), str, f"{path}.type")
        if kind not in {None, "custom"}:
            losses.add(path, f"chat has no tool of type {kind!r}")
            continue
        schema = tool.get("input_schema")
        if schema is None:
            raise Malformed(f"{path}.input_schema: Field required", f"{path}.input_schema")
        function: Object = {"name": short_name(text_at(tool, "name", path))}
        if not is_null(tool.get("description", msgspec.Raw(b"null"))):
            function["description"] = tool["description"]
        function["parameters"] = schema
        if "strict" in tool:
            function["strict"] = tool["strict"]
        said.append({"type": "function", "function": function})
        known = {"type", "name", "description", "input_schema", "strict"}
        if bytes(tool.get("defer_loading", b"false")) == b"false":
            known.add("defer_loading")
        if decoded(tool.get("allowed_callers"), list[str], f"{path}.allowed_callers") in ([], ["direct"]):
            known.add("allowed_callers")
        if "eager_input_streaming" in tool:
            known.add("eager_input_streaming")
            losses.add(f"{path}.eager_input_streaming", "chat has no setting for streaming arguments", hint=True)
        losses.rest(tool, known, path, _NO_TOOL_FIELD)
    return {"tools": said} if said else {}


def _tool_choice(asked: RawObject, losses: Losses) -> Object:
    if "tool_choice" not in asked:
        return {}
    choice = object_at(asked["tool_choice"], "tool_choice")
    kind = text_at(choice, "type", "tool_choice")
    said: Object = {}
    if kind == "tool":
        name = short_name(text_at(choice, "name", "tool_choice"))
        said["tool_choice"] = {"type": "function", "function": {"name": name}}
    elif kind in {"auto", "any", "none"}:
        said["tool_choice"] = {"auto": "auto", "any": "required", "none": "none"}[kind]
    else:
        losses.add("tool_choice", f"chat has no tool choice {kind!r}")
    if decoded(choice.get("disable_parallel_tool_use"), bool, "tool_choice.disable_parallel_tool_use"):
        said["parallel_tool_calls"] = False
    losses.rest(choice, ("type", "name", "disable_parallel_tool_use"), "tool_choice", "chat has no such field")
    return said


def _output(asked: RawObject, losses: Losses) -> Object:
    """Return the fields for the reasoning effort and the format of the answer."""
    said: Object = {}
    config = object_at(asked.get("output_config"), "output_config")
    effort = decoded(config.get("effort"), str, "output_config.effort")
    if "format" in config and not is_null(config["format"]):
        path = "output_config.format"
        form = object_at(config["format"], path)
        if text_at(form, "type", path) == "json_schema" and "schema" in form:
            schema = {"name": "answer", "schema": form["schema"], "strict": True}  # chat requires a name
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
        elif kind not in {"adaptive", "disabled"}:
            losses.add("thinking", f"chat cannot think the way {kind!r} means")
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
        losses.add("service_tier", f"chat has no service tier {tier!r}", hint=True)
    return said


def _only_clears_thoughts(management: msgspec.Raw) -> bool:
    """Whether context management only removes thinking, which chat is not sent anyway."""
    try:
        edits = msgspec.json.decode(management)["edits"]
        return all(edit["type"].startswith("clear_thinking_") for edit in edits)
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        return False
