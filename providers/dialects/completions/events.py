"""Reads one event of a completions stream: its text, usage, finish reason or error.

Nearly every chunk fits the types below. Where a provider sends other types, the event is decoded again without types,
and fields that do not fit are ignored.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from providers.dialects.chunk import DONE, Chunk, no_json_object
from providers.error_bodies import error_in
from providers.errors import ErrorKind
from providers.usage import usage_of


class _Choice(msgspec.Struct, gc=False):
    text: str | None = None
    finish_reason: str | None = None
    error: Any = None  # OpenRouter


class _Event(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None
    object: str | None = None
    model: str | None = None
    id: str | None = None


_events = msgspec.json.Decoder(_Event)


def read_event(data: bytes, secrets: Sequence[str] = ()) -> Chunk:
    """Read one event's data. An event without data (a comment, a ping) gives an empty chunk.

    Raises:
        UpstreamError: the data is not a JSON object (invalid_response).

    """
    said = data.strip()
    if said == DONE:
        return Chunk(data, done=True)
    if not said:
        return Chunk(data)
    try:
        event = _events.decode(data)
    except msgspec.ValidationError:
        event = _read_untyped(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise no_json_object() from None
    choices = event.choices or ()
    chars = sum(len(choice.text or "") for choice in choices)
    is_error = event.error or event.object == "error"
    if is_error or any(choice.error or choice.finish_reason == "error" for choice in choices):
        return Chunk(data, error=error_in(data, secrets, otherwise=ErrorKind.STREAM_ERROR))
    finish_reason = next((choice.finish_reason for choice in choices if choice.finish_reason), None)
    return Chunk(
        data,
        meaningful=chars > 0,
        answer=chars > 0,
        finished=finish_reason is not None,
        usage=None if event.usage is None else usage_of(event.usage),
        usage_only=event.usage is not None and not choices,
        text_chars=chars,
        model=event.model,
        id=event.id,
        finish_reason=finish_reason,
        idle=bool(choices) and not chars and finish_reason is None,
    )


def _read_untyped(data: bytes) -> _Event:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise no_json_object() from None
    if not isinstance(value, dict):
        raise no_json_object()
    choices, usage = value.get("choices"), value.get("usage")
    return _Event(
        [_choice(one) for one in choices if isinstance(one, dict)] if isinstance(choices, list) else None,
        usage if isinstance(usage, dict) else None,
        value.get("error"),
        _string(value.get("object")),
    )


def _choice(value: dict[str, Any]) -> _Choice:
    return _Choice(_string(value.get("text")), _string(value.get("finish_reason")), value.get("error"))


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None
