"""Handlers of the raced APIs: they read a request in any dialect and answer with a stream or one JSON body."""

import msgspec
from aiohttp import web

from gateway.attempt_records import WinOn
from gateway.calls import Call, CallRecord
from gateway.errors import ApiError, ClientDisconnected, ResponseNotFound
from gateway.fleet.fleet import Fleet
from gateway.ingress import headers
from gateway.ingress.admission import Client
from gateway.ingress.asked import Asked
from gateway.ingress.bodies.large import read_contents
from gateway.ingress.bodies.reading import Received
from gateway.ingress.context import CONTEXT, Context
from gateway.ingress.entry import Entry, enter, prepared_race
from gateway.ingress.journey import Journey
from gateway.ingress.new_call import Origin
from gateway.ingress.preferences.deadlines import read_deadlines, tightened
from gateway.ingress.preferences.override import HEADER, NOTHING
from gateway.ingress.preferences.provider_preferences import NOTHING as NO_PREFERENCES
from gateway.ingress.receipt import origin_of
from gateway.ingress.seated import Admit, Handler, seated
from gateway.ingress.streaming import StreamingSink
from gateway.ingress.surfaces.surface import Surface
from gateway.ingress.takeover import delivered_of, finish
from gateway.racing.gather import GatheringSink
from gateway.racing.open_call import Broken, Unanswered
from gateway.racing.prompt import forget_prompt
from gateway.racing.sink import Sink

COMMENT_S = 10.0  # between two comments while no answer is known to be valid


def answering(surface: Surface, admit: Admit | None = None) -> Handler:
    """Return the request handler of an API. ``admit`` is that of ``seated``."""

    async def answer(request: web.Request, client: Client, received: Received, waited_s: float) -> web.StreamResponse:
        context = request.app[CONTEXT]
        origin = origin_of(request, context, client, received, waited_s)
        contents = await read_contents(
            received.take(), context.body_work, surface.dialect.requests.prompt, surface.media
        )
        asked = surface.read(contents, request.headers.get(HEADER), context.settings)
        if (deadlines := read_deadlines(request.headers)) is not NOTHING:
            asked = msgspec.structs.replace(asked, race=tightened(asked.race, deadlines))
            if asked.preferences is not NO_PREFERENCES:  # they override the race settings
                asked = msgspec.structs.replace(asked, preferences=tightened(asked.preferences, deadlines))
        made_by = None if asked.continues is None else await _maker(context, asked.continues, origin.client)
        with context.fleet.lease():
            return await _Answer(context, request, asked, origin, made_by).give()

    return seated(answer, admit=admit)


async def _maker(context: Context, response_id: str, client: Client) -> str:
    """Return the deployment that stores the response which a request continues.

    Raises:
        ResponseNotFound: the response was not made here, is too old, or belongs to another client.

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


class _Answer:
    """Answers one call, streamed or as one JSON body."""

    def __init__(
        self, context: Context, request: web.Request, asked: Asked, origin: Origin, made_by: str | None
    ) -> None:
        def entered(name: str, instead_of: Call | None, *, fleet: Fleet) -> Entry:
            return enter(context, asked, origin, name=name, fleet=fleet, made_by=made_by, instead_of=instead_of)

        self._context = context
        self._request = request
        self._asked = asked
        self._origin = origin
        self._journey = Journey(
            context, request, asked.model, asked.preferences, entered, may_fall_back=made_by is None
        )

    async def give(self) -> web.StreamResponse:
        """Run the call and return its HTTP response."""
        journey = self._journey
        if not self._asked.stream:
            return await self._whole()
        keep = self._keep if self._asked.stores else None
        sink = StreamingSink(self._request, journey.call, journey.response_headers, keep, self._forget)
        every_s = journey.entry.model.keepalive_s
        if every_s is None and journey.call.win_on is WinOn.VALID:
            every_s = COMMENT_S  # the first token may be the last
        if every_s is not None:
            sink.keep_alive(every_s)
        try:
            await self._run(sink)
        except ApiError as error:
            if not await sink.refused(error):
                raise
        except Exception:
            sink.drop()
            raise
        finally:
            await sink.close()
        if sink.response is None:
            raise ClientDisconnected("the client disconnected")
        return sink.response

    async def _whole(self) -> web.Response:
        sink = GatheringSink(self._journey.call.dialect)
        record = await self._run(sink)
        if sink.winner is None:
            raise ClientDisconnected("the client disconnected")
        fields = headers.for_client(sink.winner)
        fields.update(self._journey.response_headers)
        if record.cost_usd is not None:
            fields["x-holeshot-cost-usd"] = f"{record.cost_usd:.8f}"
        body = sink.body()
        if self._asked.stores:
            await self._keep(body, sink.winner.deployment)
        return web.Response(body=body, content_type="application/json", headers=fields)

    async def _run(self, sink: Sink) -> CallRecord:
        journey = self._journey

        async def run(entry: Entry) -> CallRecord | Unanswered:
            if isinstance(sink, StreamingSink):
                sink.delivered = delivered_of(entry, journey.open_call)
            race = prepared_race(self._context, entry, journey.open_call, sink, journey.response_headers)
            ending = await race.run()
            while isinstance(ending, Broken):
                assert isinstance(sink, StreamingSink)  # others are not committed before their end
                ending = await finish(entry, journey.open_call, sink, ending)
            return ending

        record = await journey.run(run)
        assert isinstance(record, CallRecord)  # only an ``answer_here`` gives a response instead; there is none
        self._learn(journey.entry, record)
        return record

    def _learn(self, entry: Entry, record: CallRecord) -> None:
        """Record which deployment should now have this prompt's prefix in its cache."""
        if entry.prefix is None:
            return
        winner = next((each for each in record.attempts if each.id == record.winner_attempt_id), None)
        if winner is not None:
            self._context.steering.served(entry.model.name, entry.prefix, winner.deployment, record.cached_tokens)

    def _forget(self, call: Call) -> None:
        """Release the prompt: the request's, and each translated copy."""
        forget_prompt(self._asked.fields)
        for each in (call,) if call is self._journey.first_call else (call, self._journey.first_call):
            if each.fields is not self._asked.fields:
                forget_prompt(each.fields)
            for fields in each.wordings.values():
                forget_prompt(fields)
        if self._origin.received is not None:
            self._origin.received.release()

    async def _keep(self, answer: bytes, deployment: str) -> None:
        """Record which deployment made the response in ``answer``. Translated ones are not stored."""
        if self._asked.dialect not in self._journey.entry.model.deployments[deployment].speaks:
            return
        await self._context.responses.keep(self._origin.client.name, answer, deployment)
