"""The entries of the spool, one JSON line each: calls' starts and ends, late attempts, refusals, outages, names."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from operator import attrgetter
from typing import Any

import msgspec
from msgspec.structs import astuple, replace

from gateway.core.attempts import AttemptRecord, AttemptStart, Outcome
from gateway.core.calls import TENANT, CallRecord, CallStart
from gateway.core.columns import columns_of
from gateway.core.prompt_classes import decoded_class
from gateway.core.records import OutageRecord, RefusalRecord, StoredName
from gateway.core.rules import has_failed
from providers import encoded


class Started(msgspec.Struct, frozen=True, tag="started", gc=False):
    """A call has begun. The entry becomes rows only if the gateway dies before the call ends."""

    call: CallStart


class Finished(msgspec.Struct, frozen=True, tag="finished", gc=False):
    """A call has ended: a row of ``calls`` and its rows of ``attempts``."""

    call: CallRecord


class Audited(msgspec.Struct, frozen=True, tag="audited", gc=False):
    """Attempts that were watched longer than their call: rows of ``attempts``."""

    call_id: str
    attempts: tuple[AttemptRecord, ...]


class Watched(msgspec.Struct, frozen=True, tag="watched", gc=False):
    """Attempts that are still watched after the end of their call; they become rows only if the gateway dies."""

    call: CallStart  # with the watched attempts only


class RefusedRequests(msgspec.Struct, frozen=True, tag="refused", gc=False):
    """The refusals of a minute: rows of ``refusals``."""

    refusals: tuple[RefusalRecord, ...]


class OutageChange(msgspec.Struct, frozen=True, tag="outage", gc=False):
    """An outage has begun or ended: a new row of ``outages``, or the end in that row."""

    outage: OutageRecord


class Lasting(msgspec.Struct, frozen=True, tag="lasting", gc=False):
    """Outages that lasted at the instant ``at``. If the gateway dies, the last such instant becomes their end."""

    outages: tuple[OutageRecord, ...]
    at: datetime


class Named(msgspec.Struct, frozen=True, tag="named", gc=False):
    """Resources at a provider that an answer has named: new rows of ``stored_names``, or changes to these rows."""

    names: tuple[StoredName, ...]


Entry = Started | Finished | Audited | Watched | RefusedRequests | OutageChange | Lasting | Named
Shippable = Finished | Audited | RefusedRequests | OutageChange | Named
NO_ROWS = (Started, Watched, Lasting)  # become rows only if the gateway dies


def _plain(value: Any) -> Any:
    """Return a read-only mapping as a dictionary, for msgspec."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} does not belong in the ledger")


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)
_DECODER: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)
_NUL = b"\\u0000"
_BACKSLASH = b"\\"[0]  # a number is found faster than bytes


def encode_into(entry: Entry, line: bytearray) -> bool:
    """Write ``entry`` with a newline into ``line``; return whether the line has exactly the entry's content.

    Characters that no database can store are missing in the line, or removed by ``decode``.

    Raises:
        TypeError: a value that JSON cannot represent.

    """
    try:
        _ENCODER.encode_into(entry, line)
    except UnicodeEncodeError:  # a header's invalid bytes, kept as lone surrogates
        line[:] = _ENCODER.encode(storable(msgspec.to_builtins(entry, enc_hook=_plain)))
        line += b"\n"
        return False
    line += b"\n"
    return not _has_nul(line)


def encode(entry: Entry) -> bytes:
    """Return ``entry`` as one line.

    Raises:
        TypeError: a value that JSON cannot represent.

    """
    line = bytearray()
    encode_into(entry, line)
    return bytes(line)


def decode(line: bytes | bytearray) -> Entry:
    """Return the entry of a line.

    Raises:
        msgspec.DecodeError: the line is incomplete, or is not an entry.

    """
    if _has_nul(line):
        line = encoded(storable(msgspec.json.decode(line)))
    return _DECODER.decode(line)


def _has_nul(line: bytes | bytearray) -> bool:
    return _BACKSLASH in line and line.find(_NUL) >= 0  # few lines have a backslash, and this check is fast


def storable(value: Any) -> Any:
    """Replace lone surrogates, which are not valid UTF-8, and remove NUL characters, which Postgres rejects."""
    match value:
        case str():
            return value.replace("\x00", "").encode("utf-8", "replace").decode()
        case dict():
            return {storable(key): storable(item) for key, item in value.items()}
        case list() | tuple():
            return [storable(item) for item in value]
        case _:
            return value


# Rows of tables, made from entries of the spool, by the names of the columns.

Row = tuple[Any, ...]

_encode = msgspec.json.Encoder(enc_hook=dict).encode


