"""Toolsets of Anthropic's: one entry that offers many tools, its members, which the client runs.

Elsewhere each member is a function of its own, and its name begins with the toolset's. Otherwise two functions could
have one name: two toolsets have a ``screenshot``, and the client may have one too. The members are in ``toolsets.json``
beside this file, with the version of the SDK from which they were read.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

from providers.dialects.dialect import OfferedTool
from providers.refusals import UNREADABLE


class _Row(msgspec.Struct, frozen=True):
    about: str
    parameters: msgspec.Raw
    off: bool = False  # a request that wants this member must say so


class _Toolset(msgspec.Struct, frozen=True):
    name: str
    members: dict[str, _Row]


class _Table(msgspec.Struct, frozen=True):
    toolsets: dict[str, _Toolset]


class ToolsetMember(NamedTuple):
    """A tool of a toolset: its name in Messages, its function's name elsewhere, and the function's description."""

    toolset: str
    name: str
    function: str
    about: str
    parameters: msgspec.Raw


class _Config(msgspec.Struct):
    enabled: Any = None


class _Entry(msgspec.Struct):
    type: str | None = None
    configs: dict[str, _Config | None] | None = None


_entries = msgspec.json.Decoder(list[_Entry] | None)
_entry = msgspec.json.Decoder(_Entry)


@cache
def _table() -> Mapping[str, _Toolset]:
    text = files("providers.dialects.messages").joinpath("toolsets.json").read_bytes()
    return msgspec.json.decode(text, type=_Table).toolsets


def function_name(toolset: str, member: str) -> str | None:
    """Return the name of the function for a member with this name; None: the toolset is not known."""
    return f"{toolset}_{member}" if any(each.name == toolset for each in _table().values()) else None


def members_of(raw: msgspec.Raw) -> tuple[ToolsetMember, ...] | None:
    """Return the members that an entry of ``tools`` offers; None: no known toolset, or a member is not known.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: the entry has another format.

    """
    return _members(_entry.decode(raw))


def offered_members(raw: msgspec.Raw) -> list[ToolsetMember]:
    """Return the members that all toolsets among the ``tools`` of a request offer; none if the tools are malformed."""
    if b"_toolset_" not in bytes(raw):
        return []
    try:
        return [member for entry in _entries.decode(raw) or () for member in _members(entry) or ()]
    except UNREADABLE:
        return []


def offered_tools(raw: msgspec.Raw, others: Iterable[str]) -> Iterator[OfferedTool]:
    """Yield the members by their own names; a name that ``others`` have too may mean either, and gets no schema."""
    members = offered_members(raw)
    named = Counter([*others, *(member.name for member in members)])
    for member in members:
        is_only = named[member.name] == 1
        yield OfferedTool(member.name, bytes(member.parameters) if is_only else None)


def _members(entry: _Entry) -> tuple[ToolsetMember, ...] | None:
    found = _table().get(entry.type or "")
    configs = entry.configs or {}
    if found is None or not configs.keys() <= found.members.keys():
        return None
    return tuple(
        ToolsetMember(found.name, name, f"{found.name}_{name}", row.about, row.parameters)
        for name, row in found.members.items()
        if _is_on(configs.get(name), row)
    )


def _is_on(config: _Config | None, row: _Row) -> bool:
    """Whether a member is offered. As Anthropic's SDK reads it, a value that is no boolean switches the member off."""
    return not row.off if config is None or config.enabled is None else config.enabled is True
