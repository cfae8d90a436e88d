"""Converts entries of the spool to rows of the tables, by the names of their columns."""

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any

import msgspec
from msgspec.structs import asdict

from gateway.attempt_records import AttemptRecord, AttemptStart, Outcome
from gateway.calls import CallRecord, CallStart
from gateway.ledger.entries import Audited, Entry, Finished, Lasting, Outage, Refused, Started
from gateway.outage_records import OutageRecord
from gateway.prompt_classes import decoded_class
from gateway.refusal_records import RefusalRecord

Row = tuple[Any, ...]

_encode = msgspec.json.Encoder(enc_hook=dict).encode


class Columns:
    """The columns of one table, which are fields of a record with the same names.

    ``left_out`` are fields without a column, ``json`` those stored as JSON. ``names`` are the columns, JSON last;
    ``plain`` returns a record's values of the others, in order, in half a microsecond.
    """

    __slots__ = ("names", "plain")

    def __init__(self, record: type[msgspec.Struct], *, left_out: frozenset[str], json: tuple[str, ...]) -> None:
        plain = tuple(name for name in record.__struct_fields__ if name not in left_out and name not in json)
        self.names = (*plain, *json)
        self.plain: Callable[[msgspec.Struct], Row] = attrgetter(*plain)


_CALLS = Columns(CallRecord, left_out=frozenset(("attempts", "kind", "trace")), json=("dropped", "tags"))
_ATTEMPTS = Columns(
    AttemptRecord,
    left_out=frozenset(("asked_tokens", "headroom", "is_narrowed", "retry_after_s")),
    json=("price", "itl"),
)
_REFUSALS = Columns(RefusalRecord, left_out=frozenset(), json=())
_OUTAGES = Columns(OutageRecord, left_out=frozenset(), json=())
CALL_COLUMNS = _CALLS.names
ATTEMPT_COLUMNS = _ATTEMPTS.names
REFUSAL_COLUMNS = _REFUSALS.names
OUTAGE_COLUMNS = _OUTAGES.names

# The status of an interrupted call is unknown; for its client it was the gateway's failure.
INTERRUPTED_STATUS = 500
INTERRUPTED = "interrupted"


def call_rows(entries: Iterable[Entry]) -> Iterator[Row]:
    """Yield the rows of finished calls, and of calls that began but never ended."""
    for entry in entries:
        if isinstance(entry, Finished):
            call = entry.call
            dropped = _encode(call.dropped).decode() if call.dropped else None
            yield _CALLS.plain(call) + (dropped, _encode(call.tags).decode())  # noqa: RUF005 - a fifth faster
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
        elif isinstance(entry, Refused | Outage | Lasting):
            continue
        else:
            records = [interrupted(attempt, entry.call) for attempt in entry.call.attempts]
        for record in records:
            price = _encode(record.price).decode() if record.price else None
            itl = _encode(record.itl).decode() if record.itl else None
            yield _ATTEMPTS.plain(record) + (price, itl)  # noqa: RUF005 - likewise


def refusal_rows(entries: Iterable[Entry]) -> Iterator[Row]:
    """Yield the rows of refusals."""
    for entry in entries:
        if isinstance(entry, Refused):
            yield from map(_REFUSALS.plain, entry.refusals)


def outage_rows(entries: Iterable[Entry]) -> Iterator[Row]:
    """Yield the rows of outages, one for each: its end if that is among the entries."""
    outages: dict[str, OutageRecord] = {}
    for entry in entries:
        if isinstance(entry, Outage) and (entry.outage.ended_at is not None or entry.outage.id not in outages):
            outages[entry.outage.id] = entry.outage
    yield from map(_OUTAGES.plain, outages.values())


def interrupted(start: AttemptStart, call: CallStart, *, audited: bool = False) -> AttemptRecord:
    """Return the record of an attempt whose gateway died; ``audited``: it had lost already."""
    return AttemptRecord(
        **asdict(start) | {"audited": audited},
        call_id=call.id,
        client=call.client,
        api=call.endpoint,
        size_class=decoded_class(call.prompt_class).size,
        win_on=call.win_on,
        outcome=Outcome.INTERRUPTED,
        error_kind=INTERRUPTED,
    )


def _interrupted_call(start: CallStart) -> Row:
    """Return the row of a call whose gateway died: its end is unknown."""
    known = {
        "launched": len(start.attempts),
        "api": start.endpoint,
        "size_class": decoded_class(start.prompt_class).size,
        "status_code": INTERRUPTED_STATUS,
        "error_kind": INTERRUPTED,
        "deadline_met": None if start.deadline_ms is None else False,
        "tags": _encode(start.tags).decode(),
    }
    return tuple(known.get(name, getattr(start, name, None)) for name in CALL_COLUMNS)
