"""The error that a client gets, in the words and the form of its API.

All errors are made here: over HTTP, on WebSockets, and in responses that have begun. A provider's refusal keeps its
words, code and field; ``providers/dialects/meanings.py`` says what each meaning is called in the client's API.
"""

from typing import Any

import msgspec

from gateway.core.errors import ApiError
from gateway.core.race_failures import RejectedByProvider
from providers import ErrorKind, Meaning, UpstreamError, meaning_of
from providers.dialects import TELLINGS, Details, Dialect, RefusalWords

# Meanings of the gateway's own errors that get OpenAI's codes here. The classes of other errors have these codes
# already, or finer ones of our own.
_REWORDED = frozenset({Meaning.TOO_LONG, Meaning.UNPAID})
# Ways in which an answer breaks off without a word of its provider. Clients get a text at which programs ask again: pi
# (packages/ai/src/utils/retry.ts of https://github.com/earendil-works/pi, 1.6.0) and opencode (1.18.33, in its
# program), both tried on 2026-11-29.
_SILENT = frozenset({
    ErrorKind.DISCONNECTED,
    ErrorKind.INVALID_RESPONSE,
    ErrorKind.STALL_TIMEOUT,
    ErrorKind.TOTAL_TIMEOUT,
    ErrorKind.UPSTREAM_TRUNCATED,
})  # fmt: skip
_FAILED = "server error"


def error_body(error: ApiError, dialect: Dialect, request_id: str | None) -> bytes:
    """Return the body of ``error`` in the form of ``dialect``."""
    telling = _telling(error.meaning, dialect)
    if dialect.error_body is None:
        return error.body() if telling is None else _reworded(error, dialect, telling)
    type_, message = error.said()
    if telling is not None:
        type_, message = telling.type, telling.message(message, error.lengths)
    return dialect.error_body(error.status_code, type_, message, request_id, _details(error, telling))


def failure(error: ApiError, dialect: Dialect, request_id: str | None) -> bytes:
    """Return the event of ``error`` in a response that has begun."""
    telling = _telling(error.meaning, dialect)
    if telling is None:
        return dialect.answers.failure(error.kind, error.message, (), request_id)
    _, message = error.said()
    code_there = error.code_there if isinstance(error, RejectedByProvider) else None
    kind = _kept(telling, code_there) or telling.code or telling.type
    return dialect.answers.failure(kind, telling.message(message, error.lengths), _details(error, telling), request_id)


def broken(error: UpstreamError, dialect: Dialect, request_id: str | None) -> bytes:
    """Return the event of a provider's ``error`` that breaks off a response.

    ``server error: the stream ended early (groq/openai/gpt-oss-120b)``; words with a meaning stay the vendor's own.
    """
    telling = _telling(meaning_of(error), dialect)
    if telling is None:
        message = f"{_FAILED}: {error.message}" if error.kind in _SILENT else error.message
        message = message if error.deployment is None else f"{message} ({error.deployment})"
        return dialect.answers.failure(error.kind, message, (), request_id)
    kind = _kept(telling, *error.names) or telling.code or telling.type
    details = telling.details(error.retry_after_s)
    return dialect.answers.failure(kind, telling.message(error.message), details, request_id)


def _kept(telling: RefusalWords, *codes: str | None) -> str | None:
    """Return the provider's code that the client's vendor has for this meaning, too; None: no such code."""
    return next((code for code in codes if code is not None and code in telling.codes), None)


def _telling(meaning: Meaning | None, dialect: Dialect) -> RefusalWords | None:
    return None if meaning is None else TELLINGS[meaning][dialect.told_as]


def _details(error: ApiError, telling: RefusalWords | None) -> Details:
    if telling is None:
        return ()
    after = error.headers.get("retry-after")
    return telling.details(None if after is None else float(after))


def _reworded(error: ApiError, dialect: Dialect, telling: RefusalWords) -> bytes:
    """Return a body in OpenAI's form; a provider's body stays as it is if its code has the meaning."""
    body = error.body()
    if isinstance(error, RejectedByProvider):
        if error.code_there == telling.code or _kept(telling, error.code_there) is not None:
            return body
    elif error.meaning not in _REWORDED:
        return body
    error_fields: dict[str, Any] = msgspec.json.decode(body)["error"]
    message = telling.message(error.said()[1], error.lengths)
    error_fields |= {"message": message, "type": telling.type, "code": telling.code}
    if error.meaning is not Meaning.UNPAID:
        error_fields["param"] = error_fields.get("param") or dialect.requests.prompt
    return msgspec.json.encode({"error": error_fields})
