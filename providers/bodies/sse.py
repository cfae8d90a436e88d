"""Server-sent events as bytes: finding the end of the last complete event of a read, and splitting a block into events.

Line ends are LF, CRLF and CR, by the WHATWG specification, and nothing else: ``str.splitlines`` would also split at
U+2028, which is legal inside JSON.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import msgspec

from providers.bodies.large_bodies import check_room_for_answer, encoded
from providers.refusals import (
    COMPLAINTS,
    MASK,
    SHORTEST_SECRET,
    UNREADABLE,
    ClientSecrets,
    ErrorKind,
    UpstreamError,
    base_code,
    redact,
    redact_json,
)

_MIB = 1024 * 1024

# The limits on what a stream may hold beside its data. They are far above what providers send: a server that exceeds
# one is broken or hostile, and the answer ends with an error.
MOST_LINES = 1000  # of one event
MOST_SILENT_BYTES = 1024 * 1024  # of comments, and of other events without data, in one stream
LARGE_BYTES = 64 * 1024  # of data; the values in more data are counted before the data are read
MOST_VALUES = 1_000_000  # of JSON in one event or whole answer: 6,000 tokens with 20 log probabilities each
MOST_MASKED = 256  # comments and lines of fields that are searched for keys; further ones are removed

_BOM = b"\xef\xbb\xbf"
# Numbers: `in` first tries a one-byte string as a number, and the error of that try costs more than the search.
LF, CR, QUOTE, BACKSLASH = b'\n\r"\\'
_LINE_END = re.compile(rb"\r\n|\n|\r")
# Atomic groups keep a CRLF together. A CR at the end may be the first half of a CRLF, so it does not count yet.
_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r(?!\Z))")
_LONGEST_BLANK_LINE_BYTES = 4
_LONGEST_JOINT_BYTES = 10  # of ``_RUN_TOGETHER`` and the bytes that are seen after it
_QUOTES = 4  # at most, for a field's name and its text
_LINES_AT_END = 2  # nothing, after the last line's end and after the blank line's
_WITHOUT_DATA = (b":", b"id:", b"retry:")  # lines that need no data after them
_JSON_BEGINS = (b"{", b"[", b'"')


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event. ``raw``: the bytes, with the blank line. ``data``: the data lines joined; empty for a comment.

    ``is_one_line``: the event is known to be one line of data.
    """

    raw: bytes
    data: bytes
    is_one_line: bool = False


class EventSplitter:
    """Splits a stream of reads into blocks of complete events, and keeps the incomplete rest.

    A read of complete events is returned without a copy. If lines end with CR alone, an event is known to be complete
    only when the next one begins.
    """

    def __init__(self, tail_limit_bytes: int = 32 * _MIB, *, are_apart: bool = False) -> None:
        """``are_apart``: all events end with blank lines, so lines without a blank line between them are one event."""
        self._are_apart = are_apart
        self.held = self._tail = bytearray()  # the incomplete rest; always this object
        self._tail_limit_bytes = tail_limit_bytes
        self._step_bytes = min(tail_limit_bytes, _MIB)  # after which the size of the tail is checked again
        self._checked_bytes = 0
        self._line_ends = 0  # in the reads from which the tail comes, since the last complete event

    def feed(self, data: bytes) -> bytes:
        """Return everything up to the end of the last complete event, ``b""`` if there is none yet.

        Raises:
            UpstreamError: one event is larger than the limit, or has more than ``MOST_LINES`` (invalid_response); or
                there is no room for the event (local_resources).

        """
        tail = self._tail
        if not tail:
            end = _end_of_last_event(data, 0)
            if end == len(data):
                return data
            tail += data[end:]
            block, searched = data[:end], 0
            self._line_ends = 0
        else:
            # A blank line may have begun in the tail; everything before has been searched already.
            searched = max(0, len(tail) - _LONGEST_BLANK_LINE_BYTES + 1)
            tail += data
            end = _end_of_last_event(tail, searched)
            with memoryview(tail) as whole:  # copied once: the tail may be large
                block = bytes(whole[:end])
            del tail[:end]
            # Counted as the lines come, so that an event of many lines is never looked at as a whole.
            self._line_ends = 0 if end else self._line_ends + max(data.count(LF), data.count(CR))
            if end:
                self._checked_bytes = 0
        if not end:
            block = b"" if self._are_apart else self._without_blank_line(searched)
            if self._line_ends > MOST_LINES:
                raise too_many_lines()
        if len(tail) > self._checked_bytes + self._step_bytes:
            self._check_size()
        return block

    def _without_blank_line(self, searched: int) -> bytes:
        """Return the events of the tail up to the last that has begun, if the server sends no blank lines.

        Each is returned with a blank line. No blank line begins before ``searched``.
        """
        tail, start = self._tail, max(0, searched - _LONGEST_JOINT_BYTES)
        joints = [*_RUN_TOGETHER.finditer(tail, start)] if tail.find(b"\ndata:", start) >= 0 else ()
        if not joints:
            return b""
        end, line_end = joints[-1].end(), joints[-1][1]
        block = bytes(tail[:end]) + line_end
        del tail[:end]
        self._line_ends = self._checked_bytes = 0
        return block

    def _check_size(self) -> None:
        if len(self._tail) > self._tail_limit_bytes:
            limit_mib = self._tail_limit_bytes / _MIB
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, f"one event of the stream is larger than {limit_mib:g} MiB")
        check_room_for_answer(_MIB)
        self._checked_bytes = min(len(self._tail), self._tail_limit_bytes - self._step_bytes)

    @property
    def held_bytes(self) -> int:
        """The length of the incomplete tail."""
        return len(self._tail)

    def tail(self) -> bytes:
        """Return the incomplete tail unchanged, and drop it."""
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


