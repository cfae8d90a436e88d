"""Receives a request, the same for every API: first admits the client, then reads the body."""

from collections.abc import Sequence

from aiohttp import web

from gateway.ingress import headers
from gateway.ingress.admission import JSON
from gateway.ingress.bodies.reading import read_body
from gateway.ingress.body import read_tags
from gateway.ingress.context import Context
from gateway.ingress.new_call import Origin
from gateway.ingress.plan_header import is_wanted


async def received(request: web.Request, context: Context, takes: Sequence[str] = (JSON,)) -> tuple[bytes, Origin]:
    """Return the body and its origin. ``takes`` are the media types that the API accepts.

    Raises:
        ApiError: the client is not admitted or has nothing left of a limit, the body is invalid, or the gateway is
            stopping.

    """
    context.check_begins()
    client = context.admission.admit(request, tuple(takes))
    if client.limits:
        context.limits.check(client.name, client.limits)
    body = await read_body(request)
    request_id = headers.request_id(request.headers)
    return body, Origin(
        client=client,
        headers=headers.for_upstream(request.headers, request_id),
        tags=read_tags(request.headers.get("x-holeshot-tags")),
        request_id=request_id,
        explain=is_wanted(request.headers),
        received_at=context.services.clock(),
    )
