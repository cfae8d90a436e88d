"""Rows as a report has them: JSON's types, the same from both databases and from a record in memory."""

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
from sqlalchemy import JSON, Boolean, Column

from gateway.ledger import tables
from gateway.ledger.reports.reader import Answer

_COLUMNS: tuple[Column[Any], ...] = (*tables.calls.columns, *tables.attempts.columns, *tables.alerts.columns)
_BOOLEANS = frozenset(column.name for column in _COLUMNS if isinstance(column.type, Boolean))
_JSONS = frozenset(column.name for column in _COLUMNS if isinstance(column.type, JSON))
_encode = msgspec.json.Encoder(enc_hook=dict).encode


def rows(answer: Answer) -> list[dict[str, Any]]:
    """Return the rows by column: SQLite's text and numbers as the instants, booleans and JSON that they are."""
    return [{name: _value(name, value) for name, value in zip(answer.columns, row, strict=True)} for row in answer.rows]


def of_record(record: msgspec.Struct, names: Iterable[str]) -> dict[str, Any]:
    """Return the fields of a record that are columns, as the row will have them."""
    return {name: _field(name, getattr(record, name, None)) for name in names}


def instant(written: str) -> datetime:
    """Parse an instant as SQLite stores it: UTC, without a time zone."""
    at = datetime.fromisoformat(written)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _value(name: str, value: Any) -> Any:
    match value:
        case Decimal():  # Postgres' sum of whole numbers
            return int(value) if value == value.to_integral_value() else float(value)
        case str() if name in _JSONS:
            return msgspec.Raw(value.encode())
        case str() if name.endswith("_at"):
            return instant(value)
        case int() if name in _BOOLEANS:
            return bool(value)
        case _:
            return value


def _field(name: str, value: Any) -> Any:
    if name not in _JSONS:
        return value
    return msgspec.Raw(_encode(value)) if value or name == "tags" else None  # as gateway.ledger.rows stores them
