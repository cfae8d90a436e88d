"""GET / and the page's files. They hold no data, so they need no key: everything that is shown comes from /api."""

from collections.abc import Mapping

import msgspec
from aiohttp import web

from gateway.errors import NotFound
from gateway.page.assets import Asset, assets

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
GUARDS: Mapping[str, str] = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}
_WELCOME = {
    "name": "Holeshot",
    "chat": "v1/chat/completions",
    "models": "v1/models",
    "api": "openapi.json",
    "page": "open this address in a browser",
}


async def home(request: web.Request) -> web.StreamResponse:
    """Answer a browser with the page, and a program with where to go."""
    if "text/html" in request.headers.get("accept", ""):
        return served(request, assets()["index.html"])
    body = msgspec.json.encode(_WELCOME)
    return web.Response(body=body, content_type="application/json", headers={"vary": "accept"})


async def asset(request: web.Request) -> web.StreamResponse:
    """Return one of the page's files.

    Raises:
        NotFound: there is none of this name.

    """
    found = assets().get(request.match_info["path"])
    if found is None:
        raise NotFound("the page has no such file")
    return served(request, found)


async def icon(request: web.Request) -> web.StreamResponse:
    """Return the icon, where browsers look for it unasked."""
    return served(request, assets()["icon.svg"])


def served(request: web.Request, found: Asset) -> web.Response:
    """Return a file, or 304 if the browser has it."""
    headers = {**GUARDS, "etag": found.etag, "cache-control": "no-cache", "vary": "accept, accept-encoding"}
    if found.etag in request.headers.get("if-none-match", ""):
        return web.Response(status=304, headers=headers)
    body = found.body
    if "gzip" in request.headers.get("accept-encoding", "") and len(found.compressed) < len(body):
        headers["content-encoding"], body = "gzip", found.compressed
    return web.Response(body=body, headers={**headers, "content-type": found.content_type})
