"""GET /openapi.json, and GET /docs, a page made from it."""

import gzip
import hashlib
from functools import cache

import msgspec
from aiohttp import web

from gateway.ingress.openapi.document import document
from gateway.ingress.page import served
from gateway.page.assets import Asset, assets


async def describe(request: web.Request) -> web.StreamResponse:
    """Return the description of this API; the same for everybody, so it needs no key."""
    return served(request, _described())


async def docs(request: web.Request) -> web.StreamResponse:
    """Return the page that shows it."""
    return served(request, assets()["docs.html"])


@cache
def _described() -> Asset:
    body = msgspec.json.encode(document())
    etag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
    return Asset(body, gzip.compress(body, mtime=0), "application/json", etag)