def too_many_lines() -> UpstreamError:
    """Return the error of an event with more lines than any provider sends."""
    return UpstreamError(ErrorKind.INVALID_RESPONSE, f"one event of the stream has more than {MOST_LINES} lines")


_SLICE_BYTES = _MIB
_SEPARATORS = b",[{"
_NO_STRUCTURE = bytes(set(range(256)).difference(b'",[{'))


def check_values(data: bytes) -> None:
    """Check how many values JSON has, without building any. The JSON need not be valid.

    Raises:
        UpstreamError: there are more than ``MOST_VALUES`` (invalid_response).

    """
    if len(data) <= LARGE_BYTES:
        return
    slices = range(0, len(data), _SLICE_BYTES)  # as a thread gives way only between two searches
    if sum(data.count(each, at, at + _SLICE_BYTES) for at in slices for each in _SEPARATORS) <= MOST_VALUES:
        return  # those within texts count as well
    bare = data.replace(rb"\\", b"").replace(b'\\"', b"")  # without escapes every quote begins or ends a text
    # Most texts have no separators: of these two quotes are left, which may go, as the text after them stays outside.
    few = bare.translate(None, _NO_STRUCTURE).replace(b'""', b"")
    if bare.count(QUOTE) <= _QUOTES * MOST_VALUES and separators(b"".join(few.split(b'"')[::2])) <= MOST_VALUES:
        return
    raise UpstreamError(ErrorKind.INVALID_RESPONSE, f"the answer has more than {MOST_VALUES} values in one event")


def separators(json: bytes) -> int:
    """Return the number of values in JSON. Strings that look like JSON count as well."""
    return json.count(b",") + json.count(b"[") + json.count(b"{")


def silent_bytes(block: bytes) -> int:
    """Return how many bytes of whole events are of comments, and of others without data; fast if there is none."""
    if not (block.startswith((b":", b"\n", b"\r")) or block.find(b"\n:") >= 0 or block.find(b"\r:") >= 0):
        return 0
    return sum(len(event.raw) for event in events(block) if not event.data)


def too_many_comments() -> UpstreamError:
    """Return the error of a stream with more bytes of comments than any provider sends."""
    limit_mib = MOST_SILENT_BYTES / _MIB
    return UpstreamError(ErrorKind.INVALID_RESPONSE, f"the stream has more than {limit_mib:g} MiB of comments")


def broken_within(error: UpstreamError) -> UpstreamError:
    """Return the error of an event without a blank line at the stream's end; reading the event raised ``error``.

    If the event cannot be read, the rest of it is missing: the connection ended too early, though in good order.
    """
    return cut_within_event() if error.kind is ErrorKind.INVALID_RESPONSE else error


def cut_within_event() -> UpstreamError:
    """Return the error of a stream whose connection ended, in good order, within an event."""
    return UpstreamError(ErrorKind.DISCONNECTED, "the stream ended in the middle of an event")


def is_cut(rest: bytes) -> bool:
    """Whether the ``rest`` of a stream, which has no blank line at its end, is certainly less than an event.

    A last event may lack only the blank line. Data that are not JSON may be complete, as far as can be known.
    """
    data = _event(rest).data.strip()
    if data[:1] not in _JSON_BEGINS or data == b"[DONE]":
        return not data and lacks_data(rest)
    try:
        msgspec.json.decode(data)
    except UNREADABLE:
        return True
    return False


