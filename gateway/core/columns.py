"""A field of a record as a column of the ledger: one declaration, the source of everything that shows columns."""

from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from functools import cache
from types import NoneType
from typing import Any, get_args, get_type_hints

import msgspec


class Sql(StrEnum):
    """A type of both databases, with its SQLAlchemy type in ``gateway/ledger/tables.py``."""

    TEXT = "text"
    UUID = "uuid"
    INSTANT = "instant"
    BOOLEAN = "boolean"
    SMALLINT = "smallint"
    INTEGER = "integer"
    BIGINT = "bigint"
    DOUBLE = "double"
    JSON = "json"  # as written
    JSONB = "jsonb"  # for searches


class Column(msgspec.Struct, frozen=True):
    """Makes a field a column, in the field's annotation: ``Annotated[float | None, Column("…")]``.

    The field's name ends with its unit. ``says`` is the meaning, in Markdown with links as in docs/reference/ledger.md:
    for that page, the comment in SQL and the descriptions in OpenAPI.
    """

    says: str
    sql: Sql | None = None  # None: the usual one of the field's type
    may_be_null: bool = False  # also where the field itself is never None
    is_distinct: bool = False  # text with another value in nearly every row
    logged: bool = False  # in the log line of the call, if not null
    traced: bool = False  # an attribute of the span, ``holeshot.`` and its name: 2 µs each, so only some
    listed: bool = False  # in the list of calls, ``GET /api/calls``; of an attempt: with ``attempts=true``
    # The place in the object of which the record is made, as ``caller.client``: needed if the record is made by places.
    of: str = ""


class DescribedColumn(msgspec.Struct, frozen=True):
    """A column of a record with the facts from its field; ``about`` is as declared."""

    name: str
    kind: Any  # the field's type without None
    sql: Sql
    is_nullable: bool
    is_made: bool  # a property of the record, not one of its fields
    about: Column

    @property
    def is_json(self) -> bool:
        """Whether the column's value is stored as JSON."""
        return self.sql in {Sql.JSON, Sql.JSONB}


_USUAL = {bool: Sql.BOOLEAN, int: Sql.INTEGER, float: Sql.DOUBLE, datetime: Sql.INSTANT}


@cache
def columns_of(record: type[msgspec.Struct]) -> tuple[DescribedColumn, ...]:
    """Return the columns of a record: of its fields in their order, then of its own properties."""
    return tuple(_columns_of(record))


def names_of(record: type[msgspec.Struct], shown: str) -> tuple[str, ...]:
    """Return the names of the ``logged``, ``traced`` or ``listed`` columns."""
    return tuple(each.name for each in columns_of(record) if getattr(each.about, shown))


def places_of(record: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the places of a record's columns.

    Raises:
        ValueError: a column has no place

    """
    if without := [each.name for each in columns_of(record) if not each.about.of]:
        raise ValueError(f"no place (of=…) is declared for {', '.join(without)} of {record.__name__}")
    return tuple(each.about.of for each in columns_of(record))


def _columns_of(record: type[msgspec.Struct]) -> Iterator[DescribedColumn]:
    fields = get_type_hints(record, include_extras=True)
    hints = {name: fields[name] for name in record.__struct_fields__}
    properties = {
        name: get_type_hints(value.fget, include_extras=True).get("return")
        for name, value in vars(record).items()
        if isinstance(value, property)
    }
    for name, hint in (hints | properties).items():
        for about in getattr(hint, "__metadata__", ()):
            if isinstance(about, Column):
                yield _described(name, get_args(hint)[0], about, is_made=name in properties)


def _described(name: str, hint: Any, about: Column, *, is_made: bool) -> DescribedColumn:
    options = get_args(hint)
    is_optional = NoneType in options
    kind = next(each for each in options if each is not NoneType) if is_optional else hint
    is_text = isinstance(kind, type) and issubclass(kind, str)
    sql = about.sql or (Sql.TEXT if is_text else _USUAL.get(kind, Sql.JSON))
    return DescribedColumn(name, kind, sql, is_optional or about.may_be_null, is_made, about)
