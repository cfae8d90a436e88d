"""Receives the request of an admitted client, the same for every API."""

from aiohttp import web

from gateway.ingress import headers
from gateway.ingress.admission import Client
from gateway.ingress.bodies.reading import read_body
from gateway.ingress.body import read_tags
from gateway.ingress.context import Context
from gateway.ingress.new_call import Origin
from gateway.ingress.plan_header import is_wanted
from providers.redaction import redact_word


async def received(request: web.Request, context: Context, client: Client, waited_s: float) -> tuple[bytes, Origin]:
    """Return the body and its origin. The seconds that the call has waited for its seat count as the gateway's own.

    Raises:
        ApiError: the body or a header is invalid.

    """
    body = await read_body(request)
    request_id = headers.request_id(request.headers)
    return body, Origin(
        client=client,
        headers=headers.for_upstream(request.headers, request_id),
        tags=read_tags(request.headers.get("x-holeshot-tags")),
        request_id=None if request_id is None else redact_word(request_id),
        explain=is_wanted(request.headers),
        parent=None if context.tracing.own is None else headers.trace(request.headers),
        received_at=context.services.clock() - waited_s,
    )