def lacks_data(rest: bytes) -> bool:
    """Whether the ``rest`` of a stream is an event of which only the name, or half the name of a field, has come."""
    lines = [line for line in _LINE_END.split(rest.removeprefix(_BOM)) if line]
    return not (all(line.startswith(_WITHOUT_DATA) for line in lines) or _event(rest).data.strip())


_RUN_TOGETHER = re.compile(rb"\}(\r\n|\n)(?=data: ?[{\[])")


def set_apart(block: bytes) -> bytes:
    """Return whole events with blank lines between them, where a server sent none: two objects are no JSON."""
    if block.find(b"}\ndata:") < 0 and block.find(b"}\r\ndata:") < 0:
        return block
    return _RUN_TOGETHER.sub(rb"}\1\1", block)


def events(block: bytes) -> list[Event]:
    """Split a block into its events, whose ``raw`` joined are the block. The last event may lack its blank line.

    Raises:
        UpstreamError: an event has more than ``MOST_LINES`` (invalid_response).

    """
    blank_line = b"\r\n\r\n" if CR in block else b"\n\n"
    if len(block) > LARGE_BYTES and blank_line == b"\n\n" and (lines := _lines_of_data(block)) is not None:
        return lines
    found = []
    parts = block.split(blank_line)
    unfinished = parts.pop()
    for part in parts:
        # Nearly every event is one line, "data: {...}".
        if part.startswith(b"data: ") and LF not in part and CR not in part:
            found.append(Event(part + blank_line, part[6:], True))  # noqa: FBT003  # by position: a keyword costs more
        elif part.startswith(b"event: ") and (data := _data_after_name(part)) is not None:
            found.append(Event(part + blank_line, data))
        elif not part or (part.startswith(b":") and LF not in part and CR not in part):
            found.append(Event(part + blank_line, b""))
        else:
            found += _events_with_any_line_ends(part + blank_line)
    if unfinished:
        found += _events_with_any_line_ends(unfinished)
    return found


def as_utf8(data: bytes) -> bytes:
    """Return an event's data as readers of the stream see them: U+FFFD in place of bytes that are not UTF-8."""
    if data.isascii():
        return data
    try:
        data.decode()
    except UnicodeDecodeError:
        return data.decode(errors="replace").encode()
    return data


def end_of_event(block: bytes, at: int = 0) -> int:
    """Return where the event that begins at ``at`` ends, blank line included; without one, the end of the block."""
    end = block.find(b"\n\n", at)
    if end >= 0 and block.find(b"\r", at, end) < 0:  # as nearly always: to search for all forms takes far longer
        return end + len(b"\n\n")
    found = _BLANK_LINE.search(block, at)
    return len(block) if found is None else found.end()


def _lines_of_data(block: bytes) -> list[Event] | None:
    """Return the events of a block in which each is one line of data, copied once; None if one is another."""
    found = []
    at = 0
    while at < len(block):
        end = block.find(b"\n", at)
        if end < 0 or not block.startswith(b"data: ", at) or not block.startswith(b"\n\n", end):
            return None
        found.append(Event(block[at : end + 2], block[at + 6 : end], True))  # noqa: FBT003  # as in ``events``
        at = end + 2
    return found


def _data_after_name(part: bytes) -> bytes | None:
    """Return the data of an event with a name and one line of data; None if the event is different."""
    line_end = part.find(b"\n")
    is_two_lines = part.startswith(b"data: ", line_end + 1) and part.find(b"\n", line_end + 1) < 0
    return part[line_end + 7 :] if line_end > 0 and is_two_lines and CR not in part else None


def _end_of_last_event(buffer: bytes | bytearray, start: int) -> int:
    """Return the index after the last blank line that begins at ``start`` or later, 0 without one."""
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
    lines = _LINE_END.split(raw.removeprefix(_BOM), MOST_LINES + _LINES_AT_END)
    if len(lines) > MOST_LINES + _LINES_AT_END:
        raise too_many_lines()
    for line in lines:
        field, _, value = line.partition(b":")
        if field == b"data":
            values.append(value.removeprefix(b" "))
    if not values and b"error" in raw and (data := _bare_error(lines)):
        return Event(b"data: " + data + b"\n\n", data)
    return Event(raw, b"\n".join(values))


