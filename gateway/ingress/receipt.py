"""What is known of the request of an admitted client besides its body, the same for every API."""

from aiohttp import web

from gateway.ingress import headers
from gateway.ingress.admission import Client
from gateway.ingress.bodies.reading import Received
from gateway.ingress.body import read_tags
from gateway.ingress.context import Context
from gateway.ingress.new_call import Origin
from gateway.ingress.plan_header import is_wanted
from providers.redaction import redact_word


def origin_of(request: web.Request, context: Context, client: Client, received: Received, waited_s: float) -> Origin:
    """Return the origin of a call. The seconds that it has waited for its seat count as the gateway's own.

    Raises:
        InvalidRequest: a header is invalid.

    """
    request_id = headers.request_id(request.headers)
    return Origin(
        client=client,
        received=received,
        headers=headers.for_upstream(request.headers, request_id),
        tags=read_tags(request.headers.get("x-holeshot-tags")),
        request_id=None if request_id is None else redact_word(request_id),
        explain=is_wanted(request.headers),
        parent=None if context.tracing.own is None else headers.trace(request.headers),
        received_at=context.services.clock() - waited_s,
    )
