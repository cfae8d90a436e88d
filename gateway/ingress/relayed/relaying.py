"""Handlers of the APIs without races: deployments are asked one after the other, best first, until one answers."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from aiohttp import web

from gateway.calls import Call, CallRecord
from gateway.errors import ApiError, ClientDisconnected
from gateway.fleet.fleet import Fleet
from gateway.ingress import headers
from gateway.ingress.admission import JSON, Client
from gateway.ingress.bodies.large import read_contents
from gateway.ingress.bodies.reading import Received
from gateway.ingress.context import CONTEXT, Context
from gateway.ingress.entry import Entry
from gateway.ingress.journey import Journey
from gateway.ingress.new_call import Origin
from gateway.ingress.preferences.override import HEADER
from gateway.ingress.receipt import origin_of
from gateway.ingress.relayed.apis import RelayedApi, default_model
from gateway.ingress.relayed.entry import enter_relay
from gateway.ingress.relayed.outlet import ResponseOutlet, relayed_headers
from gateway.ingress.relayed.request import RelayedRequest, read_json, read_multipart
from gateway.ingress.seated import Handler, seated
from gateway.ingress.survey import Media
from gateway.racing.open_call import Unanswered
from gateway.racing.relay import Asking, Relay

if TYPE_CHECKING:
    from gateway.racing.outlet import Relayed


def relaying(api: RelayedApi) -> Handler:
    """Return the request handler of ``api``."""

    async def relay(request: web.Request, client: Client, received: Received, waited_s: float) -> web.StreamResponse:
        context = request.app[CONTEXT]
        asked, origin = await receive(request, client, received, api, waited_s=waited_s)
        with context.fleet.lease():
            return await answered(context, request, api, asked, origin)

    return seated(relay, api.takes)


async def receive(
    request: web.Request,
    client: Client,
    received: Received,
    api: RelayedApi,
    *,
    waited_s: float,
    prompt: str = "",
    media: Media | None = None,
) -> tuple[RelayedRequest, Origin]:
    """Read the request of an admitted client; with ``media``, the field ``prompt`` of a large body is surveyed.

    Raises:
        ApiError: the request is invalid.

    """
    context = request.app[CONTEXT]
    origin, body = origin_of(request, context, client, received, waited_s), received.take()
    race = request.headers.get(HEADER)

    def default() -> str:
        return default_model(api, context.fleet, origin.client)

    if request.content_type == JSON:
        asked = read_json(api, await read_contents(body, context.body_work, prompt, media), race, default)
    else:
        asked = read_multipart(api, request.headers["content-type"], body, race, default)
    return asked, origin


async def answered(
    context: Context,
    request: web.Request,
    api: RelayedApi,
    asked: RelayedRequest,
    origin: Origin,
    *,
    answer_here: Callable[[ApiError], web.Response | None] = lambda _: None,
) -> web.StreamResponse:
    """Return the answer of the first model that gives one; ``answer_here`` may answer if none does.

    The caller must hold a lease of the context's fleet.

    Raises:
        ApiError: no model answered.

    """
    response_headers: dict[str, str]
    answer: Relayed | None = None

    def entered(name: str, instead_of: Call | None, *, fleet: Fleet) -> Entry:
        return enter_relay(context, api, asked, origin, name=name, fleet=fleet, instead_of=instead_of)

    async def run(entry: Entry) -> CallRecord | Unanswered:
        nonlocal answer
        asking = Asking(api.path, asked.form, is_priced=api.is_text, takes_extra_body=api.takes_extra_body)
        relay = Relay(journey.open_call, entry.model, entry.plan, asking)
        ending = await relay.run(outlet)
        answer = relay.answer
        return ending

    try:
        journey = Journey(context, request, asked.model, asked.preferences, entered, answer_here=answer_here)
    except ApiError as error:
        if (own := answer_here(error)) is None:
            raise
        return own
    response_headers = journey.response_headers
    outlet = ResponseOutlet(request, response_headers)
    record = await journey.run(run)
    if isinstance(record, web.Response):
        record.headers.update(headers.identifying(journey.call.request_id or journey.call.id))
        return record
    assert answer is not None
    if answer.answer.rest is not None:
        if outlet.response is None:
            raise ClientDisconnected("the client disconnected")
        return outlet.response
    fields = relayed_headers(answer, response_headers)
    if record.cost_usd is not None:
        fields["x-holeshot-cost-usd"] = f"{record.cost_usd:.8f}"
    return web.Response(body=answer.answer.body, status=answer.answer.status, headers=fields)
