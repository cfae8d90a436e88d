"""Nulls in the messages and tools of a chat request, as SDKs write an answer that becomes part of the next request.

A null means the same as no field, and vendors refuse nulls: OpenAI ``"name": null``, Groq ``"function_call": null``.
"""

import msgspec

from providers import UNREADABLE
from providers.dialects import raw_json

Fields = dict[str, msgspec.Raw]

_WRITTEN = (b'":null', b'": null')
_OF_TOOLS = (b'"description', b'"parameters', b'"strict')  # in a schema, any other field may be null
SEARCHED_FOR_NULLS = 2**20  # bytes of a body: searched and read in one go
_BACKSLASH = ord("\\")
_NULL = msgspec.Raw(b"null")
_OBJECTS = msgspec.json.Decoder(list[Fields])
_OBJECT = msgspec.json.Decoder(Fields)


def leave_out_nulls(fields: Fields) -> None:
    """Leave out nulls in the messages and the tools of a chat request with these ``fields``."""
    if _has_nulls(bytes(fields["messages"]), (b'"content',), are_named=False):
        _change(fields, "messages", ("tool_calls",))
    if "tools" in fields and _has_nulls(bytes(fields["tools"]), _OF_TOOLS, are_named=True):
        _change(fields, "tools", ())


def _has_nulls(text: bytes, names: tuple[bytes, ...], *, are_named: bool) -> bool:
    """Return whether a field of JSON is null, among ``names`` or else outside them. Within texts quotes are escaped."""
    for written in _WRITTEN:
        at = text.find(written)
        while at >= 0:
            if text[at - 1] != _BACKSLASH and text.endswith(names, 0, at) is are_named:
                return True
            at = text.find(written, at + 1)
    return False


def _change(fields: Fields, name: str, lists: tuple[str, ...]) -> None:
    try:
        changed = [_without(each) for each in _OBJECTS.decode(fields[name])]
        for each in changed:
            for inner in lists:
                if inner in each:
                    each[inner] = raw_json([_without(call) for call in _OBJECTS.decode(each[inner])])
    except UNREADABLE:
        return  # the provider reports the error in its own words
    fields[name] = raw_json(changed)


def _without(holder: Fields) -> Fields:
    """Return a message, a call or a tool without its own nulls and those of its function."""
    without_nulls = {name: value for name, value in holder.items() if value != _NULL or name == "content"}
    if "function" in without_nulls:
        inner = _OBJECT.decode(without_nulls["function"])
        without_nulls["function"] = raw_json({name: value for name, value in inner.items() if value != _NULL})
    return without_nulls
