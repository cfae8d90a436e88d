"""A forced call at a model that takes no such choice: the model answers in JSON, which the client gets as the call.

The model is asked, in its native format, for JSON that matches the tool's parameters. The client gets this JSON as the
call that was forced, whole or streamed.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from providers.dialects.chat.choices import OfChoices
from providers.dialects.dialect import AS_CALL, ForcedCall
from providers.dialects.messages.fields import KeptSchema
from providers.dialects.wording import Fields, Loss, Losses, Wording, raw_json
from providers.refusals import UNREADABLE

AS_AUTO = "this model takes no forced tool, so that it may answer without a call"
THINKS_NOT = "this model calls no forced tool while it thinks"
NO_TEXT = "a call of a tool is forced, so that there is no text for it to shape"
NOT_KEPT = "this model's JSON is not held to this keyword: it is told in the description"
NAME, ARGUMENTS = "tool", "arguments"  # fields of the JSON, where one of several tools must be called
_FUNCTION = "function"


class ForcedTool(msgspec.Struct, frozen=True):
    """A tool whose arguments a model can be asked for as JSON."""

    name: str
    schema: Mapping[str, Any]  # the schema of the parameters, an object's
    path: str  # the path of the parameters


def forced_in_chat(fields: Fields) -> ForcedCall | None:
    """Return which call a chat request forces; None if the model may choose."""
    raw = bytes(fields.get("tool_choice", b""))
    if raw in {b"", b"null", b'"auto"', b'"none"'}:
        return None
    if raw == b'"required"':
        return ForcedCall()
    try:
        choice = msgspec.json.decode(raw, type=dict[str, Any])
        kind = choice.get("type")
        if kind == "allowed_tools":
            allowed = choice["allowed_tools"]
            named = tuple(each[each["type"]]["name"] for each in allowed["tools"])
            return ForcedCall(named) if allowed.get("mode") == "required" else None
        return ForcedCall((choice[kind]["name"],)) if kind in {_FUNCTION, "custom"} else None
    except (*UNREADABLE, AttributeError, KeyError, TypeError):
        return None  # the provider reports the error


def schema_of(tools: Sequence[ForcedTool]) -> tuple[Any, list[Loss]]:
    """Return the schema of JSON that stands for a call of one of ``tools``, and the losses of that schema."""
    kept = [KeptSchema(raw_json({"type": "object", **tool.schema}), tool.path) for tool in tools]
    losses = [Loss(keyword, NOT_KEPT, hint=True) for each in kept for keyword in each.lost]
    if len(tools) == 1:
        return kept[0].kept, losses
    calls = [
        {
            "type": "object",
            "properties": {NAME: {"type": "string", "enum": [tool.name]}, ARGUMENTS: each.kept},
            "required": [NAME, ARGUMENTS],
            "additionalProperties": False,
        }
        for tool, each in zip(tools, kept, strict=True)
    ]
    return {"anyOf": calls}, losses


def loses_format(asked: Fields, losses: Losses) -> bool:
    """Whether a chat request has a format beside a forced call: only OpenAI's API takes both. The format goes."""
    if not _has_format(asked) or forced_in_chat(asked) is None:
        return False
    losses.add("response_format", NO_TEXT, hint=True)
    return True


def _has_format(fields: Fields) -> bool:
    return bytes(fields.get("response_format", b"null")) not in {b"null", b'{"type":"text"}'}


def asked_for_json(wording: Wording, forced: ForcedCall) -> Wording:
    """Return a request that asks for JSON in place of a call; if it cannot, the model may choose whether to call."""
    fields = wording.fields
    tools = _tools(fields, forced)
    said = {name: value for name, value in fields.items() if name != "parallel_tool_calls"}
    choice, losses = "auto", [Loss("tool_choice", AS_AUTO, hint=True)]
    if tools and forced.as_json:
        schema, lost = schema_of(tools)
        losses = [Loss("tool_choice", AS_CALL, hint=True), *lost]
        if _has_format(fields):
            losses.append(Loss("response_format", NO_TEXT, hint=True))
        form = {"name": tools[0].name if len(tools) == 1 else "call", "schema": schema}
        said["response_format"] = raw_json({"type": "json_schema", "json_schema": form})
        choice = "none"
    said["tool_choice"] = raw_json(choice)
    return msgspec.structs.replace(wording, fields=said, losses=(*wording.losses, *losses))


