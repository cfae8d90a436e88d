"""Server-sent events as bytes: finding the end of the last complete event of a read, and splitting a block into events.

Line ends are LF, CRLF and CR, by the WHATWG specification, and nothing else: ``str.splitlines`` would also split at
U+2028, which is legal inside JSON.
"""

import re
from itertools import pairwise

import msgspec

from providers.errors import ErrorKind, UpstreamError

_MIB = 1024 * 1024

_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\n|\r")
# Atomic groups keep a CRLF together. A CR at the end may be the first half of a CRLF, so it does not count yet.
_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r(?!\Z))")
_LONGEST_BLANK_LINE_BYTES = 4


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event. ``raw`` are its bytes, with the blank line; ``data`` its data lines joined, empty for a comment.

    ``is_one_line``: it is known to be only one line of data.
    """

    raw: bytes
    data: bytes
    is_one_line: bool = False


class EventSplitter:
    """Splits a stream of reads into blocks of complete events, and keeps the incomplete rest.

    A read of complete events is returned without a copy. If lines end with CR alone, an event is known to be complete
    only when the next one begins.
    """

    def __init__(self, tail_limit_bytes: int = 32 * _MIB) -> None:
        self._tail = bytearray()
        self._tail_limit_bytes = tail_limit_bytes

    def feed(self, data: bytes) -> bytes:
        """Return everything up to the end of the last complete event, ``b""`` if there is none yet.

        Raises:
            UpstreamError: one event is larger than the limit (invalid_response).

        """
        tail = self._tail
        if not tail:
            end = _end_of_last_event(data, 0)
            if end == len(data):
                return data
            tail += data[end:]
            block = data[:end]
        else:
            # A blank line may have begun in the tail; everything before has been searched already.
            searched = max(0, len(tail) - _LONGEST_BLANK_LINE_BYTES + 1)
            tail += data
            end = _end_of_last_event(tail, searched)
            block = bytes(tail[:end])
            del tail[:end]
        if len(tail) > self._tail_limit_bytes:
            limit_mib = self._tail_limit_bytes / _MIB
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, f"one event of the stream is larger than {limit_mib:g} MiB")
        return block

    @property
    def held_bytes(self) -> int:
        """The length of the incomplete tail."""
        return len(self._tail)

    def tail(self) -> bytes:
        """Return the incomplete tail unchanged, and forget it."""
        tail = bytes(self._tail)
        self._tail.clear()
        return tail

    @property
    def holds_back(self) -> bool:
        """Whether there is an incomplete tail."""
        return bool(self._tail)

    def rest(self) -> bytes:
        """Return the tail at the end of the stream, with the missing blank line; ``b""`` if there is none."""
        tail = self.tail()
        return tail.rstrip(b"\r\n") + b"\n\n" if tail.strip() else b""


def events(block: bytes) -> list[Event]:
    """Split a block into its events; their ``raw`` joined are the block. The last one may lack its blank line."""
    blank_line = b"\r\n\r\n" if b"\r" in block else b"\n\n"
    found = []
    parts = block.split(blank_line)
    unfinished = parts.pop()
    for part in parts:
        # Nearly every event is one line, "data: {...}".
        if part.startswith(b"data: ") and b"\n" not in part and b"\r" not in part:
            found.append(Event(part + blank_line, part[6:], True))  # noqa: FBT003  # by position: a keyword costs more
        else:
            found += _events_with_any_line_ends(part + blank_line)
    if unfinished:
        found += _events_with_any_line_ends(unfinished)
    return found


def _end_of_last_event(buffer: bytes | bytearray, start: int) -> int:
    """Return the index after the last blank line that begins at ``start`` or later, 0 if there is none."""
    lf = buffer.rfind(b"\n\n", start)
    end = lf + 2 if lf >= 0 else 0
    if buffer.find(b"\r", max(start, end)) < 0:
        return end
    crlf = buffer.rfind(b"\r\n\r\n", max(start, end))
    if crlf >= 0:
        end = crlf + 4
    for blank_line in _BLANK_LINE.finditer(buffer, max(start, end)):
        end = blank_line.end()
    return end


def _events_with_any_line_ends(block: bytes) -> list[Event]:
    ends = [blank_line.end() for blank_line in _BLANK_LINE.finditer(block)]
    if not ends or ends[-1] < len(block):
        ends.append(len(block))
    return [_event(block[start:end]) for start, end in pairwise([0, *ends])]


def _event(raw: bytes) -> Event:
    values = []
    for line in _LINE_END.split(raw.removeprefix(_BOM)):
        field, _, value = line.partition(b":")
        if field == b"data":
            values.append(value.removeprefix(b" "))
    return Event(raw, b"\n".join(values))
