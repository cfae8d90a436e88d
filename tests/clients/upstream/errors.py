"""Errors as the three vendors send them: status, headers and body."""

import json
from typing import Any

import msgspec

_OPENAI = {
    400: ("invalid_request_error", "invalid_value"),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "unsupported_country_region_territory"),
    404: ("invalid_request_error", "model_not_found"),
    409: ("invalid_request_error", "conflict"),
    413: ("invalid_request_error", "request_too_large"),
    422: ("invalid_request_error", "unprocessable"),
    429: ("requests", "rate_limit_exceeded"),
}
_ANTHROPIC = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class Refused(Exception):
    """The upstream says no, with this status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Said(msgspec.Struct, frozen=True):
    """A refusal as bytes."""

    status: int
    headers: dict[str, str]
    body: bytes


def in_openais_words(refused: Refused) -> Said:
    """Return how OpenAI says it."""
    type_, code = _OPENAI.get(refused.status, ("server_error", None))
    error = {"message": refused.message, "type": type_, "param": None, "code": code}
    return _said(refused, {"error": error}, "x-request-id")


def in_anthropics_words(refused: Refused) -> Said:
    """Return how Anthropic says it."""
    error = {"type": _ANTHROPIC.get(refused.status, "api_error"), "message": refused.message}
    return _said(refused, {"type": "error", "error": error, "request_id": "req_upstream"}, "request-id")


def in_googles_words(refused: Refused) -> Said:
    """Return how Google says it."""
    words = {401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED"}
    word = words.get(refused.status, "INTERNAL" if refused.status >= 500 else "INVALID_ARGUMENT")
    error = {"code": refused.status, "message": refused.message, "status": word}
    return _said(refused, {"error": error}, "x-request-id")


def _said(refused: Refused, body: dict[str, Any], request_id: str) -> Said:
    headers = {"content-type": "application/json", request_id: "req_upstream"}
    if refused.status == 429:
        headers["retry-after"] = "1"
    return Said(refused.status, headers, json.dumps(body).encode())
