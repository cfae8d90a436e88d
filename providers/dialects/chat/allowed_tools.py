"""A choice among several tools (``allowed_tools``) for an API or a server without it: only these tools are offered."""

from collections.abc import Sequence

import msgspec

from providers.dialects.wording import Loss, Wording, raw_json
from providers.refusals import UNREADABLE

_WORD = b'"allowed_tools"'
_ONLY = "it has no choice among several tools: it is sent these alone, and reads nothing that it cached with others"


class _Named(msgspec.Struct):
    name: str


class _Tool(msgspec.Struct):
    type: str
    function: _Named | None = None
    custom: _Named | None = None

    def key(self) -> tuple[str, str]:
        """Return the type and the name by which the tool is called."""
        inner = self.function or self.custom
        return self.type, "" if inner is None else inner.name


class _Allowed(msgspec.Struct):
    tools: Sequence[_Tool]
    mode: str = "auto"


class _Choice(msgspec.Struct):
    allowed_tools: _Allowed


_choices = msgspec.json.Decoder(_Choice)
_tools = msgspec.json.Decoder(list[_Tool])
_listed = msgspec.json.Decoder(list[msgspec.Raw])


def offering_those_alone(wording: Wording) -> Wording:
    """Return a chat request that offers only the tools among which it lets its model choose.

    A single tool that must be called is chosen by ``tool_choice``, so that the other tools may stay. A malformed choice
    is left to the provider.
    """
    fields = wording.fields
    if _WORD not in bytes(fields.get("tool_choice", b"")) or "tools" not in fields:
        return wording
    try:
        allowed = _choices.decode(fields["tool_choice"]).allowed_tools
        keys = {tool.key() for tool in allowed.tools}
        tools = _tools.decode(fields["tools"])
        offered = [number for number, tool in enumerate(tools) if tool.key() in keys]
        raw = _listed.decode(fields["tools"])
    except UNREADABLE:
        return wording
    if not offered or allowed.mode not in {"auto", "required"} or any(not name for _, name in keys):
        return wording
    if len(offered) == len(raw):
        return msgspec.structs.replace(wording, fields={**fields, "tool_choice": raw_json(allowed.mode)})
    if len(offered) == 1 and allowed.mode == "required":
        kind, name = tools[offered[0]].key()
        choice = raw_json({"type": kind, kind: {"name": name}})
        return msgspec.structs.replace(wording, fields={**fields, "tool_choice": choice})
    left = raw_json([raw[number] for number in offered])
    return msgspec.structs.replace(
        wording,
        fields={**fields, "tools": left, "tool_choice": raw_json(allowed.mode)},
        losses=(*wording.losses, Loss("tool_choice", _ONLY, hint=True)),
        tools=[wording.tools[number] for number in offered] if wording.tools else (),
    )
