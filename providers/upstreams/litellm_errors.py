"""Converts litellm's exceptions into the provider's errors. Importing this module requires litellm's dependencies."""

import ast
import re
from collections.abc import Callable, Iterator, Sequence

import aiohttp
import httpx

from providers.refusals import CERTAIN, ErrorKind, UpstreamError, error_of_response, is_shortage, redact

_BAD_REQUEST, _INTERNAL_SERVER_ERROR = 400, 500
_LONGEST_CHAIN = 10
_LONGEST_MESSAGE = 64 * 1024  # characters: it may have a whole body
_CUT = "Stream ended before a finish_reason"  # of a stream without its end, since 1.110
_BODY = re.compile(rb"""b(?P<quote>['"]).*(?P=quote)""".decode(), re.DOTALL)  # the body as Python prints bytes
_WRAPPING = re.compile(
    r"""^(?:(?:litellm\.)?\w+Error:\ |\w+(?:Exception|Error)\ -\ )+  # its own classes, one inside the other
      |(?<!\s)\s*+Handle\ with\ `litellm\.\w+`\.$
      |(?<!\s)\s*+Traceback\ \(most\ recent\ call\ last\):.*$
      |(?<!\s)\s*+This\ looks\ like\ a\ bug\ in\ LiteLLM.*$
      |(?<!\s)\s*+To\ drop\ (?:these|it\ from\ the\ call),\ set\ `litellm.*$  # advice to who calls litellm
    """,
    re.VERBOSE | re.DOTALL,
)
_NO_CREDENTIALS = frozenset({  # exceptions of botocore and google-auth, which are optional
    "DefaultCredentialsError", "NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "RefreshError",
})  # fmt: skip
_PACKAGES = {"google": "google-auth", "boto3": "boto3", "botocore": "botocore"}  # a guess could be somebody else's


def upstream_error(
    error: Exception, secrets: Sequence[str], now_s: float, own: Callable[[str], str], *, opened: bool
) -> UpstreamError:
    """Return the error with a kind of ``providers.refusals.errors``.

    ``opened`` tells whether the answer had begun; ``now_s`` is Unix time. ``own`` returns of a message what is the
    vendor's own words.
    """
    original = getattr(error, "original_exception", None) or error  # litellm wraps errors inside streams
    message = _WRAPPING.sub("", str(getattr(original, "message", original))[:_LONGEST_MESSAGE])
    for link in _chain(original):
        if isinstance(link, ImportError):
            return UpstreamError(ErrorKind.PROVIDER_AUTH, _missing(original), findings=CERTAIN)
        if type(link).__name__ in _NO_CREDENTIALS:
            told = _said(ErrorKind.PROVIDER_AUTH, message, secrets)
            told.findings = CERTAIN
            return told
    kind = (
        ErrorKind.UPSTREAM_TRUNCATED
        if _CUT in message and _CUT in own(message)
        else _transport_failure(original, opened=opened)
    )
    if kind is not None:
        return _said(kind, message, secrets)
    status = getattr(original, "status_code", None)
    if type(original).__name__ == "UnsupportedParamsError":
        status = _BAD_REQUEST  # sometimes its status is 500
        message += " drop_params: true at the deployment leaves it out."
    headers = getattr(original, "litellm_response_headers", None) or getattr(original, "headers", None) or {}
    told = error_of_response(
        status if isinstance(status, int) else _INTERNAL_SERVER_ERROR,
        {str(name).lower(): str(value) for name, value in headers.items()},
        _body(message),
        secrets,
        now_s,
        own=own,
    )
    if opened and told.kind is ErrorKind.SERVER_ERROR:
        told.turn_into(ErrorKind.STREAM_ERROR)
    return told


def _said(kind: ErrorKind, message: str, secrets: Sequence[str]) -> UpstreamError:
    words = redact(message, secrets)
    return UpstreamError(kind, words, words=words)


def _missing(error: BaseException) -> str:
    """Return which package the gateway lacks: the cause that names a module, as litellm's own exception may not."""
    imports = [link for link in _chain(error) if isinstance(link, ImportError)]
    module = next((link.name for link in imports if link.name), "").partition(".")[0]
    if not module:
        return f"a Python package is not installed where the gateway runs: {imports[0]}"
    return f"needs the Python package {_PACKAGES.get(module, f'of {module}')}: install it where the gateway runs"


def _transport_failure(error: BaseException, *, opened: bool) -> ErrorKind | None:
    """Return the kind of a failure without an HTTP response, for which litellm has status 500 or 408; else None."""
    links = tuple(_chain(error))
    if not opened and any(isinstance(link, OSError | MemoryError) and is_shortage(link) for link in links):
        return ErrorKind.LOCAL_RESOURCES
    for link in links:
        match link:
            case aiohttp.ConnectionTimeoutError() | httpx.ConnectTimeout():
                return ErrorKind.CONNECT_TIMEOUT
            case aiohttp.ClientConnectorError() | httpx.ConnectError():
                return ErrorKind.CONNECT_ERROR
            case TimeoutError() | httpx.TimeoutException():
                return ErrorKind.STALL_TIMEOUT if opened else ErrorKind.TTFT_TIMEOUT
            case aiohttp.ClientPayloadError() | ConnectionError() | httpx.TransportError():
                return ErrorKind.DISCONNECTED
    # Litellm's class for all other errors; inside a stream, the provider's error.
    unnamed = type(error).__name__ == "APIConnectionError"
    return (ErrorKind.STREAM_ERROR if opened else ErrorKind.DISCONNECTED) if unnamed else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes, the outermost first."""
    link: BaseException | None = error
    for _ in range(_LONGEST_CHAIN):
        if link is None:
            return
        yield link
        link = link.__cause__ or link.__context__


def _body(message: str) -> bytes:
    """Return the provider's body from litellm's message, or the message without litellm's additions."""
    if (printed := _BODY.search(message)) is not None:
        try:
            body = ast.literal_eval(printed[0])
        except (SyntaxError, ValueError):
            body = None
        if isinstance(body, bytes):
            return body
    return message.encode()
