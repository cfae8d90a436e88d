"""POST /v1/messages/count_tokens: sent to a deployment that speaks Messages; estimated if none does."""

import msgspec
from aiohttp import web

from gateway.errors import ApiError, NoDeploymentFits
from gateway.ingress import headers
from gateway.ingress.admission import Client
from gateway.ingress.asked import needs_of, required_messages
from gateway.ingress.bodies.reading import Received
from gateway.ingress.body import Contents
from gateway.ingress.context import CONTEXT
from gateway.ingress.relayed.apis import COUNT_TOKENS
from gateway.ingress.relayed.relaying import answered, receive
from gateway.ingress.seated import seated
from gateway.ingress.surfaces.messages import MEDIA
from providers.dialects.messages.dialect import MESSAGES
from providers.errors import ErrorKind

ESTIMATED = "x-holeshot-estimated"


async def _count(request: web.Request, client: Client, received: Received, waited_s: float) -> web.StreamResponse:
    """Return a prompt's number of tokens. An estimate is marked; it is a call only if a deployment was asked."""
    context = request.app[CONTEXT]
    asked, origin = await receive(
        request, client, received, COUNT_TOKENS, waited_s=waited_s, prompt=MESSAGES.requests.prompt, media=MEDIA
    )
    messages = required_messages(asked.fields)

    def estimate(error: ApiError) -> web.Response | None:
        if not (isinstance(error, NoDeploymentFits) or error.code == ErrorKind.NO_SUCH_API):
            return None
        contents = Contents({}, asked.size, survey=asked.survey)
        needs = needs_of(messages, contents, MEDIA, max_tokens=None, tools=False, json_schema=False)
        fields = headers.identifying(origin.request_id) if origin.request_id is not None else {}
        return web.Response(
            body=msgspec.json.encode({"input_tokens": max(1, needs.prompt_tokens)}),
            content_type="application/json",
            headers={**fields, ESTIMATED: "true"},
        )

    with context.fleet.lease():
        return await answered(context, request, COUNT_TOKENS, asked, origin, answer_here=estimate)


count_tokens = seated(_count)
