"""What a request expects of its answer: calls of the offered tools, JSON by a schema.

OpenAI's APIs and Anthropic's word it so similarly that one reader can do for all.
"""

import msgspec

_ABSENT = msgspec.Raw()
_JSON = frozenset({"json_object", "json_schema"})
_NONE = frozenset({b"", b"null"})
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class JsonFormat(msgspec.Struct, frozen=True):
    """The answer must be JSON."""

    any_object: bool = False  # any JSON object is right
    schema: bytes | None = None  # the JSON Schema that it must match


class OfferedTool(msgspec.Struct, frozen=True):
    """A tool that the model may call."""

    name: str
    schema: bytes | None = None  # the JSON Schema of its arguments, if there is one
    strict: bool = False  # they must match it


class _Inner(msgspec.Struct):
    schema: msgspec.Raw = _ABSENT


class _Format(msgspec.Struct):
    type: str | None = None
    schema: msgspec.Raw = _ABSENT
    json_schema: _Inner | None = None


class _Around(msgspec.Struct):
    format: _Format | None = None


class _Function(msgspec.Struct):
    name: str | None = None
    parameters: msgspec.Raw = _ABSENT
    strict: bool | None = None


class _Tool(_Function):
    function: _Function | None = None
    custom: _Function | None = None
    tools: list[_Function] | None = None  # of a namespace, in Responses: they are called by their own names


_formats = msgspec.json.Decoder(_Format | None)
_around = msgspec.json.Decoder(_Around | None)
_tools = msgspec.json.Decoder(list[_Tool] | None)


def json_format(raw: msgspec.Raw) -> JsonFormat | None:
    """Read a field that is a format, such as ``response_format``; None where it does not ask for JSON."""
    try:
        return _json_format(_formats.decode(raw))
    except _UNREADABLE:
        return None


def json_format_within(raw: msgspec.Raw) -> JsonFormat | None:
    """Read a field that contains a ``format``, such as ``text``; None where it does not ask for JSON."""
    try:
        around = _around.decode(raw)
    except _UNREADABLE:
        return None
    return None if around is None else _json_format(around.format)


def openai_tools(raw: msgspec.Raw) -> list[OfferedTool]:
    """Read OpenAI's tools, nested as in chat, flat or in namespaces. Those without a name run at the provider.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: the field has another format.

    """
    said = _tools.decode(raw) or ()
    functions = [each for tool in said for each in tool.tools or (tool.function or tool.custom or tool,)]
    found: dict[str, OfferedTool] = {}
    for each in functions:
        if each.name is not None:
            offered = OfferedTool(each.name, schema_in(each.parameters), bool(each.strict))
            # Of two with one name, in different namespaces, nobody knows which is called.
            found[each.name] = offered if found.get(each.name, offered) == offered else OfferedTool(each.name)
    return list(found.values())


def schema_in(raw: msgspec.Raw) -> bytes | None:
    """Return a field's JSON Schema; None if it has none."""
    schema = bytes(raw)
    return None if schema in _NONE else schema


def _json_format(asked: _Format | None) -> JsonFormat | None:
    if asked is None or asked.type not in _JSON:
        return None
    schema = asked.json_schema.schema if asked.json_schema is not None else asked.schema
    return JsonFormat(asked.type == "json_object", bytes(schema) or None)
