"""A request to a running gateway, with advice for each way it can fail."""

import http.client
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from gateway.settings import is_loopback

_TIMEOUT_S = 10.0
_LONGEST_ERROR = 65536
_KEYS = {
    401: "the key is missing or wrong: give the key of an admin, an operator or a viewer with --key or HOLESHOT_KEY",
    403: "the key is neither an admin's nor a viewer's: set `role: viewer` for this client",
}
_KEYS_OF_CLIENTS = {401: "the key is missing or wrong: give a client's key with --key or HOLESHOT_KEY"}
KEYS_OF_ADMINS = {
    401: "the key is missing or wrong: give the key of an admin with --key or HOLESHOT_KEY",
    403: "only an admin may change this, and the key is no admin's: give one whose client has `role: admin`",
}
_NO_HEADERS: Mapping[str, str] = {}

Answer = http.client.HTTPResponse


class GatewayError(Exception):
    """The gateway could not be asked; the message says why and what to do. ``status``: of the answer, if any."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


def get(url: str, key: str | None, *, is_clients: bool = False, advice: Mapping[int, str] = _KEYS) -> bytes:
    """Return the body of a GET to ``url``; ``is_clients``: the path is one that every client may read.

    Raises:
        GatewayError: there is no gateway, or it refuses.

    """
    with _answer(url, key, _TIMEOUT_S, advice=_KEYS_OF_CLIENTS if is_clients else advice) as response:
        return response.read()


def delete(url: str, key: str | None) -> None:
    """Delete what ``url`` names; only an admin may do so.

    Raises:
        GatewayError: there is no gateway, it refuses, or has no such thing.

    """
    with _answer(url, key, _TIMEOUT_S, method="DELETE", advice=KEYS_OF_ADMINS) as response:
        response.read()


def told(url: str, key: str | None, *names: str, advice: Mapping[int, str] = _KEYS) -> dict[str, Any]:
    """Return the JSON object of a GET to ``url``, with at least these names; ``advice``: on keys, by status.

    Raises:
        GatewayError: there is no gateway, it refuses, or the answer is not a gateway's.

    """
    import msgspec  # noqa: PLC0415 - heavy imports belong to the verb that runs

    found: dict[str, Any] = {}
    with suppress(msgspec.DecodeError):
        found = msgspec.json.decode(get(url, key, advice=advice), type=dict[str, Any])
    if not set(names) <= found.keys():
        raise GatewayError(f"{url} does not answer like a Holeshot gateway")
    return found


def lines(url: str, key: str | None, silent_s: float) -> Iterator[bytes]:
    """Yield the lines of an answer as they come, without their ends.

    Raises:
        GatewayError: there is no gateway, it refuses, or nothing has come for ``silent_s`` seconds.

    """
    with _answer(url, key, silent_s) as response:
        for line in response:
            yield line.rstrip(b"\r\n")


@contextmanager
def posted(url: str, key: str | None, body: bytes, silent_s: float, headers: Mapping[str, str]) -> Iterator[Answer]:
    """Post JSON; yield the answer, whose lines are read as they come.

    Raises:
        GatewayError: there is no gateway, it refuses, or nothing has come for ``silent_s`` seconds.

    """
    with _answer(url, key, silent_s, body, headers, advice=_KEYS_OF_CLIENTS) as response:
        yield response


@contextmanager
def _answer(
    url: str,
    key: str | None,
    timeout_s: float,
    body: bytes | None = None,
    headers: Mapping[str, str] = _NO_HEADERS,
    *,
    method: str | None = None,
    advice: Mapping[int, str] = _KEYS,
) -> Iterator[Answer]:
    if "@" in url.partition("?")[0]:
        raise GatewayError("--url has a user or a password, which a gateway does not take: give its key with --key")
    no_address = GatewayError(f"{url!r} is no http:// or https:// address")
    if not _is_address(url):
        raise no_address
    if key is not None and not (key.isascii() and key.isprintable()):
        words = "such as a line break or a curly quote: look where it is set"
        raise GatewayError(f"the key has a character that no key has, {words}")
    sent = {**headers, **({"authorization": f"Bearer {key}"} if key else {})}
    if body is not None:
        sent["content-type"] = "application/json"
    request = urllib.request.Request(url, body, sent, method=method)  # noqa: S310 - the scheme was checked
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
    if is_loopback(urlsplit(url).hostname or ""):
        handlers.append(
            urllib.request.ProxyHandler({})
        )  # a proxy from the environment cannot reach this machine's loopback address
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout_s) as response:
            yield response
    except urllib.error.HTTPError as error:
        with error:
            why = _reason(error.code, error.read(_LONGEST_ERROR), advice)
        raise GatewayError(f"{url}: {why}", error.code) from None
    except UnicodeError:  # a path that is not ASCII, or a host that no name server could have
        raise no_address from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        words = f"no gateway at {_host_of(url)} ({_words(reason)}); start one with `holeshot serve`, or give --url"
        raise GatewayError(words) from None


def _host_of(url: str) -> str:
    """Return the scheme and the host of ``url``: where nothing answers, the path does not matter."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _words(reason: object) -> str:
    """Return a reason without Python's number of the error."""
    return (isinstance(reason, OSError) and reason.strerror) or str(reason)


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # an incomplete IPv6 address, or an invalid port
        return False
    return parts.scheme in ("http", "https")


def _reason(status: int, body: bytes, keys: Mapping[int, str]) -> str:
    """Describe an error status: with advice if it is about the key, else in the gateway's words."""
    if status in keys:
        return keys[status]
    import msgspec  # noqa: PLC0415 - heavy imports belong to the verb that runs

    try:
        return str(msgspec.json.decode(body, type=dict[str, dict[str, str | None]])["error"]["message"])
    except (msgspec.DecodeError, KeyError):
        return f"the answer is {status}: is it a Holeshot gateway?"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Forbids redirects: the key must not be sent to another address."""

    def redirect_request(self, *_: object) -> None:
        return None
