"""The errors of a Responses stream: the meaning of their codes, and an event for them at which every SDK raises."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from providers.error_bodies import error_in
from providers.errors import ErrorKind, UpstreamError, kind_of_status

_NUMBER = re.compile(rb'(?<!\\)"sequence_number" ?: ?(\d{1,18})\b')  # not as text in an answer: its quotes are escaped
_STATUS: Mapping[str, int] = {  # by a word in an error's code or type; the first match counts
    "rate_limit": 429,
    "too_many_requests": 429,
    "quota": 429,
    "credit_balance": 429,
    "authentication": 401,
    "api_key": 401,
    "permission": 403,
    "model_not_found": 404,
    "server_error": 500,
    "overloaded": 503,
    "vector_store_timeout": 504,
    "context_length": 400,
    "invalid": 400,
    "policy": 400,
    "data_residency": 400,
    "image": 400,
}


def status_of(error: Mapping[str, Any]) -> int | None:
    """Return the HTTP status that fits the code or type of an error inside a stream, None if unknown."""
    for name in ("code", "type"):
        told = error.get(name)
        if isinstance(told, str):
            for word, status in _STATUS.items():
                if word in told:
                    return status
    return None


def upstream_error(error: Mapping[str, Any], secrets: Sequence[str]) -> UpstreamError:
    """Return a provider's error object as our error; its kind is stream_error if its code is unknown."""
    status = status_of(error)
    kind = ErrorKind.STREAM_ERROR if status is None else kind_of_status(status)
    return error_in(msgspec.json.encode({"error": error}), secrets, otherwise=kind)


def with_status(error: Mapping[str, Any]) -> dict[str, Any]:
    """Return an error with the HTTP status that fits it, for readers that do not know its code."""
    status = status_of(error)
    return dict(error) if status is None else {"status": status, **error}


def failure(kind: str, message: str) -> bytes:
    """Return the event of an error. It has the code and the message twice: at its top level, and in ``error``.

    The API documents the first form and sends the second; OpenAI's SDKs raise only at the second.
    """
    return error_event({"type": "upstream_error", "code": kind, "message": message, "param": None}, 0)


def error_event(error: Mapping[str, Any], sequence_number: int) -> bytes:
    """Return an error object as an event in both forms."""
    told = {name: _string(error.get(name)) for name in ("code", "message", "param")}
    event = {"type": "error", "sequence_number": sequence_number, **told, "error": error}
    return b"event: error\ndata: " + msgspec.json.encode(event) + b"\n\n"


def numbered(failure: bytes, before: bytes) -> bytes:
    """Return the event of an error with the number that follows the last one in the events ``before`` it."""
    numbers = _NUMBER.findall(before)
    return (
        failure.replace(b'"sequence_number":0', b'"sequence_number":%d' % (int(numbers[-1]) + 1), 1)
        if numbers
        else failure
    )


def _string(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)
