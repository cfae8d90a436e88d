"""What a client is told of an error, in the words and the shape of the API that it speaks.

The one place for it: HTTP, WebSockets and responses that have begun. A provider's refusal keeps its words, code and
field; what its meaning is called in the client's API is in ``providers/dialects/meanings.py``.
"""

from typing import Any

import msgspec

from gateway.core.errors import ApiError
from gateway.core.race_failures import RejectedByProvider
from providers import ErrorKind
from providers.dialects import TELLINGS, Dialect, Telling


def error_body(error: ApiError, dialect: Dialect, request_id: str | None) -> bytes:
    """Return the body for ``error`` in the format of ``dialect``."""
    telling = _telling(error, dialect)
    if dialect.error_body is None:
        return error.body() if telling is None else _reworded(error, dialect, telling)
    type_, message = error.said()
    if telling is not None:
        type_, message = telling.type, telling.message(message, error.lengths)
    return dialect.error_body(error.status_code, type_, message, request_id)


def failure(error: ApiError, dialect: Dialect) -> bytes:
    """Return the event of ``error`` for a response that has begun."""
    told = dialect.answers.failure
    telling = _telling(error, dialect)
    if telling is None:
        return told(error.kind, error.message)
    _, message = error.said()
    return told(telling.code or ErrorKind.BAD_REQUEST, telling.message(message, error.lengths))


def _telling(error: ApiError, dialect: Dialect) -> Telling | None:
    return None if error.meaning is None else TELLINGS[error.meaning][dialect.told_as]


def _reworded(error: ApiError, dialect: Dialect, telling: Telling) -> bytes:
    """Return a body in OpenAI's shape; a provider's own as it is if it has the code of the meaning."""
    body = error.body()
    if isinstance(error, RejectedByProvider) and error.code_there == telling.code:
        return body
    told: dict[str, Any] = msgspec.json.decode(body)["error"]
    message = telling.message(error.said()[1], error.lengths)
    told |= {"message": message, "type": telling.type, "code": telling.code}
    told["param"] = told.get("param") or dialect.requests.prompt
    return msgspec.json.encode({"error": told})
