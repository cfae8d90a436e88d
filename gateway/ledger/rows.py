"""Entries of the spool as rows of the two tables, in the order of their columns."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import msgspec
from sqlalchemy import Text

from gateway.calls import AttemptRecord, AttemptStart, CallStart, Outcome
from gateway.ledger.entries import Audited, Entry, Finished
from gateway.ledger.tables import attempts, calls

Row = tuple[Any, ...]

CALL_COLUMNS = tuple(column.name for column in calls.columns)
ATTEMPT_COLUMNS = tuple(column.name for column in attempts.columns)

# What an interrupted call was answered nobody knows; to its client it was the gateway's failure.
INTERRUPTED_STATUS = 500
INTERRUPTED = "interrupted"

_CALL_TEXTS, _ATTEMPT_TEXTS = (
    tuple(at for at, column in enumerate(table.columns) if isinstance(column.type, Text)) for table in (calls, attempts)
)
_TAGS = CALL_COLUMNS.index("tags")

_call_values = attrgetter(*CALL_COLUMNS)
_attempt_values = attrgetter(*ATTEMPT_COLUMNS)


class Rows(msgspec.Struct, frozen=True):
    """Rows to insert, of both tables."""

    calls: list[Row]
    attempts: list[Row]


def rows_of(entries: Iterable[Entry]) -> Rows:
    """Return the rows of finished calls, of audited attempts, and of calls that were begun and never ended."""
    rows = Rows([], [])
    for entry in entries:
        records: Iterable[AttemptRecord]
        if isinstance(entry, Audited):
            records = entry.attempts
        elif isinstance(entry, Finished):
            rows.calls.append(_call_row(_call_values(entry.call)))
            records = entry.call.attempts
        else:
            rows.calls.append(_call_row(_interrupted_call_values(entry.call)))
            records = (interrupted(attempt, entry.call.id) for attempt in entry.call.attempts)
        rows.attempts.extend(_without_nul(_attempt_values(record), _ATTEMPT_TEXTS) for record in records)
    return rows


def _interrupted_call_values(start: CallStart) -> Row:
    """Return the columns of a call whose gateway died under it: when it would have ended nobody knows."""
    known = {"launched": len(start.attempts), "status_code": INTERRUPTED_STATUS, "error_kind": INTERRUPTED}
    return tuple(known.get(name, getattr(start, name, None)) for name in CALL_COLUMNS)


def interrupted(start: AttemptStart, call_id: str, *, audited: bool = False) -> AttemptRecord:
    """Return the record of an attempt whose gateway died under it; ``audited``: it had lost already."""
    return AttemptRecord(
        id=start.id,
        call_id=call_id,
        number=start.number,
        started_at=start.started_at,
        role=start.role,
        provider=start.provider,
        deployment=start.deployment,
        launch_offset_ms=start.launch_offset_ms,
        audited=audited,
        outcome=Outcome.INTERRUPTED,
        error_kind=INTERRUPTED,
    )


def _call_row(values: Row) -> Row:
    tags = {_text(name): _text(value) for name, value in values[_TAGS].items()}
    return _without_nul((*values[:_TAGS], msgspec.json.encode(tags).decode(), *values[_TAGS + 1 :]), _CALL_TEXTS)


def _without_nul(values: Row, texts: Iterable[int]) -> Row:
    """Drop NUL characters, which Postgres cannot store, from the values at the places ``texts``."""
    if any(values[at] is not None and "\x00" in values[at] for at in texts):
        return tuple(_text(value) if isinstance(value, str) else value for value in values)
    return values


def _text(value: str) -> str:
    return value.replace("\x00", "")
