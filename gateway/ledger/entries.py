"""The entries of the spool, a JSON line each: starts and ends of calls, late attempts, refusals, outages."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from gateway.attempt_records import AttemptRecord
from gateway.calls import CallRecord, CallStart
from gateway.outage_records import OutageRecord
from gateway.refusal_records import RefusalRecord


class Started(msgspec.Struct, frozen=True, tag="started", gc=False):
    """A call has begun. It becomes rows only if its gateway dies before the call's end."""

    call: CallStart


class Finished(msgspec.Struct, frozen=True, tag="finished", gc=False):
    """A call has ended: a row of ``calls`` and its rows of ``attempts``."""

    call: CallRecord


class Audited(msgspec.Struct, frozen=True, tag="audited", gc=False):
    """Attempts that were watched longer than their call: rows of ``attempts``."""

    call_id: str
    attempts: tuple[AttemptRecord, ...]


class Refused(msgspec.Struct, frozen=True, tag="refused", gc=False):
    """The refusals of a minute: rows of ``refusals``."""

    refusals: tuple[RefusalRecord, ...]


class Outage(msgspec.Struct, frozen=True, tag="outage", gc=False):
    """An outage has begun or ended: a row of ``outages``, or the end in it."""

    outage: OutageRecord


class Lasting(msgspec.Struct, frozen=True, tag="lasting", gc=False):
    """These outages lasted at that instant. If their gateway dies, the last such instant becomes their end."""

    outages: tuple[OutageRecord, ...]
    at: datetime


Entry = Started | Finished | Audited | Refused | Outage | Lasting
Shippable = Finished | Audited | Refused | Outage
NO_ROWS = (Started, Lasting)  # the others: what they say counts only if their gateway dies


def _plain(value: Any) -> Any:
    """Lets msgspec encode read-only mappings too."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} does not belong in the ledger")


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)
_DECODER: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)
_NUL = b"\\u0000"


def encode_into(entry: Entry, line: bytearray) -> bool:
    """Write ``entry`` with a newline into ``line``; return whether the line has exactly its content.

    Characters that no database can store are missing in the line, or removed when it is decoded.

    Raises:
        TypeError: a value that JSON cannot represent.

    """
    try:
        _ENCODER.encode_into(entry, line)
    except UnicodeEncodeError:  # invalid bytes of a header are kept as lone surrogates
        line[:] = _ENCODER.encode(_storable(msgspec.to_builtins(entry, enc_hook=_plain)))
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
        msgspec.DecodeError: it is incomplete or not an entry.

    """
    if _has_nul(line):
        line = msgspec.json.encode(_storable(msgspec.json.decode(line)))
    return _DECODER.decode(line)


def _has_nul(line: bytes | bytearray) -> bool:
    return b"\\" in line and _NUL in line  # hardly any line has a backslash, and that check is fast


def _storable(value: Any) -> Any:
    """Replace lone surrogates, which are not valid UTF-8, and remove NUL characters, which Postgres rejects."""
    match value:
        case str():
            return value.replace("\x00", "").encode("utf-8", "replace").decode()
        case dict():
            return {_storable(key): _storable(item) for key, item in value.items()}
        case list() | tuple():
            return [_storable(item) for item in value]
        case _:
            return value
