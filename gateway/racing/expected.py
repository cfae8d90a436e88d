"""What a request requires of its answer's form: text, calls of the offered tools, or JSON by a schema."""

from collections.abc import Mapping

import msgspec

from gateway.attempt_records import AnswerKind
from providers.dialects.dialect import Dialect
from providers.dialects.expected import JsonFormat
from providers.dialects.index import DIALECTS
from providers.dialects.wording import Fields

_EMPTY = frozenset({b"", b"null", b"[]"})
_ONE = frozenset({b"", b"null", b"1"})
_NAMES = {
    dialect: frozenset((*dialect.requests.json_formats, *dialect.requests.tools)) for dialect in DIALECTS.values()
}


EXPECTED: frozenset[str] = frozenset().union(*_NAMES.values())  # the fields that say it, in all dialects


class Expected(msgspec.Struct, frozen=True):
    """The required form. ``tools`` maps the names of offered tools to the schema of their arguments, if strict."""

    tools: Mapping[str, bytes | None] = {}
    is_object: bool = False  # any JSON object
    schema: bytes | None = None  # for the JSON


def answer_kind(fields: Fields, dialect: Dialect) -> AnswerKind:
    """Return how the answer to a request of ``dialect`` with these top-level ``fields`` is judged."""
    if fields.keys().isdisjoint(_NAMES[dialect]):
        return AnswerKind.PLAIN
    if _asked_format(fields, dialect) is not None:
        return AnswerKind.JSON
    offered = any(bytes(fields[name]).strip() not in _EMPTY for name in dialect.requests.tools if name in fields)
    return AnswerKind.TOOLS if offered else AnswerKind.PLAIN


def asks_for_several(fields: Fields, dialect: Dialect) -> bool:
    """Whether a request asks for more than one answer, which are streamed side by side."""
    field = dialect.requests.choices
    return field is not None and field in fields and bytes(fields[field]).strip() not in _ONE


def expected(fields: Fields, dialect: Dialect, *, every_schema: bool = False) -> Expected | None:
    """Return the required form of the answer; None if it cannot be read from the request.

    ``every_schema``: arguments must match the schemas of tools that are not strict, too.
    """
    tools: dict[str, bytes | None] = {}
    try:
        for name, read in dialect.requests.tools.items():
            if name in fields:
                tools.update(
                    (tool.name, tool.schema if tool.strict or every_schema else None) for tool in read(fields[name])
                )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    asked = _asked_format(fields, dialect)
    return Expected(tools) if asked is None else Expected(tools, asked.any_object, asked.schema)


def _asked_format(fields: Fields, dialect: Dialect) -> JsonFormat | None:
    """Return the requested format of JSON; None if JSON is not requested."""
    for name, read in dialect.requests.json_formats.items():
        if name in fields and (asked := read(fields[name])) is not None:
            return asked
    return None
