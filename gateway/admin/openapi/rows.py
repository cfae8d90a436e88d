"""Rows of calls and attempts in answers: the columns that their records declare, as schemas of /openapi.json.

Handlers answer rows as they come from the ledger: ``gateway.core.reports`` has the annotations that name these schemas.
"""

import re
from collections.abc import Collection, Iterator
from itertools import chain
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway.core.attempts import AttemptRecord, AttemptStart
from gateway.core.calls import CallHead, CallRecord
from gateway.core.columns import Sql, columns_of, names_of
from gateway.core.reports import OF_WINNER, Instant, ListedAttempt

_TYPES = {
    **dict.fromkeys((Sql.TEXT, Sql.UUID), str),
    **dict.fromkeys((Sql.SMALLINT, Sql.INTEGER, Sql.BIGINT), int),
    Sql.INSTANT: Instant,
    Sql.BOOLEAN: bool,
    Sql.DOUBLE: float,
}
_LINK = re.compile(r"\[([^\[\]]+)\]\([^()]+\)")


def _fields(record: type[msgspec.Struct], names: Collection[str], sure: Collection[str]) -> Iterator[tuple[str, Any]]:
    """Yield fields for columns of a record; what is not ``sure`` may be null."""
    for each in columns_of(record):
        if each.name in names:
            kind = _TYPES.get(each.sql, each.kind)
            described = Meta(description=_LINK.sub(r"\1", each.about.says))
            yield each.name, Annotated[kind if each.name in sure else kind | None, described]


def _row(name: str, about: str, fields: Iterator[tuple[str, Any]], *bases: type[msgspec.Struct]) -> Any:
    return msgspec.defstruct(name, fields, bases=bases, namespace={"__doc__": about}, kw_only=True)


class _Listed(msgspec.Struct, kw_only=True):
    api: Annotated[str, Meta(description="`chat`, `messages`, `embeddings` …")]
    is_stored: Annotated[bool, Meta(description="False: from memory, as its row is not in the database yet.")]
    attempts: Annotated[list[ListedAttempt] | UnsetType, Meta(description="With `attempts=true`.")] = UNSET


def _never_null(record: type[msgspec.Struct]) -> frozenset[str]:
    return frozenset(each.name for each in columns_of(record) if not each.is_nullable)


_OF_CALL, _OF_ATTEMPT = _never_null(CallRecord), _never_null(AttemptRecord)
_AT_START = frozenset(CallHead.__struct_fields__), frozenset((*AttemptStart.__struct_fields__, "call_id"))
ROWS = (
    _row(
        "ListedCall",
        "One call, with what is known of its winner.",
        chain(_fields(CallRecord, names_of(CallRecord, "listed"), _OF_CALL), _fields(AttemptRecord, OF_WINNER, ())),
        _Listed,
    ),
    _row(
        "ListedAttempt",
        "One attempt of a call.",
        _fields(AttemptRecord, names_of(AttemptRecord, "listed"), _OF_ATTEMPT),
    ),
    _row(
        "CallRow",
        "All columns of a call; what is known only at its end is null before.",
        _fields(CallRecord, [each.name for each in columns_of(CallRecord)], _OF_CALL & _AT_START[0]),
    ),
    _row(
        "AttemptRow",
        "All columns of an attempt; what is known only at its end is null before.",
        _fields(AttemptRecord, [each.name for each in columns_of(AttemptRecord)], _OF_ATTEMPT & _AT_START[1]),
    ),
)
