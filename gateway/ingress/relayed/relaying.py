"""The way of one call that is routed and failed over but not raced, alike for every such API."""

from collections.abc import Awaitable, Callable
from functools import partial

from aiohttp import web

from gateway.calls import Call
from gateway.errors import ApiError, ClientDisconnected
from gateway.ingress import headers
from gateway.ingress.admission import JSON
from gateway.ingress.bodies.large import understood
from gateway.ingress.bodies.reading import read_body
from gateway.ingress.body import read_tags
from gateway.ingress.context import CONTEXT, Context
from gateway.ingress.entry import Entry, Origin
from gateway.ingress.plan_header import is_wanted
from gateway.ingress.preferences.override import HEADER
from gateway.ingress.relayed.apis import RelayedApi, default_model
from gateway.ingress.relayed.entry import enter_relay
from gateway.ingress.relayed.outlet import ResponseOutlet, relayed_headers
from gateway.ingress.relayed.request import RelayedRequest, read_json, read_multipart
from gateway.ingress.succession import Succession
from gateway.ingress.survey import Media
from gateway.racing.race import Earlier
from gateway.racing.relay import Asking, Relay

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def relaying(api: RelayedApi) -> Handler:
    """Return the handler of ``api``: it asks one deployment after the other, best first, until one answers."""

    async def relay(request: web.Request) -> web.StreamResponse:
        context = request.app[CONTEXT]
        asked, origin = await receive(request, api)
        with context.fleet.lease():
            return await RelayedWay(context, request, api, asked, origin).answer()

    return relay


async def receive(
    request: web.Request, api: RelayedApi, prompt: str = "", media: Media | None = None
) -> tuple[RelayedRequest, Origin]:
    """Admit the client, and read what it asks for; with ``media``, the field ``prompt`` of a large body is surveyed.

    Raises:
        ApiError: it may not ask, or what it asks for makes no sense.

    """
    context = request.app[CONTEXT]
    context.check_begins()
    client = context.admission.admit(request, api.takes)
    body = await read_body(request)
    race = request.headers.get(HEADER)

    def default() -> str:
        return default_model(api, context.fleet, client)

    if request.content_type == JSON:
        asked = read_json(api, await understood(body, context.body_work, prompt, media), race, default)
    else:
        asked = read_multipart(api, request.headers["content-type"], body, race, default)
    request_id = headers.request_id(request.headers)
    return asked, Origin(
        client=client,
        headers=headers.for_upstream(request.headers, request_id),
        tags=read_tags(request.headers.get("x-holeshot-tags")),
        request_id=request_id,
        explain=is_wanted(request.headers),
    )


class RelayedWay:
    """One call on its way: its model, then those that may be asked in its place."""

    def __init__(
        self,
        context: Context,
        request: web.Request,
        api: RelayedApi,
        asked: RelayedRequest,
        origin: Origin,
        *,
        answer_here: Callable[[ApiError], web.Response | None] = lambda _: None,
    ) -> None:
        """Take a request. ``answer_here`` may answer for itself when nobody else is left to be asked."""
        self._context = context
        self._request = request
        self._api = api
        self._asked = asked
        self._origin = origin
        self._answer_here = answer_here
        self._own: web.Response | None = None

    async def answer(self) -> web.StreamResponse:
        """Ask model after model until one answers.

        Raises:
            ApiError: none did.

        """
        try:
            succession = self._succession()
        except ApiError as error:
            if (own := self._answer_here(error)) is None:
                raise
            return own
        call, told = succession.entry.call, succession.told
        outlet = ResponseOutlet(self._request, told)
        earlier: Earlier | None = None
        while True:
            relay = self._lined_up(succession, earlier)
            try:
                record, relayed = await relay.run(outlet)
            except ApiError as error:
                error.headers.update({"x-holeshot-call-id": call.id, **told})
                if self._own is not None:
                    relay.answered_here()
                    self._own.headers.update({**headers.identifying(call.request_id or call.id), **error.headers})
                    return self._own
                if not succession.advance():
                    raise
                earlier = relay.behind
                continue
            if relayed.answer.rest is not None:
                if outlet.response is None:
                    raise ClientDisconnected("the client disconnected")
                return outlet.response
            fields = relayed_headers(relayed, told)
            if record.cost_usd is not None:
                fields["x-holeshot-cost-usd"] = f"{record.cost_usd:.8f}"
            return web.Response(body=relayed.answer.body, status=relayed.answer.status, headers=fields)

    def _succession(self) -> Succession:
        context, api, asked, origin = self._context, self._api, self._asked, self._origin
        fleet = context.fleet  # leased: what a reload brings may be closed under this call

        def entered(name: str, instead_of: Call | None) -> Entry:
            return enter_relay(context, api, asked, origin, name=name, fleet=fleet, instead_of=instead_of)

        return Succession(fleet, asked.model, asked.preferences.models[1:], entered)

    def _lined_up(self, succession: Succession, earlier: Earlier | None) -> Relay:
        context, entry = self._context, succession.entry

        def falls_back(error: ApiError) -> bool:
            """Have the next model ready, if there is one for this failure, else an answer of our own."""
            if succession.falls_back(error):
                return True
            self._own = self._answer_here(error)
            return self._own is not None

        return Relay(
            entry.call,
            entry.model,
            entry.plan,
            context.recorder,
            Asking(
                path=self._api.path,
                form=self._asked.form,
                is_priced=self._api.is_text,
                takes_extra_body=self._api.takes_extra_body,
            ),
            tasks=context.attempts,
            seats=context.seats,
            clock=context.clock,
            new_id=context.new_id,
            utc_now=context.utc_now,
            cancelled_as=partial(context.cancelled_as, self._request),
            falls_back=falls_back,
            not_asked=partial(context.steering.not_asked, entry.names),
            earlier=earlier,
        )
