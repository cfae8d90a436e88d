"""What a request expects of its answer: text, calls of the offered tools, or JSON by a schema."""

from collections.abc import Mapping

import msgspec

from gateway.calls import AnswerKind

_Fields = Mapping[str, msgspec.Raw]
_ABSENT = msgspec.Raw()
_EMPTY = frozenset({b"", b"null", b"[]"})


class Expected(msgspec.Struct, frozen=True):
    """What the answer is held against. ``tools`` maps the offered tools to the schema of their arguments, if strict."""

    tools: Mapping[str, bytes | None] = {}
    is_object: bool = False  # any JSON object will do
    schema: bytes | None = None  # that the JSON must have


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


class _Tool(msgspec.Struct):
    name: str | None = None
    function: _Function | None = None
    custom: _Function | None = None
    parameters: msgspec.Raw = _ABSENT
    input_schema: msgspec.Raw = _ABSENT
    strict: bool | None = None


_format = msgspec.json.Decoder(_Format | None)
_around = msgspec.json.Decoder(_Around | None)
_tools = msgspec.json.Decoder(list[_Tool] | None)
_FORMATS = {  # where each dialect says it: chat, Messages (twice), Responses
    "response_format": _format,
    "output_format": _format,
    "output_config": _around,
    "text": _around,
}
_TOOLS = ("tools", "functions")  # functions: chat's former name
EXPECTED = frozenset((*_FORMATS, *_TOOLS))  # the fields that say it
_JSON = frozenset({"json_object", "json_schema"})


def answer_kind(fields: _Fields) -> AnswerKind:
    """Return what the answer to a request with these top-level ``fields`` is judged as."""
    if fields.keys().isdisjoint(EXPECTED):
        return AnswerKind.PLAIN
    if _asked_format(fields) is not None:
        return AnswerKind.JSON
    offered = any(bytes(fields[name]).strip() not in _EMPTY for name in _TOOLS if name in fields)
    return AnswerKind.TOOLS if offered else AnswerKind.PLAIN


def expected(fields: _Fields) -> Expected | None:
    """Return what the answer is held against; None where the request says it in a way that is not understood."""
    tools: dict[str, bytes | None] = {}
    try:
        for name in _TOOLS:
            for tool in (_tools.decode(fields[name]) if name in fields else None) or ():
                _add(tools, tool)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    asked = _asked_format(fields)
    if asked is None:
        return Expected(tools)
    schema = asked.json_schema.schema if asked.json_schema is not None else asked.schema
    return Expected(tools, asked.type == "json_object", bytes(schema) or None)


def _add(tools: dict[str, bytes | None], tool: _Tool) -> None:
    """Add a tool: chat nests its function, the others do not. Messages' arguments always have to keep their schema."""
    inner = tool.function or tool.custom
    name = inner.name if inner is not None else tool.name
    if name is None:
        return  # one that the provider runs itself
    strict, schema = (inner.strict, inner.parameters) if inner is not None else (tool.strict, tool.parameters)
    if bytes(tool.input_schema):
        strict, schema = True, tool.input_schema
    tools[name] = (bytes(schema) or None) if strict else None


def _asked_format(fields: _Fields) -> _Format | None:
    """Return the format in which JSON is asked for, None where it is not."""
    for name, decoder in _FORMATS.items():
        if name not in fields:
            continue
        try:
            said = decoder.decode(fields[name])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        found = said.format if isinstance(said, _Around) else said
        if found is not None and found.type in _JSON:
            return found
    return None