class Columns:
    """The columns of a record's table: first those with plain values, then those that are stored as JSON.

    ``plain`` returns a record's plain values in order, in half a microsecond; ``row`` returns all values.
    """

    __slots__ = ("_json", "declared", "names", "plain")

    def __init__(self, record: type[msgspec.Struct]) -> None:
        self.declared = columns_of(record)
        plain = [each.name for each in self.declared if not each.is_json]
        json = [each for each in self.declared if each.is_json]
        self.names = (*plain, *(each.name for each in json))
        self.plain: Callable[[msgspec.Struct], Row] = attrgetter(*plain)
        self._json = [(each.name, not each.is_nullable) for each in json]

    def row(self, record: msgspec.Struct) -> Row:
        """Return a record's row. An empty JSON value is null, if the column may be null."""
        return self.plain(record) + tuple(
            [
                _encode(value).decode() if (value := getattr(record, name)) or is_kept else None
                for name, is_kept in self._json
            ]
        )


_CALLS, _ATTEMPTS = Columns(CallRecord), Columns(AttemptRecord)
_REFUSALS, _OUTAGES, _NAMES = Columns(RefusalRecord), Columns(OutageRecord), Columns(StoredName)
TABLES = {
    "calls": _CALLS,
    "attempts": _ATTEMPTS,
    "refusals": _REFUSALS,
    "outages": _OUTAGES,
    "stored_names": _NAMES,
}
CALL_COLUMNS = _CALLS.names
ATTEMPT_COLUMNS = _ATTEMPTS.names
REFUSAL_COLUMNS = _REFUSALS.names
OUTAGE_COLUMNS = _OUTAGES.names
NAME_COLUMNS = _NAMES.names

# The status of an interrupted call is unknown; for the client the gateway failed.
INTERRUPTED_STATUS = 500
# Error 500 interrupted: The gateway died or was killed while the call ran. The next process writes the row.
# Retry: not sent.
# Caller: Retry: the connection broke.
# Operator: Find out why: `worker.died` in the log, or the kernel's log if memory ran out.
INTERRUPTED = "interrupted"


def call_rows(entries: Iterable[Entry]) -> Iterator[Row]:
    """Yield the rows of finished calls, and of calls that began but never ended."""
    for entry in entries:
        if isinstance(entry, Finished):
            yield _CALLS.row(entry.call)
        elif isinstance(entry, Started):
            yield _interrupted_call(entry.call)


def attempt_rows(entries: Iterable[Entry]) -> Iterator[Row]:
    """Yield the rows of ended attempts, and of attempts whose call never ended."""
    for entry in entries:
        records: Iterable[AttemptRecord]
        if isinstance(entry, Finished):
            records = entry.call.attempts
        elif isinstance(entry, Audited):
            records = entry.attempts
        elif isinstance(entry, Watched | RefusedRequests | OutageChange | Lasting | Named):
            continue
        else:
            records = [interrupted(attempt, entry.call) for attempt in entry.call.attempts]
        yield from map(_ATTEMPTS.row, records)


def refusal_rows(entries: Iterable[Entry]) -> Iterator[Row]:
    """Yield the rows of refusals."""
    for entry in entries:
        if isinstance(entry, RefusedRequests):
            yield from map(_REFUSALS.plain, entry.refusals)


def outage_rows(entries: Iterable[Entry]) -> Iterator[Row]:
    """Yield one row for each outage, with the end if an entry has one."""
    outages: dict[str, OutageRecord] = {}
    for entry in entries:
        if isinstance(entry, OutageChange) and (entry.outage.ended_at is not None or entry.outage.id not in outages):
            outages[entry.outage.id] = entry.outage
    yield from map(_OUTAGES.plain, outages.values())


def name_rows(entries: Iterable[Entry]) -> Iterator[Row]:
    """Yield one row for each stored name, by the last entry; sorted, so that two processes never lock each other."""
    names: dict[str, StoredName] = {}
    for entry in entries:
        if isinstance(entry, Named):
            names.update((each.id, each) for each in entry.names)
    yield from (_NAMES.plain(names[name]) for name in sorted(names))


def interrupted(start: AttemptStart, call: CallStart, *, audited: bool = False) -> AttemptRecord:
    """Return the record of an attempt whose gateway died; ``audited``: the attempt had lost already."""
    return AttemptRecord(
        *astuple(replace(start, audited=audited)),
        key_name=None if start.learnt_as is None else TENANT,
        call_id=call.id,
        client=call.client,
        api=call.endpoint,
        size_class=decoded_class(call.prompt_class).size,
        win_on=call.win_on,
        outcome=Outcome.INTERRUPTED,
        error_kind=INTERRUPTED,
    )


