"""Answers of /api: JSON with an ETag, compressed where it is long: a history of all deployments is megabytes."""

import hashlib
from typing import Any

import msgspec
from aiohttp import web

COMPRESSED_FROM = 32_768  # bytes


def answer(request: web.Request, value: Any) -> web.Response:
    """Return ``value`` as JSON, or 304 if the caller has it."""
    body = msgspec.json.encode(value)
    headers = {
        "etag": f'W/"{hashlib.sha256(body).hexdigest()[:20]}"',
        "cache-control": "private, no-cache",
        "vary": "authorization, cookie, accept-encoding",
        "x-content-type-options": "nosniff",
        "cross-origin-resource-policy": "same-origin",  # no page that an old browser opens may embed it
    }
    if headers["etag"] in request.headers.get("if-none-match", ""):
        return web.Response(status=304, headers=headers)
    response = web.Response(
        body=body, content_type="application/json", headers=headers, zlib_executor_size=COMPRESSED_FROM
    )
    if len(body) >= COMPRESSED_FROM and "gzip" in request.headers.get("accept-encoding", ""):
        response.enable_compression(web.ContentCoding.gzip)  # in a thread, which leaves the event loop alone
    return response
