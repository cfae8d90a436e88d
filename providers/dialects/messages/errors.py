"""Anthropic's errors: their types, the mapping to our kinds, and an error's body."""

from collections.abc import Mapping, Sequence

import msgspec

from providers.error_bodies import error_in
from providers.errors import ErrorKind, UpstreamError, kind_of_status

_STATUS_OF_TYPE: Mapping[str, int] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "conflict_error": 409,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_TYPE_OF_STATUS: Mapping[int, str] = {
    **{status: type_ for type_, status in _STATUS_OF_TYPE.items()},
    408: "timeout_error",
    424: "api_error",  # the gateway's configuration is wrong, not the request
    503: "overloaded_error",
}
_FIRST_SERVER_STATUS = 500
_PAYMENT_REQUIRED = 402

_TYPE_OF_KIND: Mapping[str, str] = {  # all others are errors of the gateway or the provider: api_error
    ErrorKind.CONNECT_TIMEOUT: "timeout_error",
    ErrorKind.TTFT_TIMEOUT: "timeout_error",
    ErrorKind.STALL_TIMEOUT: "timeout_error",
    ErrorKind.TOTAL_TIMEOUT: "timeout_error",
    ErrorKind.RATE_LIMITED: "rate_limit_error",
    ErrorKind.BAD_REQUEST: "invalid_request_error",
}


class _Error(msgspec.Struct, gc=False):
    type: str | None = None


class _ErrorEvent(msgspec.Struct, gc=False):
    error: _Error | None = None


def type_of_status(status: int) -> str:
    """Return Anthropic's error type for this HTTP status."""
    type_ = _TYPE_OF_STATUS.get(status)
    return type_ or ("api_error" if status >= _FIRST_SERVER_STATUS else "invalid_request_error")


def type_of_kind(kind: str) -> str:
    """Return Anthropic's error type for one of our kinds, api_error if there is none."""
    return _TYPE_OF_KIND.get(kind, "api_error")


def error_body(status: int, type_: str, message: str, request_id: str | None) -> bytes:
    """Return an error's body in Anthropic's shape. A ``type_`` that is not Anthropic's gives way to the status's."""
    told = type_ if type_ in _STATUS_OF_TYPE else type_of_status(status)
    body: dict[str, object] = {"type": "error", "error": {"type": told, "message": message}}
    if request_id is not None:
        body["request_id"] = request_id
    return msgspec.json.encode(body)


def error_of_event(data: bytes, secrets: Sequence[str], *, otherwise: ErrorKind) -> UpstreamError:
    """Return the error in Anthropic's error object, with the kind and status of its type.

    Its kind is ``otherwise`` where the type is not known. An error inside a stream has no HTTP status of its own:
    ``overloaded_error`` counts as 529.
    """
    try:
        event = msgspec.json.decode(data, type=_ErrorEvent)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        event = _ErrorEvent()
    status = _STATUS_OF_TYPE.get((event.error and event.error.type) or "")
    if status is None:
        return error_in(data, secrets, otherwise=otherwise)
    kind = ErrorKind.PROVIDER_AUTH if status == _PAYMENT_REQUIRED else kind_of_status(status)
    error = error_in(data, secrets, otherwise=kind)
    if error.status is None:
        error.status = status
    return error
