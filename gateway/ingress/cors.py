"""CORS: lets web pages of the configured origins call the APIs, each with a key of its own, never with cookies."""

import re
from collections.abc import Collection

from aiohttp import web
from aiohttp.hdrs import METH_OPTIONS
from multidict import istr

PATHS = ("/v1/", "/v2/")  # the APIs; what operators look at and health checks are for no web page
METHODS = "GET, POST, DELETE"
MAX_AGE_S = 7200  # browsers ask again after this; none remembers an answer for longer than a day, Chrome two hours
_FIELD = re.compile("[a-z0-9-]{1,100}")

# Headers that a page may send: those of SDKs and of the gateway. Never what a proxy says of a client's address.
_SENT = frozenset(
    {
        *("accept", "accept-language", "authorization", "content-language", "content-type", "http-referer"),
        *("idempotency-key", "traceparent", "tracestate", "user-agent", "x-api-key", "x-request-id", "x-title"),
    }
)
_SENT_PREFIXES = ("anthropic-", "openai-", "x-holeshot-", "x-llm-d-", "x-stainless-")
# Headers of answers that a page may read.
_SHOWN = frozenset({"request-id", "retry-after", "traceresponse", "x-request-id"})
_SHOWN_PREFIXES = ("anthropic-ratelimit-", "x-holeshot-", "x-ratelimit-")

_VARY, _ORIGIN, _EXPOSED = istr("vary"), istr("access-control-allow-origin"), istr("access-control-expose-headers")


def preflight(request: web.Request, origins: Collection[str]) -> web.Response | None:
    """Return the answer to a browser's question whether a page may call; None if it may not, or it is another request.

    It needs no key: browsers send none here. ``add_headers`` completes it.
    """
    if request.method != METH_OPTIONS or "access-control-request-method" not in request.headers:
        return None
    if not request.path.startswith(PATHS) or request.headers.get("origin") not in origins:
        return None
    headers = {"access-control-allow-methods": METHODS, "access-control-max-age": str(MAX_AGE_S)}
    asked = request.headers.get("access-control-request-headers", "").lower().split(",")
    if allowed := [name for field in asked if _may_be_sent(name := field.strip())]:
        headers["access-control-allow-headers"] = ", ".join(allowed)
    return web.Response(status=204, headers=headers)


def add_headers(request: web.Request, response: web.StreamResponse, origins: Collection[str]) -> None:
    """Let the page that sent ``request`` read ``response``, also an error, if its origin is one of ``origins``.

    There is no ``access-control-allow-credentials``: a page has to know a key, cookies count for nothing.
    """
    if not request.path.startswith(PATHS):
        return
    headers = response.headers
    headers[_VARY] = f"{headers[_VARY]}, origin" if _VARY in headers else "origin"  # also for other origins, in caches
    origin = request.headers.get("origin")
    if origin is None or origin not in origins:
        return
    headers[_ORIGIN] = origin
    shown = [name for field in headers if (name := field.lower()) in _SHOWN or name.startswith(_SHOWN_PREFIXES)]
    if shown:
        headers[_EXPOSED] = ", ".join(shown)


def _may_be_sent(name: str) -> bool:
    return name in _SENT or (name.startswith(_SENT_PREFIXES) and _FIELD.fullmatch(name) is not None)
