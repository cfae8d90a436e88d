"""Reads providers' errors in all their shapes: OpenAI's, vLLM's, FastAPI's, an array, plain text, a web page."""

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from providers.errors import ErrorKind, UpstreamError, kind_of_status
from providers.rate_limits import parse_delay_s, retry_after_s
from providers.redaction import redact, redact_json

_LONGEST_MESSAGE = 500  # characters
_LOWEST_ERROR_STATUS, _HIGHEST_ERROR_STATUS = 400, 599

_NULL = msgspec.Raw(b"null")
_NOTHING = (b"null", b"{}", b'""', b"false")

_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_HEADING = re.compile(r"<h1[^>]*>(.*?)</h1>", re.IGNORECASE | re.DOTALL)
_NAMED_ERROR = re.compile(rb"(?:\A|[\r\n])event: ?error[\r\n]")
_TAG = re.compile(r"<[^>]*>")


def error_of_response(
    status: int, headers: Mapping[str, str], body: bytes, secrets: Sequence[str], now_s: float
) -> UpstreamError:
    """Return the error of a response. ``headers`` have lower-case names; ``now_s`` is Unix time."""
    kind = kind_of_status(status)
    error = _error_object(_decode(body))
    message = _message(error) if error else message_of_text(body)
    retry = None
    if kind in (ErrorKind.RATE_LIMITED, ErrorKind.SERVER_ERROR):
        retry = retry_after_s(headers, now_s)
        if retry is None and error:
            retry = _google_retry_delay_s(error)
    return UpstreamError(
        kind,
        _presentable(message, secrets) or f"answered {status} without a message",
        status=status,
        retry_after_s=retry,
        body=_client_body(error or {"message": message}, secrets) if kind is ErrorKind.BAD_REQUEST else None,
    )


def error_in(data: bytes, secrets: Sequence[str], *, otherwise: ErrorKind) -> UpstreamError:
    """Return the error in a JSON object with status 200. Its kind is that of its code, ``otherwise`` without a code."""
    error = _error_object(_decode(data)) or {}
    status = _status(error)
    kind = otherwise if status is None else kind_of_status(status)
    return UpstreamError(
        kind,
        _presentable(_message(error), secrets) or "sent an error without a message",
        status=status,
        retry_after_s=_google_retry_delay_s(error),
        body=_client_body(error, secrets) if kind is ErrorKind.BAD_REQUEST else None,
    )


def named_error(raw: bytes, data: bytes, secrets: Sequence[str]) -> UpstreamError | None:
    """Return the error in an event that is called ``error``, whatever its data have; None if it has another name."""
    if b"event:" not in raw or _NAMED_ERROR.search(raw) is None:
        return None
    error = error_in(data, secrets, otherwise=ErrorKind.STREAM_ERROR)
    if _error_object(_decode(data)) is None and data.strip():
        error.message = _presentable(message_of_text(data), secrets) or error.message
    return error


def says_error(answer: Mapping[str, msgspec.Raw]) -> bool:
    """Whether a JSON answer is an error, by its top level."""
    error = bytes(answer.get("error", _NULL))
    return error not in _NOTHING or bytes(answer.get("object", _NULL)) == b'"error"'


def message_of_text(body: bytes) -> str:
    """Return the message of a body that is not a JSON error: the title of a web page, or the text."""
    text = body.decode(errors="replace")
    if "<html" in text[:1000].lower() or "<!doctype" in text[:1000].lower():
        title = _TITLE.search(text) or _HEADING.search(text)
        text = f"a web page: {title[1]}" if title else "a web page"
    return html.unescape(_TAG.sub(" ", text))


def _presentable(message: str, secrets: Sequence[str]) -> str:
    # Redacted before it is shortened, so that no part of a key is left at the end.
    # Control characters could write to the terminal in which the log is read.
    message = " ".join("".join(each if each.isprintable() else " " for each in redact(message, secrets)).split())
    return message if len(message) <= _LONGEST_MESSAGE else message[: _LONGEST_MESSAGE - 1] + "…"


def _decode(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _error_object(answer: Any) -> dict[str, Any] | None:
    """Return the error of a decoded answer as an object in OpenAI's shape, with ``message``; None if there is none."""
    if isinstance(answer, list):  # Gemini
        answer = answer[0] if answer else None
    if not isinstance(answer, dict):
        return None
    for holder in (answer, *_list(answer.get("choices"))):  # OpenRouter puts it into the choice
        match holder:
            case {"error": dict(error)} if error:
                return error
            case {"error": str(message)} if message:
                return _openai_error(message, answer)
            case {"finish_reason": "error"}:
                return _openai_error("the answer ended with finish_reason 'error'", {})
    for name in ("message", "detail", "errors", "msg"):  # vLLM, Mistral; FastAPI; Cloudflare
        if told := answer.get(name):
            return _openai_error(told if isinstance(told, str) else msgspec.json.encode(told).decode(), answer)
    return None


def _openai_error(message: str, source: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "message": message,
        "type": source.get("type"),
        "param": source.get("param"),
        "code": source.get("code", source.get("status_code")),
    }


def _message(error: Mapping[str, Any]) -> str:
    message = error.get("message") or error.get("code") or error.get("type") or ""
    match error.get("metadata"):
        case {"raw": str(raw)} if raw:  # OpenRouter: the message of its vendor
            return f"{message}: {raw}"
    return message if isinstance(message, str) else msgspec.json.encode(message).decode()


def _status(error: Mapping[str, Any]) -> int | None:
    for name in ("code", "status", "status_code", "http_status"):
        value = error.get(name)
        if isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value)
        if isinstance(value, int) and _LOWEST_ERROR_STATUS <= value <= _HIGHEST_ERROR_STATUS:
            return value
    return None


def _google_retry_delay_s(error: Mapping[str, Any]) -> float | None:
    """Return the delay in a google.rpc.RetryInfo, which Gemini sends instead of a ``retry-after`` header."""
    for detail in _list(error.get("details")):
        match detail:
            case {"retryDelay": str(delay)}:
                return parse_delay_s(delay)
    return None


def _client_body(error: Mapping[str, Any], secrets: Sequence[str]) -> bytes:
    message = _presentable(_message(error), secrets) or "the provider refused the request"
    shaped = {"type": "invalid_request_error", "param": None, "code": None, **redact_json(dict(error), secrets)}
    return msgspec.json.encode({"error": {**shaped, "message": message}})


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
