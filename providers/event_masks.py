"""Masks keys in event streams: in comments, names of events, and the data of errors, but not in answers.

The model's own text is never changed. Nearly all events need no masking, and cost little.
"""

import re
from collections.abc import Sequence

import msgspec

from providers.redaction import redact, redact_json
from providers.sse import Event

_LONGEST_LINE = 4096  # bytes of a comment or a field; a longer one has no use for clients, and is removed
_LONGEST_ERROR = 256 * 1024  # bytes of data
_LINE_END_BYTES = 4  # at most, of the last line and the blank line

_NAMED = re.compile(rb"event: ?(?![\w.-]*error)[\w.-]+(?:\r\n|\n|\r)data: ?")
_LINE = re.compile(rb"([^\r\n]*)(\r\n|\n|\r|\Z)")
_DATA = re.compile(rb"(?:\xef\xbb\xbf)?data(?::|\Z)")
_NAME = re.compile(rb"(?:\xef\xbb\xbf)?event:")
_ERROR_NAME = re.compile(rb"error")
_COMPLAINTS = ("message", "detail", "errors", "msg")  # the text of errors that are not called errors
_CHOICES = b'"choices"'  # in every chunk of a chat
_COMPLAINT = re.compile(rb'"(?:%s)"\s*:' % "|".join(_COMPLAINTS).encode())


def masked(event: Event, secrets: Sequence[str], *, is_error: bool = False) -> Event:
    """Return ``event`` with keys masked in its comments and fields, and in its data if it is an error.

    It is an error by its name, or if ``is_error``. Without keys, the same object is returned.
    """
    if not is_error and _is_named_line(event):
        return event
    lines = [(text, end) for text, end in _LINE.findall(event.raw) if text or end]
    names = [text for text, _ in lines if _NAME.match(text)]
    is_error = is_error or any(map(_ERROR_NAME.search, names))
    data = _masked_data(event.data, secrets) if is_error and event.data else event.data
    written = data == event.data  # otherwise it replaces the first line of data
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
    """Whether an event is only a name and one line of data, as most are in dialects with names. This check is fast."""
    head = _NAMED.match(event.raw)
    return head is not None and len(event.raw) - head.end() - len(event.data) <= _LINE_END_BYTES


def complains(data: bytes) -> bool:
    """Whether data that adds nothing to an answer has the text of an error, though it is not called an error."""
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
