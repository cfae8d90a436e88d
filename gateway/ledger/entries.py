"""What the spool holds: one JSON line each for a call begun, a call ended, and attempts that ended after their call."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.attempt_records import AttemptRecord
from gateway.calls import CallRecord, CallStart


class Started(msgspec.Struct, frozen=True, tag="started", gc=False):
    """A call has begun. It becomes rows only when its gateway died before the call's end."""

    call: CallStart


class Finished(msgspec.Struct, frozen=True, tag="finished", gc=False):
    """A call has ended: a row of ``calls`` and its rows of ``attempts``."""

    call: CallRecord


class Audited(msgspec.Struct, frozen=True, tag="audited", gc=False):
    """Attempts that were watched longer than their call: rows of ``attempts``."""

    call_id: str
    attempts: tuple[AttemptRecord, ...]


Entry = Started | Finished | Audited
Shippable = Finished | Audited


def _plain(value: Any) -> Any:
    """Let msgspec encode read-only mappings too."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} does not belong in the ledger")


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)
_DECODER: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)
_NUL = b"\\u0000"


def encode_into(entry: Entry, line: bytearray) -> bool:
    """Make ``line`` the line of ``entry``, its newline included; return whether it says exactly what ``entry`` does.

    What no database can store, the line, or the entry that ``decode`` makes of it, has no more.

    Raises:
        TypeError: a value that is no JSON.

    """
    try:
        _ENCODER.encode_into(entry, line)
    except UnicodeEncodeError:  # undecodable bytes of a header survive as lone surrogates
        line[:] = _ENCODER.encode(_storable(msgspec.to_builtins(entry, enc_hook=_plain)))
        line += b"\n"
        return False
    line += b"\n"
    return not _has_nul(line)


def encode(entry: Entry) -> bytes:
    """Return ``entry`` as one line.

    Raises:
        TypeError: a value that is no JSON.

    """
    line = bytearray()
    encode_into(entry, line)
    return bytes(line)


def decode(line: bytes | bytearray) -> Entry:
    """Return the entry of a line.

    Raises:
        msgspec.DecodeError: it is torn or no entry.

    """
    if _has_nul(line):
        line = msgspec.json.encode(_storable(msgspec.json.decode(line)))
    return _DECODER.decode(line)


def _has_nul(line: bytes | bytearray) -> bool:
    return b"\\" in line and _NUL in line  # hardly any line has a backslash, and that is quickly seen


def _storable(value: Any) -> Any:
    """Replace lone surrogates, which are no UTF-8, and drop NUL characters, which Postgres does not take."""
    match value:
        case str():
            return value.replace("\x00", "").encode("utf-8", "replace").decode()
        case dict():
            return {_storable(key): _storable(item) for key, item in value.items()}
        case list() | tuple():
            return [_storable(item) for item in value]
        case _:
            return value
