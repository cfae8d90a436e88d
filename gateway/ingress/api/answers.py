"""Answers of /api: JSON with an ETag."""

import hashlib
from typing import Any

import msgspec
from aiohttp import web


def answer(request: web.Request, value: Any) -> web.Response:
    """Return ``value`` as JSON, or 304 if the caller has it."""
    body = msgspec.json.encode(value)
    headers = {
        "etag": f'"{hashlib.sha256(body).hexdigest()[:20]}"',
        "cache-control": "private, no-cache",
        "vary": "authorization, cookie",
        "x-content-type-options": "nosniff",
        "cross-origin-resource-policy": "same-origin",  # no page that an old browser opens may embed it
    }
    if headers["etag"] in request.headers.get("if-none-match", ""):
        return web.Response(status=304, headers=headers)
    return web.Response(body=body, content_type="application/json", headers=headers)
