"""Entries of the spool as rows of the two tables, in the order in which the records have their fields."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import asdict, astuple

from gateway.calls import AttemptRecord, AttemptStart, CallRecord, CallStart, Outcome, size_class
from gateway.ledger.entries import Audited, Entry, Finished, Started

Row = tuple[Any, ...]

# The fields that are no columns are the last ones; the last two columns of each are JSON.
CALL_COLUMNS = CallRecord.__struct_fields__[:-2]
ATTEMPT_COLUMNS = AttemptRecord.__struct_fields__[:-4]

# What an interrupted call was answered nobody knows; to its client it was the gateway's failure.
INTERRUPTED_STATUS = 500
INTERRUPTED = "interrupted"

_encode = msgspec.json.Encoder(enc_hook=dict).encode


def call_rows(entries: Iterable[Entry]) -> Iterator[Row]:
    """Yield the rows of finished calls, and of calls that were begun and never ended."""
    for entry in entries:
        if isinstance(entry, Finished):
            call = entry.call
            dropped = _encode(call.dropped).decode() if call.dropped else None
            yield (*astuple(call)[:-4], dropped, _encode(call.tags).decode())
        elif isinstance(entry, Started):
            yield _interrupted_call(entry.call)


def attempt_rows(entries: Iterable[Entry]) -> Iterator[Row]:
    """Yield the rows of ended attempts, and of those whose call never ended."""
    for entry in entries:
        records: Iterable[AttemptRecord]
        if isinstance(entry, Finished):
            records = entry.call.attempts
        elif isinstance(entry, Audited):
            records = entry.attempts
        else:
            records = [interrupted(attempt, entry.call) for attempt in entry.call.attempts]
        for record in records:
            price = _encode(record.price).decode() if record.price else None
            itl = _encode(record.itl).decode() if record.itl else None
            yield (*astuple(record)[: len(ATTEMPT_COLUMNS) - 2], price, itl)


def interrupted(start: AttemptStart, call: CallStart, *, audited: bool = False) -> AttemptRecord:
    """Return the record of an attempt whose gateway died under it; ``audited``: it had lost already."""
    return AttemptRecord(
        **asdict(start) | {"audited": audited},
        call_id=call.id,
        client=call.client,
        api=call.endpoint,
        size_class=size_class(call.prompt_class),
        win_on=call.win_on,
        outcome=Outcome.INTERRUPTED,
        error_kind=INTERRUPTED,
    )


def _interrupted_call(start: CallStart) -> Row:
    """Return the row of a call whose gateway died under it: when it would have ended nobody knows."""
    known = {
        "launched": len(start.attempts),
        "api": start.endpoint,
        "size_class": size_class(start.prompt_class),
        "status_code": INTERRUPTED_STATUS,
        "error_kind": INTERRUPTED,
        "deadline_met": None if start.deadline_ms is None else False,
        "tags": _encode(start.tags).decode(),
    }
    return tuple(known.get(name, getattr(start, name, None)) for name in CALL_COLUMNS)
