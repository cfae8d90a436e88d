"""Writes a query's result as a Parquet file, streamed; the file appears when it is complete.

Postgres reports the type of each column. SQLite has types only of values, so the result is read once before it is
written, and a column without values has the type of the ledger's column of this name.
"""

import os
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.cli.terminal import json_text

if TYPE_CHECKING:
    from gateway.ledger import queries

GROUP_ROWS = 20_000  # in a row group, which is kept in memory: about 20 MB of attempts
HOW_TO_INSTALL = "--parquet needs pyarrow; run: pip install 'holeshot[parquet]'"


class ResultError(Exception):
    """A result that cannot be written; the message says why."""


def check_columns(columns: Sequence[str]) -> None:
    """Check that each of ``columns`` has a name of its own.

    Raises:
        ResultError: several have one name.

    """
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise ResultError(f"several columns are named {', '.join(twice)}: rename them with AS")


class Kind(StrEnum):
    """The type of a column."""

    INTEGER = "int64"
    FLOAT = "double"
    BOOLEAN = "bool"
    INSTANT = "timestamp"
    DATE = "date32"
    TEXT = "string"


def is_installed() -> bool:
    """Whether the optional library for these files is installed."""
    try:
        import pyarrow.parquet  # noqa: F401, PLC0415 - missing without the extra, and slow to import
    except ImportError:
        return False
    return True


def kinds_of_postgres(types: Sequence[str]) -> list[Kind]:
    """Return the kinds of columns with these Postgres types; types that Parquet does not have become text."""
    return [_OF_POSTGRES.get(name, Kind.TEXT) for name in types]


async def kinds_of_sqlite(columns: Sequence[str], batches: AsyncIterator[list[tuple[Any, ...]]]) -> list[Kind]:
    """Return the kinds of a result's columns, from all its values."""
    seen: list[set[Kind]] = [set() for _ in columns]
    async for batch in batches:
        for kinds, values in zip(seen, zip(*batch, strict=True), strict=True):
            if Kind.TEXT not in kinds:  # text can hold all other kinds
                kinds.update(_kind(value) for value in values if value is not None)
    usual = _kinds_of_ledger()
    return [_common(kinds) if kinds else usual.get(name, Kind.TEXT) for name, kinds in zip(columns, seen, strict=True)]


async def write_parquet(answer: "queries.Answer", kinds: Sequence[Kind], path: Path) -> int:
    """Write ``answer`` to ``path``, one row group at a time; return the number of rows.

    Raises:
        ResultError: two columns have one name, a value is not of its column's kind, or the file cannot be written.

    """
    import pyarrow as pa  # noqa: PLC0415 - missing without the extra, and slow to import
    from pyarrow.parquet import ParquetWriter  # noqa: PLC0415 - likewise

    check_columns(answer.columns)
    types = {Kind.INSTANT: pa.timestamp("us", tz="UTC"), Kind.DATE: pa.date32(), Kind.TEXT: pa.string()} | {
        Kind.INTEGER: pa.int64(),
        Kind.FLOAT: pa.float64(),
        Kind.BOOLEAN: pa.bool_(),
    }
    schema = pa.schema([(name, types[kind]) for name, kind in zip(answer.columns, kinds, strict=True)])

    def recorded(batch: list[tuple[Any, ...]]) -> Any:
        columns = zip(schema, kinds, zip(*batch, strict=True), strict=True)
        return pa.record_batch([_array(pa, field, kind, values) for field, kind, values in columns], schema=schema)

    total = 0
    try:
        with _whole_or_not(path) as part, ParquetWriter(part, schema, compression="zstd") as writer:
            group: list[Any] = []
            rows = 0
            async for batch in answer.batches:
                group.append(recorded(batch))
                rows += len(batch)
                if rows >= GROUP_ROWS:
                    writer.write_table(pa.Table.from_batches(group, schema))
                    total, rows, group = total + rows, 0, []
            if group:
                writer.write_table(pa.Table.from_batches(group, schema))
    except OSError as error:
        raise ResultError(f"cannot write {path}: {error.strerror or error}") from error
    return total + rows


@contextmanager
def _whole_or_not(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside ``path`` that is renamed at the end, or deleted after a failure."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _array(pa: Any, field: Any, kind: Kind, values: Sequence[Any]) -> Any:
    as_kind = _AS_KIND[kind]
    try:
        return pa.array([None if value is None else as_kind(value) for value in values], type=field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ResultError(f"column {field.name!r} has a value that is not {kind}: {error}") from error


def _instant(value: datetime | str) -> datetime:
    """Convert an instant from the driver, or from SQLite's text; all are UTC."""
    read = datetime.fromisoformat(value) if isinstance(value, str) else value
    return read.replace(tzinfo=UTC) if read.tzinfo is None else read


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return json_text(value) if isinstance(value, dict | list | tuple) else str(value)


_AS_KIND: Mapping[Kind, Callable[[Any], Any]] = {
    Kind.INTEGER: int,
    Kind.FLOAT: float,
    Kind.BOOLEAN: bool,
    Kind.INSTANT: _instant,
    Kind.DATE: lambda value: value,
    Kind.TEXT: _text,
}
_OF_POSTGRES: Mapping[str, Kind] = (
    dict.fromkeys(("int2", "int4", "int8", "oid"), Kind.INTEGER)
    | dict.fromkeys(("float4", "float8", "numeric"), Kind.FLOAT)
    | dict.fromkeys(("timestamp", "timestamptz"), Kind.INSTANT)
    | {"bool": Kind.BOOLEAN, "date": Kind.DATE}
)
_is_instant = partial(
    re.fullmatch, r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{6})?"
)  # as SQLAlchemy and datetime() write it


def _kind(value: object) -> Kind:
    if isinstance(value, int):
        return Kind.INTEGER
    if isinstance(value, float):
        return Kind.FLOAT
    return Kind.INSTANT if isinstance(value, str) and _is_instant(value) else Kind.TEXT


def _common(kinds: set[Kind]) -> Kind:
    if len(kinds) == 1:
        return next(iter(kinds))
    return Kind.FLOAT if kinds <= {Kind.INTEGER, Kind.FLOAT} else Kind.TEXT


def _kinds_of_ledger() -> Mapping[str, Kind]:
    """Return the kinds of the ledger's own columns on SQLite, by name."""
    from sqlalchemy import Boolean, DateTime, Double, Integer  # noqa: PLC0415 - SQLAlchemy only where it is needed

    from gateway.ledger import metadata  # noqa: PLC0415 - likewise

    known = {Boolean: Kind.INTEGER, Integer: Kind.INTEGER, Double: Kind.FLOAT, DateTime: Kind.INSTANT}
    return {
        column.name: kind
        for table in metadata.tables.values()
        for column in table.columns
        for type_, kind in known.items()
        if isinstance(column.type, type_)
    }
