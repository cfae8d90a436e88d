"""What a request expects of its answer: text, calls of the offered tools, or JSON by a schema."""

from collections.abc import Mapping

import msgspec

from gateway.attempt_records import AnswerKind
from providers.dialects.dialect import Dialect
from providers.dialects.expected import JsonFormat
from providers.dialects.index import DIALECTS
from providers.dialects.wording import Fields

_EMPTY = frozenset({b"", b"null", b"[]"})
_NAMES = {
    dialect: frozenset((*dialect.requests.json_formats, *dialect.requests.tools)) for dialect in DIALECTS.values()
}


EXPECTED: frozenset[str] = frozenset().union(*_NAMES.values())  # the fields that say it, in any dialect


class Expected(msgspec.Struct, frozen=True):
    """What the answer is held against. ``tools`` maps the offered tools to the schema of their arguments, if strict."""

    tools: Mapping[str, bytes | None] = {}
    is_object: bool = False  # any JSON object will do
    schema: bytes | None = None  # that the JSON must have


def answer_kind(fields: Fields, dialect: Dialect) -> AnswerKind:
    """Return what the answer to a request of ``dialect`` with these top-level ``fields`` is judged as."""
    if fields.keys().isdisjoint(_NAMES[dialect]):
        return AnswerKind.PLAIN
    if _asked_format(fields, dialect) is not None:
        return AnswerKind.JSON
    offered = any(bytes(fields[name]).strip() not in _EMPTY for name in dialect.requests.tools if name in fields)
    return AnswerKind.TOOLS if offered else AnswerKind.PLAIN


def expected(fields: Fields, dialect: Dialect) -> Expected | None:
    """Return what the answer is held against; None where the request says it in a way that is not understood."""
    tools: dict[str, bytes | None] = {}
    try:
        for name, read in dialect.requests.tools.items():
            if name in fields:
                tools.update((tool.name, tool.schema) for tool in read(fields[name]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    asked = _asked_format(fields, dialect)
    return Expected(tools) if asked is None else Expected(tools, asked.any_object, asked.schema)


def _asked_format(fields: Fields, dialect: Dialect) -> JsonFormat | None:
    """Return the format in which JSON is asked for, None where it is not."""
    for name, read in dialect.requests.json_formats.items():
        if name in fields and (asked := read(fields[name])) is not None:
            return asked
    return None
