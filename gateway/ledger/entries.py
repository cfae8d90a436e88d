"""What the spool holds: one JSON line each for a call begun, a call ended, and attempts that ended after their call."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.calls import AttemptRecord, CallRecord, CallStart


class Started(msgspec.Struct, frozen=True, tag="started"):
    """A call has begun. It becomes rows only when its gateway died before the call's end."""

    call: CallStart


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """A call has ended: a row of ``calls`` and its rows of ``attempts``."""

    call: CallRecord


class Audited(msgspec.Struct, frozen=True, tag="audited"):
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


def encode(entry: Entry) -> bytes:
    """Return ``entry`` as one line, its newline included. About 2 µs.

    Raises:
        TypeError: a value that is no JSON.

    """
    try:
        return _ENCODER.encode(entry) + b"\n"
    except UnicodeEncodeError:  # undecodable bytes of a header survive as lone surrogates
        return _ENCODER.encode(_without_surrogates(msgspec.to_builtins(entry, enc_hook=_plain))) + b"\n"


def decode(line: bytes) -> Entry:
    """Return the entry of a line.

    Raises:
        msgspec.DecodeError: it is torn or no entry.

    """
    return _DECODER.decode(line)


def _without_surrogates(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case dict():
            return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
        case list() | tuple():
            return [_without_surrogates(item) for item in value]
        case _:
            return value
