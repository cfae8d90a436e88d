"""The errors of a Responses stream: what their codes mean, and how one is told so that every SDK notices."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from providers.error_bodies import error_in
from providers.errors import ErrorKind, UpstreamError, kind_of_status

_STATUS: Mapping[str, int] = {  # HTTP's, of what an error's code or type says; the first word found in it counts
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
    """Return the HTTP status that an error inside a stream would have had, None where its words do not tell."""
    for name in ("code", "type"):
        told = error.get(name)
        if isinstance(told, str):
            for word, status in _STATUS.items():
                if word in told:
                    return status
    return None


def upstream_error(error: Mapping[str, Any], secrets: Sequence[str]) -> UpstreamError:
    """Return what a provider's error object stands for; one that does not tell is a stream_error."""
    status = status_of(error)
    kind = ErrorKind.STREAM_ERROR if status is None else kind_of_status(status)
    return error_in(msgspec.json.encode({"error": error}), secrets, otherwise=kind)


def with_status(error: Mapping[str, Any]) -> dict[str, Any]:
    """Return an error with the HTTP status it would have had, for readers to whom its words say nothing."""
    status = status_of(error)
    return dict(error) if status is None else {"status": status, **error}


def failure(kind: str, message: str) -> bytes:
    """Return the event of an error: its code and message stand in it, and in an object ``error`` too.

    The API documents the first and sends the second; OpenAI's SDKs raise on the second alone.
    """
    return error_event({"type": "upstream_error", "code": kind, "message": message, "param": None}, 0)


def error_event(error: Mapping[str, Any], sequence_number: int) -> bytes:
    """Return an error object as an event, told both ways."""
    told = {name: _string(error.get(name)) for name in ("code", "message", "param")}
    event = {"type": "error", "sequence_number": sequence_number, **told, "error": error}
    return b"event: error\ndata: " + msgspec.json.encode(event) + b"\n\n"


def _string(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)