def _interrupted_call(start: CallStart) -> Row:
    """Return the row of a call whose gateway died."""
    values = {
        "launched": len(start.attempts),
        "extras": max(0, len(start.attempts) - 1),  # launched at once
        "api": start.endpoint,
        "size_class": decoded_class(start.prompt_class).size,
        "status_code": INTERRUPTED_STATUS,
        "error_kind": INTERRUPTED,
        "failed": has_failed(INTERRUPTED_STATUS, INTERRUPTED),
        "deadline_met": None if start.deadline_ms is None else False,
        "tags": _encode(start.tags).decode(),
    }
    return tuple(values.get(name, getattr(start, name, None)) for name in CALL_COLUMNS)


# Open outages. The spool regularly notes that they last, so that an outage ends if the process is killed.

NOTED_EVERY_S = 5.0  # while an outage lasts; the recorded end is at most this much too early


class OpenOutages:
    """The outages without an end, and when each outage was last seen open."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[OutageRecord, datetime]] = {}
        self._noted_at_s = 0.0

    def __bool__(self) -> bool:
        """Whether there are open outages."""
        return bool(self._seen)

    def note(self, outage: OutageRecord) -> None:
        """Process the beginning or the end of an outage."""
        if outage.ended_at is None:
            self._seen.setdefault(outage.id, (outage, outage.began_at))
        else:
            self._seen.pop(outage.id, None)

    def see(self, entry: Lasting) -> None:
        """Process an entry about lasting outages. A known end stays, as a later entry has the end again."""
        for outage in entry.outages:
            outage_seen = self._seen.get(outage.id, (outage, outage.began_at))
            self._seen[outage.id] = (outage, max(outage_seen[1], entry.at))

    def now(self, at: datetime) -> Lasting:
        """Return an entry with all open outages at this instant, and note that they were seen."""
        entry = Lasting(tuple(outage for outage, _ in self._seen.values()), at)
        self.see(entry)
        return entry

    def is_due(self, now_s: float) -> bool:
        """Whether the next entry is due, by the monotonic clock; if so, the entry counts as written."""
        if not self._seen or now_s - self._noted_at_s < NOTED_EVERY_S:
            return False
        self._noted_at_s = now_s
        return True

    def carried(self) -> Iterable[Lasting]:
        """Return entries with the present state, for the start of a new segment."""
        return [Lasting((outage,), seen_at) for outage, seen_at in self._seen.values()]

    def ended(self) -> list[OutageRecord]:
        """Return all open outages, ended at the instant at which each was last seen open."""
        return [replace(outage, ended_at=seen_at) for outage, seen_at in self._seen.values()]


# The unfinished work of a dead worker, in its spool.


class Unfinished:
    """Calls and outages without an end, and losers that were still watched when the gateway died.

    ``note`` must be called with every entry of a spool, in order. An attempt without an end is known only if it was
    launched together with the call.
    """

    def __init__(self) -> None:
        self._calls: dict[str, Started] = {}
        self._watched: dict[str, dict[str, AttemptStart]] = {}  # by call, then by attempt
        self._of: dict[str, CallStart] = {}  # the calls of watched attempts
        self._lasting = OpenOutages()

    def note(self, entry: Entry) -> None:
        """Process the starts and ends in ``entry``."""
        if isinstance(entry, Started):
            self._calls[entry.call.id] = entry
        elif isinstance(entry, Finished):
            started = self._calls.pop(entry.call.id, None)
            if started is not None:
                self._watch(started.call)
                self._end(entry.call.id, [attempt.id for attempt in entry.call.attempts])
        elif isinstance(entry, Watched):
            self._watch(entry.call)
        elif isinstance(entry, Audited):
            self._end(entry.call_id, [attempt.id for attempt in entry.attempts])
        elif isinstance(entry, OutageChange):
            self._lasting.note(entry.outage)
        elif isinstance(entry, Lasting):
            self._lasting.see(entry)

    def outages(self) -> list[OutageChange]:
        """Return the outages without an end, ended at the last instant at which the gateway noted them."""
        return [OutageChange(outage) for outage in self._lasting.ended()]

    def calls(self) -> list[Started]:
        """Return the calls without an end."""
        return list(self._calls.values())

    def attempts(self) -> list[Audited]:
        """Return, as ``interrupted``, the attempts without an end whose call has ended."""
        return [
            Audited(call_id, tuple(interrupted(start, self._of[call_id], audited=True) for start in starts.values()))
            for call_id, starts in self._watched.items()
        ]

    def _watch(self, call: CallStart) -> None:
        self._of[call.id] = call
        self._watched[call.id] = {start.id: start for start in call.attempts}

    def _end(self, call_id: str, attempt_ids: list[str]) -> None:
        starts = self._watched.get(call_id)
        if starts is None:
            return
        for attempt_id in attempt_ids:
            starts.pop(attempt_id, None)
        if not starts:
            del self._watched[call_id], self._of[call_id]