def _bare_error(lines: Sequence[bytes]) -> bytes:
    """Return the data of an error that was sent outside data: a line of JSON, or a field ``error`` (llama.cpp)."""
    for line in lines:
        if line.startswith(b'{"error"'):
            return line
        if line.startswith((b"error: {", b"error:{")):
            value = line.partition(b":")[2].strip()
            return value if value.startswith(b'{"error"') else b'{"error":' + value + b"}"
    return b""


# Masks keys in event streams: in comments, names of events, the data of errors, and beside the text of answers. The
# model's own text is never changed. Nearly all events need no masking, and cost little.

_LONGEST_LINE = 4096  # bytes of a comment or a field; a longer one has no use for clients, and is removed
_LONGEST_ERROR = 256 * 1024  # bytes of data
_LINE_END_BYTES = 4  # at most, of the last line and the blank line

_NAMED = re.compile(rb"event: ?(?![\w.-]*error)[\w.-]+(?:\r\n|\n|\r)data: ?")
_ONE_LINE = re.compile(rb"data:[^\r\n]*[\r\n]*")
_SAFE_NAME = re.compile(rb"event: ?[\w.-]{1,64}")
_LINE = re.compile(rb"([^\r\n]*)(\r\n|\n|\r|\Z)")
_DATA = re.compile(rb"(?:\xef\xbb\xbf)?data(?::|\Z)")
_NAME = re.compile(rb"(?:\xef\xbb\xbf)?event:")
_ERROR_NAME = re.compile(rb"error")
_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*[^\s\]]')  # some, as in nearly every chunk of a chat
# Fields with the model's own words and the client's, which are never changed.
_WORDS = frozenset(
    {
        *("arguments", "audio", "bytes", "content", "data", "delta", "embedding", "encrypted_content", "input"),
        *("instructions", "logprobs", "metadata", "output_text", "partial_json", "prompt", "reasoning"),
        *("reasoning_content", "reasoning_text", "refusal", "result", "signature", "summary", "text", "thinking"),
        *("token", "tools", "transcript", "url"),
    }
)
_HOLDERS = frozenset({"audio", "content", "delta", "reasoning", "summary"})
_COMPLAINT = re.compile(rb'"(?:%s)"\s*:' % "|".join((*COMPLAINTS, "base_resp", "Response")).encode())


def masked(event: Event, secrets: Sequence[str], *, is_error: bool = False) -> Event:
    """Return ``event`` with keys masked in comments and fields, and in the data if the event is an error.

    The event is an error by its name, or if ``is_error``. Without keys, the same object is returned.
    """
    if not is_error and _is_named_line(event):
        return event
    lines = [(text, end) for text, end in _LINE.findall(event.raw) if text or end]
    names = [text for text, _ in lines if _NAME.match(text)]
    is_error = is_error or any(map(_ERROR_NAME.search, names))
    data = _masked_data(event.data, secrets) if is_error and event.data else event.data
    written = data == event.data  # otherwise the masked data replace the first line of data
    raw = bytearray()
    for text, end in lines:
        if not _DATA.match(text):
            raw += _masked_line(text, secrets) + end
        elif data == event.data:
            raw += text + end
        elif not written:
            raw += b"".join(b"data: " + line + end for line in data.split(b"\n"))
            written = True
    return event if raw == event.raw else Event(bytes(raw), data)


