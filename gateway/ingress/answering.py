"""The way of one call, from the body to the answer, alike for every dialect."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from gateway.calls import Call, CallRecord
from gateway.errors import ApiError, ClientDisconnected, ResponseNotFound, ShuttingDown
from gateway.ingress import headers
from gateway.ingress.admission import Client
from gateway.ingress.asked import Asked
from gateway.ingress.body import read_tags
from gateway.ingress.context import CONTEXT, Context
from gateway.ingress.entry import Entry, Origin, enter, lined_up
from gateway.ingress.plan_header import PLAN_HEADER, is_wanted, written
from gateway.ingress.streaming import StreamingSink
from gateway.ingress.successors import Successors
from gateway.ingress.wishes.override import HEADER
from gateway.ingress.wishes.preferences import is_passed_on
from gateway.racing.gather_events import gathering_sink
from gateway.racing.sink import Sink
from gateway.settings.model import Settings

FALLBACK = "x-holeshot-fallback"  # the model that was asked in place of the one the request names

Read = Callable[[bytes, str | None, Settings], Asked]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def answering(read: Read) -> Handler:
    """Return the handler of the API whose bodies ``read`` understands."""

    async def answer(request: web.Request) -> web.StreamResponse:
        context = request.app[CONTEXT]
        if context.draining:
            raise ShuttingDown("the gateway is stopping; call again")
        client = context.admission.admit(request)
        asked = read(await request.read(), request.headers.get(HEADER), context.settings)
        request_id = headers.request_id(request.headers)
        origin = Origin(
            client=client,
            headers=headers.for_upstream(request.headers, request_id),
            tags=read_tags(request.headers.get("x-holeshot-tags")),
            request_id=request_id,
            explain=is_wanted(request.headers),
        )
        made_by = None if asked.continues is None else await _maker(context, asked.continues, client)
        with context.fleet.lease():
            return await _Way(context, request, asked, origin, made_by).answer()

    return answer


async def _maker(context: Context, response_id: str, client: Client) -> str:
    """Return which deployment keeps the response that a request goes on from.

    Raises:
        ResponseNotFound: it was not made here, or too long ago, or for another client.

    """
    made_by = await context.responses.find(client.name, response_id)
    if made_by is None:
        days = context.settings.response_ids_ttl_s / 86_400
        raise ResponseNotFound(
            f"the response {response_id!r} was not stored for this key in the last {days:g} days: send"
            " the conversation so far as 'input', or the first request again with 'store': true",
            param="previous_response_id",
        )
    return made_by


class _Way:
    """One call on its way: its model, then those that may be asked in its place."""

    def __init__(
        self, context: Context, request: web.Request, asked: Asked, origin: Origin, made_by: str | None
    ) -> None:
        self._context = context
        self._fleet = context.fleet  # leased: what a reload brings may be closed under this call
        self._request = request
        self._asked = asked
        self._origin = origin
        self._made_by = made_by
        self._successors: Successors | None = None  # until somebody is needed
        self._told: dict[str, str] = {}  # headers for the client besides those of the winner
        self._next: Entry | None = None
        self._first_call: Call | None = None  # whose id and times every further one keeps
        self._entry = self._first()
        self._first_call = self._entry.call

    async def answer(self) -> web.StreamResponse:
        """Run race after race until one is answered, and answer."""
        call = self._entry.call
        if not call.streamed:
            return await self._whole()
        sink = StreamingSink(self._request, call, self._told, self._keep if self._asked.stores else None)
        if self._entry.model.keepalive_s is not None:
            sink.keep_alive(self._entry.model.keepalive_s)
        try:
            await self._run(sink)
        except ApiError as error:
            error.headers.update({"x-holeshot-call-id": call.id, **self._told})
            if not await sink.refused(error):
                raise
        except Exception:
            sink.drop()
            raise
        finally:
            await sink.close()
        if sink.response is None:
            raise ClientDisconnected("the client has gone")
        return sink.response

    async def _whole(self) -> web.Response:
        call = self._entry.call
        sink = gathering_sink(call.dialect)
        try:
            record = await self._run(sink)
        except ApiError as error:
            error.headers.update({"x-holeshot-call-id": call.id, **self._told})
            raise
        if sink.winner is None:
            raise ClientDisconnected("the client has gone")
        fields = headers.for_client(sink.winner)
        fields.update(self._told)
        if record.cost_usd is not None:
            fields["x-holeshot-cost-usd"] = f"{record.cost_usd:.8f}"
        body = sink.body()
        if self._asked.stores:
            await self._keep(body, sink.winner.deployment)
        return web.Response(body=body, content_type="application/json", headers=fields)

    async def _run(self, sink: Sink) -> CallRecord:
        earlier = None
        while True:
            entry = self._entry
            race = lined_up(self._context, entry, sink, told=self._told, falls_back=self._falls_back, earlier=earlier)
            try:
                record = await race.run()
            except ApiError:
                if self._next is None:
                    raise
                self._entry, self._next, earlier = self._next, None, race.behind
                continue
            self._learn(record)
            return record

    def _first(self) -> Entry:
        """Enter the model that was asked for, or whoever may be asked in its place when it cannot answer at all."""
        try:
            entry = self._enter(self._asked.model)
        except ApiError as error:
            found = self._other(error, self._asked.model)
            if found is None:
                raise
            return found
        self._tell(entry)
        return entry

    def _falls_back(self, error: ApiError) -> bool:
        """Have the next model ready, if there is one for this failure."""
        self._next = self._other(error, self._entry.model.name)
        return self._next is not None

    def _other(self, error: ApiError, failed: str) -> Entry | None:
        if self._made_by is not None:
            return None
        if self._successors is None:
            self._successors = Successors(self._fleet, self._asked.model, self._wanted())
        for name in self._successors.after(error, failed):
            try:
                entry = self._enter(name)
            except ApiError:
                continue
            self._tell(entry)
            self._told[FALLBACK] = name
            return entry
        return None

    def _wanted(self) -> tuple[str, ...]:
        """Return the request's own fallbacks, unless they are its provider's affair."""
        if self._first_call is not None and is_passed_on(self._entry.model):
            return ()
        return self._asked.preferences.models[1:]

    def _enter(self, name: str) -> Entry:
        return enter(
            self._context,
            self._asked,
            self._origin,
            name=name,
            fleet=self._fleet,
            made_by=self._made_by,
            instead_of=self._first_call,
        )

    def _tell(self, entry: Entry) -> None:
        self._told.clear()
        self._told.update(entry.told)
        if entry.plan.explanation is not None:
            self._told[PLAN_HEADER] = written(entry.plan.explanation)

    def _learn(self, record: CallRecord) -> None:
        """Tell the steering whose prompt cache should be warm now."""
        entry = self._entry
        winner = next((each for each in record.attempts if each.id == record.winner_attempt_id), None)
        if entry.prefix is not None and winner is not None:
            self._context.steering.served(entry.model.name, entry.prefix, winner.deployment, record.cached_tokens)

    async def _keep(self, answer: bytes, deployment: str) -> None:
        """Remember who made the response that ``answer`` begins with, or is; a translated one is kept by nobody."""
        if self._asked.dialect not in self._entry.model.deployments[deployment].speaks:
            return
        await self._context.responses.keep(self._origin.client.name, answer, deployment)
