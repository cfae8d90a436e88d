"""Litellm's exceptions read back into what the provider said. Importing this needs litellm's own dependencies."""

import ast
import re
from collections.abc import Iterator, Sequence

import aiohttp
import httpx

from providers.error_bodies import error_of_response
from providers.errors import ErrorKind, UpstreamError
from providers.redaction import redact

_INTERNAL_SERVER_ERROR = 500
_LONGEST_CHAIN = 10
_BODY = re.compile(rb"""b(?P<quote>['"]).*(?P=quote)""".decode(), re.DOTALL)  # the body as Python prints bytes
_WRAPPING = re.compile(r"^(?:litellm\.\w+: |\w+(?:Exception|Error) - )+|\s*Handle with `litellm\.\w+`\.$")


def upstream_error(error: Exception, secrets: Sequence[str], now_s: float, *, opened: bool) -> UpstreamError:
    """Return what went wrong, as the kinds of ``providers.errors`` have it.

    ``opened`` tells whether the answer had begun; ``now_s`` is Unix time.
    """
    original = getattr(error, "original_exception", None) or error  # litellm wraps what breaks a stream
    message = str(getattr(original, "message", original))
    kind = _transport_failure(original, opened=opened)
    if kind is not None:
        return UpstreamError(kind, redact(_WRAPPING.sub("", message), secrets))
    headers = getattr(original, "litellm_response_headers", None) or {}
    status = getattr(original, "status_code", None)
    told = error_of_response(
        status if isinstance(status, int) else _INTERNAL_SERVER_ERROR,
        {str(name).lower(): str(value) for name, value in headers.items()},
        _body(message),
        secrets,
        now_s,
    )
    if opened and told.kind is ErrorKind.SERVER_ERROR:
        told.kind = ErrorKind.STREAM_ERROR
    return told


def _transport_failure(error: BaseException, *, opened: bool) -> ErrorKind | None:
    """Return the kind of a failure below HTTP, which litellm shows as a status 500 or 408; None for a real answer."""
    for link in _chain(error):
        match link:
            case aiohttp.ConnectionTimeoutError() | httpx.ConnectTimeout():
                return ErrorKind.CONNECT_TIMEOUT
            case aiohttp.ClientConnectorError() | httpx.ConnectError():
                return ErrorKind.CONNECT_ERROR
            case TimeoutError() | httpx.TimeoutException():
                return ErrorKind.STALL_TIMEOUT if opened else ErrorKind.TTFT_TIMEOUT
            case aiohttp.ClientPayloadError() | ConnectionError() | httpx.TransportError():
                return ErrorKind.DISCONNECTED
    return ErrorKind.DISCONNECTED if type(error).__name__ == "APIConnectionError" else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and what caused it, the outermost first."""
    link: BaseException | None = error
    for _ in range(_LONGEST_CHAIN):
        if link is None:
            return
        yield link
        link = link.__cause__ or link.__context__


def _body(message: str) -> bytes:
    """Return the provider's body out of litellm's message about it, or the message without litellm's wrapping."""
    if (printed := _BODY.search(message)) is not None:
        try:
            body = ast.literal_eval(printed[0])
        except (SyntaxError, ValueError):
            body = None
        if isinstance(body, bytes):
            return body
    return _WRAPPING.sub("", message).encode()
