"""Masks keys in event streams: in comments, names of events, the data of errors, and beside the text of answers.

The model's own text is never changed. Nearly all events need no masking, and cost little.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from providers.redaction import MASK, SHORTEST_SECRET, redact, redact_json
from providers.sse import Event, events

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


@lru_cache(maxsize=1024)
def as_sent(secrets: tuple[str, ...]) -> tuple[bytes, ...]:
    """Return ``secrets`` that are long enough to be masked, as they are in an answer."""
    return tuple(each.encode(errors="surrogateescape") for each in secrets if len(each) >= SHORTEST_SECRET)


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
    """Return JSON of an answer with keys masked beside the model's words: in its id, fingerprint or finish reason.

    Only a key that is there as it is costs more than a look. Without one, the same object is returned.
    """
    if not any(secret in data for secret in as_sent(tuple(secrets))):
        return data
    try:
        said = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return data
    shown = _beside_words(said, [each for each in secrets if len(each) >= SHORTEST_SECRET])
    return data if shown == said else msgspec.json.encode(shown)


def _beside_words(value: Any, secrets: Sequence[str]) -> Any:
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


def _goes_deeper(name: str, value: Any) -> bool:
    """Whether a field with words is a list or an object of which only a part is words."""
    return name in _HOLDERS and isinstance(value, dict | list)


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