class Masking:
    """Masks keys beside the data of one stream's events.

    After ``MOST_MASKED`` the search for keys ends: comments, and all fields but names, are then removed.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = secrets
        self._left = MOST_MASKED
        self._silent_bytes = 0

    def masked(self, event: Event) -> Event:
        """Return ``event`` as ``masked`` does.

        Raises:
            UpstreamError: the stream has more than ``MOST_SILENT_BYTES`` of comments (invalid_response).

        """
        if _is_named_line(event) or _ONE_LINE.fullmatch(event.raw) is not None:
            return event
        if not event.data:
            self._silent_bytes += len(event.raw)
            if self._silent_bytes > MOST_SILENT_BYTES:
                raise too_many_comments()
            if len(event.raw) < SHORTEST_SECRET:
                return event
        if self._left == 0 and b"error" not in event.raw:
            return _without_fields(event, self._secrets)
        shown = masked(event, self._secrets)
        if shown is not event:
            self._left = max(0, self._left - 1)
        return shown


def _without_fields(event: Event, secrets: Sequence[str]) -> Event:
    """Return an event without comments and fields, except for its data and a name that is no secret."""
    lines = [line for line in _LINE_END.split(event.raw) if line]
    kept = [line for line in lines if _DATA.match(line) or _SAFE_NAME.fullmatch(line)]
    if any(secret in event.raw for secret in sent_forms(secrets)):
        kept = [line for line in kept if _DATA.match(line)]
    if len(kept) == len(lines):
        return event
    return Event(b"\n".join(kept or [b":"]) + b"\n\n", event.data)


@lru_cache(maxsize=1024)
def as_sent(secrets: tuple[str, ...]) -> tuple[bytes, ...]:
    """Return those of ``secrets`` that are long enough to be masked, in the form that an answer would have."""
    return ClientSecrets(secrets).sent


def sent_forms(secrets: Sequence[str]) -> tuple[bytes, ...]:
    """Return ``as_sent`` of ``secrets``, which those of one client keep themselves."""
    return secrets.sent if type(secrets) is ClientSecrets else as_sent(tuple(secrets))


def masked_answer(event: Event, secrets: Sequence[str]) -> Event:
    """Return ``event`` with keys masked in its data as ``masked_body`` does; without one, the same object."""
    data = masked_body(event.data, secrets)
    if data is event.data:
        return event
    others = b"".join(text + b"\n" for text, _ in _LINE.findall(event.raw) if text and not _DATA.match(text))
    return Event(others + b"data: " + data + b"\n\n", data)


def masked_block(block: bytes, secrets: Sequence[str]) -> bytes:
    """Return whole events with keys masked in each as ``masked_answer`` does."""
    return b"".join(masked_answer(event, secrets).raw for event in events(block))


def masked_body(data: bytes, secrets: Sequence[str]) -> bytes:
    """Return JSON of an answer with keys masked outside the model's words: in the id, fingerprint or finish reason.

    Only a key that is there unencoded costs more than a look. Without one, the same object is returned.

    Raises:
        UpstreamError: there is no room for it.

    """
    if not any(secret in data for secret in sent_forms(secrets)):
        return data
    if len(data) > LARGE_BYTES:
        check_room_for_answer(3 * len(data))
    try:
        said = msgspec.json.decode(data)
    except UNREADABLE:
        return data
    shown = _beside_words(said, [each for each in secrets if len(each) >= SHORTEST_SECRET])
    return data if shown == said else encoded(shown)


def _beside_words(value: Any, secrets: Sequence[str]) -> Any:
    try:
        match value:
            case str():
                for secret in secrets:
                    value = value.replace(secret, MASK)
                return value
            case list():
                return [_beside_words(each, secrets) for each in value]
            case dict():
                return {
                    name: each if name in _WORDS and not _goes_deeper(name, each) else _beside_words(each, secrets)
                    for name, each in value.items()
                }
            case _:
                return value
    except RecursionError:  # nested deeper than Python's stack
        return MASK


def _goes_deeper(name: str, value: Any) -> bool:
    """Whether a field with words is a list or an object of which only a part is words."""
    return name in _HOLDERS and isinstance(value, dict | list)


def _is_named_line(event: Event) -> bool:
    """Whether an event is only a name and one line of data, as most are in dialects with names. This check is fast."""
    head = _NAMED.match(event.raw)
    return head is not None and len(event.raw) - head.end() - len(event.data) <= _LINE_END_BYTES


def complains(data: bytes) -> bool:
    """Whether data that add nothing to an answer have the text of an error, though they are not called one."""
    if len(data) > _LONGEST_ERROR or _CHOICES.search(data) is not None or _COMPLAINT.search(data) is None:
        return False
    try:
        said = msgspec.json.decode(data)
    except UNREADABLE:
        return False
    if not isinstance(said, dict):
        return False
    for name in COMPLAINTS:
        told = said.get(name)
        if told and isinstance(told, str | list):
            return True
    if "base_resp" in said:
        return base_code(said["base_resp"]) != 0
    around = said.get("Response")  # Tencent's
    return isinstance(around, dict) and isinstance(around.get("Error"), dict)


def _masked_line(line: bytes, secrets: Sequence[str]) -> bytes:
    return b":" if len(line) > _LONGEST_LINE else _masked_text(line, secrets)


def _masked_data(data: bytes, secrets: Sequence[str]) -> bytes:
    if len(data) > _LONGEST_ERROR:
        return b"{}"
    try:
        said = msgspec.json.decode(data)
    except UNREADABLE:
        return _masked_text(data, secrets)
    shown = redact_json(said, secrets)
    return data if shown == said else encoded(shown)


def _masked_text(text: bytes, secrets: Sequence[str]) -> bytes:
    return redact(text.decode(errors="surrogateescape"), secrets).encode(errors="surrogateescape")
