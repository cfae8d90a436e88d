"""Masking keys in event streams, in all that is no answer: comments, names of events, and the data of errors.

What a model says is its own and passes as it came, as nearly every event does; those cost little.
"""

import re
from collections.abc import Sequence

import msgspec

from providers.redaction import redact, redact_json
from providers.sse import Event

_LONGEST_LINE = 4096  # bytes of a comment or a field: whoever puts more there tells a client nothing
_LONGEST_ERROR = 256 * 1024  # bytes of data
_LINE_END_BYTES = 4  # of the last line and the blank one

_NAMED = re.compile(rb"event: ?(?![\w.-]*error)[\w.-]+(?:\r\n|\n|\r)data: ?")
_LINE = re.compile(rb"([^\r\n]*)(\r\n|\n|\r|\Z)")
_DATA = re.compile(rb"(?:\xef\xbb\xbf)?data(?::|\Z)")
_NAME = re.compile(rb"(?:\xef\xbb\xbf)?event:")
_ERROR_NAME = re.compile(rb"error")
_COMPLAINTS = ("message", "detail", "errors", "msg")  # what vendors call it when they do not call it an error
_CHOICES = b'"choices"'  # which every chunk of a chat has
_COMPLAINT = re.compile(rb'"(?:%s)"\s*:' % "|".join(_COMPLAINTS).encode())


def masked(event: Event, secrets: Sequence[str], *, is_error: bool = False) -> Event:
    """Return ``event`` without keys in its comments and fields, nor in its data if it is an error's: itself if none.

    An error's it is by its name, or because ``is_error`` says so.
    """
    if not is_error and _is_named_line(event):
        return event
    lines = [(text, end) for text, end in _LINE.findall(event.raw) if text or end]
    names = [text for text, _ in lines if _NAME.match(text)]
    is_error = is_error or any(map(_ERROR_NAME.search, names))
    data = _masked_data(event.data, secrets) if is_error and event.data else event.data
    written = data == event.data  # else it is written in place of the first line of data
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


def _is_named_line(event: Event) -> bool:
    """Tell, at little cost, whether an event is a name and a line of data: as most in dialects that have names."""
    head = _NAMED.match(event.raw)
    return head is not None and len(event.raw) - head.end() - len(event.data) <= _LINE_END_BYTES


def complains(data: bytes) -> bool:
    """Tell whether data that adds nothing to an answer says what is wrong, in an object that is no error's by name."""
    if _CHOICES in data or len(data) > _LONGEST_ERROR or _COMPLAINT.search(data) is None:
        return False
    try:
        said = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(said, dict) and any(isinstance(said.get(name), str | list) for name in _COMPLAINTS)


def _masked_line(line: bytes, secrets: Sequence[str]) -> bytes:
    return b":" if len(line) > _LONGEST_LINE else _masked_text(line, secrets)


def _masked_data(data: bytes, secrets: Sequence[str]) -> bytes:
    if len(data) > _LONGEST_ERROR:
        return b"{}"
    try:
        said = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _masked_text(data, secrets)
    shown = redact_json(said, secrets)
    return data if shown == said else msgspec.json.encode(shown)


def _masked_text(text: bytes, secrets: Sequence[str]) -> bytes:
    return redact(text.decode(errors="surrogateescape"), secrets).encode(errors="surrogateescape")