def _tools(fields: Fields, forced: ForcedCall) -> list[ForcedTool]:
    try:
        listed = msgspec.json.decode(fields.get("tools", b"[]"), type=list[dict[str, Any]])
        return forced_among(map(_offered, listed), forced, "function.parameters")
    except (*UNREADABLE, AttributeError, TypeError):
        return []


def _offered(tool: dict[str, Any]) -> tuple[str, Any]:
    own = tool.get(_FUNCTION)
    name = str((own or tool.get("custom") or {}).get("name"))
    return name, None if own is None else own.get("parameters") or {"type": "object"}


def forced_among(offered: Iterable[tuple[str, Any]], forced: ForcedCall, within: str) -> list[ForcedTool]:
    """Return the tools of which one must be called; none if one of these cannot be asked for as JSON.

    ``offered``: each tool's name, with an object that has the schema of the parameters at ``within``.
    """
    meant = [
        ForcedTool(name, schema, f"tools[{number}].{within}")
        for number, (name, schema) in enumerate(offered)
        if not forced.names or name in forced.names
    ]
    are_objects = all(isinstance(tool.schema, dict) and tool.schema.get("type", "object") == "object" for tool in meant)
    return meant if are_objects else []


_EFFORTS = frozenset({"reasoning_effort", "reasoning", "thinking", "enable_thinking", "thinking_budget"})


_OFF = frozenset({b'"none"', b"false"})
_OFF_WITHIN = {"type": "disabled", "effort": "none", "enabled": False}  # an object's values that forbid it


def forbids_thinking(fields: Fields) -> bool:
    """Whether a chat request forbids the model to think, in the words of any vendor."""
    return any(_is_off(fields[name]) for name in _EFFORTS if name in fields)


def _is_off(said: msgspec.Raw) -> bool:
    if not bytes(said).startswith(b"{"):
        return bytes(said) in _OFF
    try:
        told = msgspec.json.decode(said, type=dict[str, Any])
    except UNREADABLE:  # the provider reports the error
        return False
    return any(name in told and told[name] == off for name, off in _OFF_WITHIN.items())


def without_thinking(fields: Fields, not_thinking: Mapping[str, Any]) -> Wording:
    """Return a chat request that does not think, by the vendor's fields ``not_thinking``."""
    said = {name: value for name, value in fields.items() if name not in _EFFORTS}
    asked = [name for name in fields if name in _EFFORTS and name not in not_thinking]
    said |= {name: raw_json(value) for name, value in not_thinking.items()}
    return Wording(said, tuple(Loss(name, THINKS_NOT, hint=True) for name in asked))


class AsCall(OfChoices):
    """A ``Translation`` of chat chunks: the text of each choice, which is JSON, becomes a tool call.

    ``name``: of the only tool. None: the JSON names the tool, so the text is kept until it is whole.
    """

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._begun: set[int] = set()
        self._texts: dict[int, list[str]] = {}

    def keeps(self, choice: dict[str, Any]) -> bool:
        """Turn a choice's text into a piece of a call; into nothing if the text is kept for later."""
        index, delta, ends = choice.get("index", 0), choice["delta"], choice.get("finish_reason")
        text = delta.pop("content", None)
        if "role" in delta:
            delta["content"] = None
        if text and self._name is not None:
            delta["tool_calls"] = [self._piece(index, self._name, text)]
        elif text:
            self._texts.setdefault(index, []).append(text)
        if ends is not None and index in self._texts:
            name, arguments = _read("".join(self._texts.pop(index)))
            if name is not None:
                delta["tool_calls"] = [self._piece(index, name, arguments)]
            else:
                delta["content"] = arguments
        if ends == "stop" and index in self._begun:
            choice["finish_reason"] = "tool_calls"
        return bool(delta) or ends is not None

    def _piece(self, index: int, name: str, arguments: str) -> dict[str, Any]:
        if index in self._begun:
            return {"index": 0, _FUNCTION: {"arguments": arguments}}
        self._begun.add(index)
        call_id = hashlib.sha256(f"{self.answer_id}\0{index}".encode()).hexdigest()[:24]
        called = {"name": name, "arguments": arguments}
        return {"index": 0, "id": f"call_{call_id}", "type": _FUNCTION, _FUNCTION: called}


def _read(text: str) -> tuple[str | None, str]:
    """Return the tool that JSON calls, and the arguments; None and the text if the JSON calls no tool."""
    try:
        said = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        return msgspec.json.decode(said[NAME], type=str), bytes(said[ARGUMENTS]).decode()
    except (*UNREADABLE, KeyError):
        return None, text
