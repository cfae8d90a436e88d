"""Handlers of the raced APIs: they read a request in any dialect and answer with a stream or one JSON body."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial

import msgspec
from aiohttp import HttpVersion11, web
from aiohttp.typedefs import Handler
from multidict import istr

from gateway.api import headers
from gateway.api.admission import Admit, ClientHandler, admitted_call, client_context_of
from gateway.api.aiohttp_adapter import EventsResponse, PlainResponse
from gateway.api.auth import JSON
from gateway.api.bodies import ReceivedBody, address_of, read_contents
from gateway.api.call_context import ClientContext
from gateway.api.call_runner import CallRunner
from gateway.api.client import Client
from gateway.api.context import BEGUN, CONTEXT, Context, Phase
from gateway.api.endpoint import Endpoint
from gateway.api.overrides import HEADER, NOTHING, read_deadlines, tightened
from gateway.api.plan_call import plan_call
from gateway.api.preferences import NOTHING as NO_PREFERENCES
from gateway.api.provider_state import Given, StoredAt, check_names, gives, not_recent
from gateway.api.recall import kept_at, recalled, scope_of
from gateway.api.request import ParsedRequest
from gateway.api.stored import begin_in_background
from gateway.core.attempts import WinOn
from gateway.core.calls import Call, CallRecord, Maker, whole_cost_usd
from gateway.core.errors import ApiError, ClientDisconnected, ResponseNotFound, ShuttingDown
from gateway.limits import Begun
from gateway.memory.answers import Remembering
from gateway.overload.bodies import SEATED_BYTES, process_full
from gateway.racing import (
    Block,
    ClientGone,
    ClientSink,
    Forward,
    GatheringSink,
    Winner,
    answers_asked,
    forget_prompt,
)
from providers import UpstreamError, aside, events
from providers.dialects import StoredKind

# The sink of a streamed answer: it forwards the winner's server-sent events as they arrive.

Keep = Callable[[bytes, Maker], Awaitable[None]]
Forget = Callable[[Call], None]

_CONTENT_TYPE, _CACHE_CONTROL, _BUFFERING = istr("content-type"), istr("cache-control"), istr("x-accel-buffering")


async def _large(sink: GatheringSink) -> bytes:
    """Return the body of a long answer, made in the thread for long work.

    Raises:
        Overloaded: there is no memory for it.

    """
    try:
        return await aside(sink.body)
    except MemoryError as error:
        raise process_full() from error


def _is_plain(request: web.Request, context: Context) -> bool:
    """Whether the response has neither a connection to end nor a web page to serve."""
    return (
        request.version == HttpVersion11
        and request.keep_alive
        and context.phase is Phase.SERVING
        and not context.settings.cors
    )


class StreamingSink(ClientSink):
    """Writes events to the client's response. Until the winner begins, an error can still have its own status.

    ``keep`` is called before the answer ends, with its beginning and who made it; ``forget`` is called with the
    call when its prompt will not be sent again.
    """

    streams = True
    understands = False
    given: Given | None = None  # gathers what the answer names
    remembering: Remembering | None = None  # hears what of the answer later requests may name
    _remember: Callable[[Maker], None]  # set with it: keeps that at the end, unless its maker stores it
    beginning = b""  # the first events, if they are kept
    content_type = "text/event-stream; charset=utf-8"

    def __init__(
        self,
        request: web.Request,
        call: Call,
        response_headers: Mapping[str, str],
        keep: Keep | None = None,
        forget: Forget = lambda _: None,
    ) -> None:
        self._request = request
        self._call = call
        self._response_headers = response_headers  # besides the winner's; complete when the answer begins
        self._keep = keep
        self._forget = forget
        self._latest = b""  # the events that were sent last
        self._maker = Maker("")
        self._transport = request.transport
        self._keeping_alive: asyncio.Task[None] | None = None
        self.response: web.StreamResponse | None = None

    def keep_alive(self, every_s: float) -> None:
        """Send a comment every ``every_s`` seconds until the answer begins. The first one commits status 200.

        An earlier ``keep_alive`` must have been closed.
        """
        self._keeping_alive = asyncio.get_running_loop().create_task(self._comment(every_s))

    async def begin(self, winner: Winner) -> Forward | None:
        """Prepare the response's headers. They are sent with the first events, unless a comment has sent them."""
        if self._keeping_alive is not None:
            self._keeping_alive.cancel()  # not awaited here, as the first events would wait; ``close`` awaits it
        if self._keep is not None:
            self._maker = Maker(winner.deployment, winner.key_name)
        if self.response is None:
            await self._prepare(headers.for_client(winner))
        if winner.is_last and self.delivered is None:
            self._forget(winner.call)
        return self._forward if self._request.version >= HttpVersion11 and self.given is None else None

    async def write(self, block: Block) -> None:
        """Forward ``block`` unchanged."""
        if self._keep is not None:
            self._gather(block.forward)
            if self._call.runs_on and not self.beginning:  # its client may leave, and look at it later
                await self._keep(block.forward, self._maker)
            self.beginning = self.beginning or block.forward
        await self._send(block.forward)
        if self.remembering is not None:
            self._hear(block.forward)
        self._latest = block.forward or self._latest
        if self.delivered is not None:
            self.delivered.add(block.forward)

    async def end(self, last: Block) -> None:
        """Send the last events and the end of the response in one write."""
        if self._keep is not None:
            self._gather(last.forward)
            await self._keep(self.beginning or last.forward, self._maker)
        if self.remembering is not None:
            self._hear(last.forward)
            self._remember(self._maker)
        await self._finish(last.forward)

    async def fail(self, error: UpstreamError) -> None:
        """End the response with an error event, so that SDKs raise instead of accepting half an answer."""
        await self._finish(self._failure(error.kind, error.message))

    async def refused(self, error: ApiError) -> bool:
        """Send an error of the gateway as an event if the response has begun; return whether it has."""
        await self.close()
        if self.response is None:
            return False
        with suppress(ClientGone):
            await self._finish(self._failure(error.kind, error.message))
        return True

    def _failure(self, kind: str, message: str) -> bytes:
        answers = self._call.dialect.answers
        failure = answers.failure(kind, message)
        return failure if answers.numbered is None else answers.numbered(failure, self._latest)

    async def close(self) -> None:
        """Stop sending comments."""
        task, self._keeping_alive = self._keeping_alive, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    def drop(self) -> None:
        """Abort the connection of a response that has begun and cannot be completed."""
        if self.response is not None and self._transport is not None:
            self._transport.abort()

    def _gather(self, block: bytes) -> None:
        if self.given is not None:
            for event in events(block):
                self.given.add(event.data)

    def remember(self, remembering: Remembering, keep: Callable[[Maker], None]) -> None:
        """Let ``remembering`` hear the answer; ``keep`` keeps it at its end."""
        self.remembering, self._remember = remembering, keep

    def _hear(self, block: bytes) -> None:
        if self.remembering is not None:
            self.remembering.heard.take(block)

    async def _comment(self, every_s: float) -> None:
        comment = self._call.dialect.answers.keep_alive
        while True:
            await asyncio.sleep(every_s)
            try:
                if self.response is None:
                    await self._prepare({"x-holeshot-call-id": self._call.id})
                await self._send(comment)
            except ClientGone:
                return  # the task that serves the request is cancelled for the same reason

    async def _prepare(self, fields: dict[str, str]) -> None:
        fields.update(self._response_headers)
        fields[_CONTENT_TYPE] = self.content_type
        fields[_CACHE_CONTROL] = "no-cache"
        fields[_BUFFERING] = "no"  # otherwise nginx buffers the stream
        request = self._request
        is_plain = _is_plain(request, request.app[CONTEXT])
        response = self.response = PlainResponse(fields, None) if is_plain else EventsResponse(headers=fields)
        try:
            await response.prepare(request)
        except ConnectionError as error:
            raise ClientGone from error
        if not is_plain:
            response.headers.clear()  # already rendered: saves two kilobytes while the answer streams

    def _forward(self, events: bytes) -> bool:
        """Send events at once as an HTTP/1.1 chunk; return False if the client is slow and the caller has to wait.

        The headers are already sent, so the chunk can go directly to the transport.
        """
        transport = self._transport
        if transport is None or transport.is_closing() or transport.get_write_buffer_size():
            return False
        transport.write(b"%x\r\n%b\r\n" % (len(events), events))
        if self.remembering is not None:
            self._hear(events)
        self._latest = events
        if self.delivered is not None:
            self.delivered.add(events)
        return True

    async def _send(self, block: bytes) -> None:
        assert self.response is not None
        try:
            await self.response.write(block)
            if self._request.protocol.writing_paused:  # aiohttp would wait only before the next write
                await self._request.writer.drain()
        except ConnectionError as error:
            raise ClientGone from error

    async def _finish(self, last: bytes) -> None:
        assert self.response is not None
        try:
            await self.response.write_eof(last)
        except ConnectionError as error:
            raise ClientGone from error


class ArraySink(StreamingSink):
    """Writes the data of events as the elements of one JSON array, for clients that do not read events."""

    content_type = "application/json; charset=utf-8"
    _is_open = False  # whether the array has begun

    async def begin(self, winner: Winner) -> None:
        """Prepare the response's headers. Events are never forwarded as they are."""
        await super().begin(winner)

    async def _send(self, block: bytes) -> None:
        # A comment becomes a line break, which may stand between elements.
        await super()._send(self._elements(block) or b"\n")

    async def _finish(self, last: bytes) -> None:
        elements = self._elements(last)
        await super()._finish(elements + (b"]" if self._is_open else b"[]"))

    def _elements(self, block: bytes) -> bytes:
        said = bytearray()
        for event in events(block):
            if event.data:
                said += (b"\n,\r\n" if self._is_open else b"[") + event.data
                self._is_open = True
        return bytes(said)


LAST_WORD_S = 1.0  # for a client that does not read, or that still sends, when the gateway ends
COMMENT_S = 10.0  # between two comments while no answer is known to be valid


def answering(endpoint: Endpoint, admit: Admit | None = None) -> Handler:
    """Return the request handler of an API. ``admit``: as for ``admitted_call``."""
    return admitted_call(answer_of(endpoint, Responder), admit=admit)


def answer_of(endpoint: Endpoint, make: "MakeAnswer") -> ClientHandler:
    """Return what answers an admitted request of an API; ``make`` makes the answer to a parsed one."""

    async def answer(
        request: web.Request, client: Client, received: ReceivedBody, waited_s: float
    ) -> web.StreamResponse:
        context = request.app[CONTEXT]
        client_context = client_context_of(request, context, client, received, waited_s)
        contents = await read_contents(
            received.take(),
            context.body_work,
            endpoint.dialect.requests.prompt,
            endpoint.media,
            most_values=context.settings.limits.max_values,
        )
        if endpoint.addressed is not None:
            contents = endpoint.addressed(request, contents)
        remembers, follows = endpoint.recalls and context.memory.is_on, None
        if remembers:
            owner = client.name or address_of(request, context)
            grow = partial(received.grow, context.bodies, owner)
            found = await recalled(context, client, contents, grow, endpoint.media)
            contents, follows = found.contents, found.follows
        is_long = contents.size > SEATED_BYTES
        began_s = context.services.clock() if is_long else 0.0
        parsed = endpoint.read(contents, request.headers.get(HEADER), context.settings)
        if is_long:
            context.body_work.turns.note("request", began_s)
        if (deadlines := read_deadlines(request.headers)) is not NOTHING:
            parsed = msgspec.structs.replace(parsed, race=tightened(parsed.race, deadlines))
            if parsed.preferences is not NO_PREFERENCES:  # they override the race settings
                parsed = msgspec.structs.replace(parsed, preferences=tightened(parsed.preferences, deadlines))
        if remembers:
            parsed = _remembered(context, request, client, parsed, received, follows)
        made_by: StoredAt | None = None
        if parsed.continues is not None:
            made_by = await _stored_by(context, parsed.continues, client_context.client)
            parsed = parsed if made_by else msgspec.structs.replace(parsed, converses="previous_response_id")
        if parsed.may_name_stored:
            made_by = await _place_of(context, client, parsed, made_by)
        with context.fleet:
            return await make(context, request, parsed, client_context, made_by).give()

    return answer


async def _place_of(
    context: Context, client: Client, parsed: ParsedRequest, made_by: StoredAt | None
) -> StoredAt | None:
    """Return which deployment's provider has what a request names; ``made_by`` has the response that it continues.

    Raises:
        ApiError: as of ``check_names``.

    """
    dialect = parsed.dialect
    named = await check_names(context, client, dialect.name, parsed.fields, before=made_by)
    found = made_by or named
    if found is None and parsed.stores:
        found = await kept_at(context, client, parsed.fields.get(dialect.requests.prompt))
    return found


def _remembered(  # noqa: PLR0917 - what is known of a request
    context: Context,
    request: web.Request,
    client: Client,
    parsed: ParsedRequest,
    received: ReceivedBody,
    follows: str | None,
) -> ParsedRequest:
    """Return a request whose answer is kept, if it is complete in itself and there is memory for its input."""
    fields, bodies = parsed.fields, context.bodies
    is_kept = (parsed.unstored or parsed.stores) and not parsed.runs_on
    if not is_kept or parsed.continues is not None or parsed.converses is not None:
        return parsed
    remembering = Remembering(context.memory, scope_of(client), fields.get(parsed.dialect.requests.prompt), follows)
    if (size := remembering.counted_bytes) > 0:
        if bodies.size + size > bodies.most_bytes // 2:  # the rest is for the bodies of calls
            return parsed
        try:
            received.grow(bodies, client.name or address_of(request, context), parsed.size + size)
        except ApiError:
            return parsed
    return msgspec.structs.replace(parsed, remembering=remembering)


MakeAnswer = Callable[[Context, web.Request, ParsedRequest, ClientContext, StoredAt | None], "Responder"]


async def _stored_by(context: Context, response_id: str, client: Client) -> StoredAt | None:
    """Return the deployment that stores the response that a request continues; None if any response may be named.

    Raises:
        ResponseNotFound: the response was not made here, is too old, or belongs to another client.

    """
    allowed = context.settings.provider_state
    made_by = None if allowed == "none" else await context.responses.maker(client.name, response_id)
    if made_by is None and allowed == "any":
        return None
    if not client.made(made_by, context.fleet):
        made_by = None
    if made_by is None:
        why = f"was not stored for this key in the last {context.settings.response_ids_ttl_s / 86_400:g} days"
        if allowed == "none":
            why = "cannot be continued here (provider_state: none)"
        raise ResponseNotFound(
            f"the response {response_id!r} {why}, and {not_recent(context.settings)}: send"
            " the conversation so far as 'input', or the first request again with 'store': true",
            param="previous_response_id",
        )
    return StoredAt(made_by.deployment, "previous_response_id", is_exact=True, key_name=made_by.key_name)


class Responder:
    """Answers one call, streamed or as one JSON body."""

    streaming: Callable[..., StreamingSink] = StreamingSink

    def __init__(
        self,
        context: Context,
        request: web.Request,
        parsed: ParsedRequest,
        client_context: ClientContext,
        made_by: StoredAt | None,
        *,
        begun: Begun | None = None,
    ) -> None:
        """``begun``: what limits have counted of it; None: what is noted at the request."""
        self._context = context
        self._request = request
        self._parsed = parsed
        self._client_context = client_context
        client = client_context.client
        is_owned = client.name is not None or client.tenant is not None
        self._given = Given(parsed.dialect.name, is_owned=is_owned) if gives(parsed, request.headers) else None
        self._runner = CallRunner(
            context,
            parsed.model,
            parsed.preferences,
            partial(plan_call, context, parsed, client_context, made_by=made_by),
            may_fall_back=made_by is None and not parsed.runs_on,
            begun=begun or request.get(BEGUN),
            cancelled_as=partial(context.cancelled_as, request),
            body=client_context.received,
        )

    async def give(self) -> web.StreamResponse:
        """Run the call and return its HTTP response."""
        runner = self._runner
        await runner.begin()
        if not self._parsed.stream:
            return await self._whole()
        call = runner.call
        sink = self._sink(call)
        own_s, is_late = runner.planned.model.keepalive_s, call.win_on is WinOn.VALID
        every_s = COMMENT_S if own_s is None and is_late else own_s  # the first token may be the last
        if every_s is not None:
            sink.keep_alive(every_s)
        try:
            await runner.run(partial(runner.stream, sink))
        except ApiError as error:
            if not await sink.refused(error):
                raise
        except asyncio.CancelledError:
            if self._context.phase is Phase.CUTTING:  # else its client is gone, or was cut
                with suppress(TimeoutError):
                    async with asyncio.timeout(LAST_WORD_S):
                        await sink.refused(ShuttingDown("the gateway stopped before this answer was complete; retry"))
            raise
        except Exception:
            sink.drop()
            raise
        finally:
            await sink.close()
            if self._parsed.runs_on:  # its client may have left before the end
                await begin_in_background(self._context, runner.call, runner.open_call.record, sink.beginning)
        if sink.response is None:
            raise ClientDisconnected("the client disconnected")
        return sink.response

    def _sink(self, call: Call) -> StreamingSink:
        keep, runner = self._keep if self._given is not None else None, self._runner
        make = ArraySink if self._parsed.is_array else self.streaming
        sink = make(self._request, call, runner.response_headers, keep, self._forget)
        sink.given = self._given
        if self._parsed.remembering is not None:
            sink.remember(self._parsed.remembering, self._remember)
        return sink

    async def _whole(self) -> web.StreamResponse:
        call = self._runner.call
        requests = call.dialect.requests
        is_one = not requests.batched and requests.choices not in call.fields  # the usual one, without a call
        sink = GatheringSink(call.dialect, single=is_one or answers_asked(call.fields, call.dialect) == 1)
        record = await self._runner.run(partial(self._runner.gather, sink))
        assert isinstance(record, CallRecord)  # a response would come from ``answer_here``, which is not used
        if sink.winner is None:
            raise ClientDisconnected("the client disconnected")
        fields = headers.for_client(sink.winner)
        fields.update(self._runner.response_headers)
        usd = record.cost_usd if self._client_context.client.tenant is None else whole_cost_usd(record)
        if usd is not None:
            fields["x-holeshot-cost-usd"] = f"{usd:.8f}"
        body = await _large(sink) if sink.is_long else sink.body()
        if self._given is not None:
            self._given.add(body)
            await self._keep(body, Maker(sink.winner.deployment, sink.winner.key_name))
        if self._parsed.remembering is not None:
            await self._parsed.remembering.read(body)
            self._remember(Maker(sink.winner.deployment))
        if call.runs_on:
            await begin_in_background(self._context, call, record, body)
        if not _is_plain(self._request, self._context):
            return web.Response(body=body, content_type=JSON, headers=fields)
        fields[_CONTENT_TYPE] = JSON
        return PlainResponse(fields, body)

    def _forget(self, call: Call) -> None:
        """Release the prompt: the request's, and each translated copy."""
        kept = forget_prompt(self._parsed.fields, self._parsed.dialect)
        for each in (call,) if call is self._runner.first_call else (call, self._runner.first_call):
            if each.fields is not self._parsed.fields:
                kept += forget_prompt(each.fields, each.dialect)
            for fields in each.wordings.values():
                kept += forget_prompt(fields)
        if self._parsed.remembering is not None:
            kept += self._parsed.remembering.size
        if self._client_context.received is not None:
            self._client_context.received.shrink(kept)

    def _remember(self, maker: Maker) -> None:
        """Keep the answer for later requests that name it, if ``maker`` does not store it."""
        parsed, remembering = self._parsed, self._parsed.remembering
        if remembering is None:
            return
        if parsed.stores:
            made_at = self._runner.planned.model.deployments[maker.deployment]
            if made_at.spoken_in(self._runner.call) is parsed.dialect:
                return
        remembering.keep_soon()

    async def _keep(self, answer: bytes, maker: Maker) -> None:
        """Record who made the response in ``answer``, and what it names.

        Translated ones are not stored, but a client may compare its next request with a message of any kind.
        """
        deployment, key_name = maker.deployment, maker.key_name
        responses, client = self._context.responses, self._client_context.client.name
        names = {} if self._given is None else self._given.names
        made_at = self._runner.planned.model.deployments[deployment]
        if made_at.spoken_in(self._runner.call) is not self._parsed.dialect:
            names = {name: kind for name, kind in names.items() if kind is StoredKind.MESSAGE}
        elif self._parsed.stores:
            await responses.keep(client, answer, deployment, key_name, made_at.tenant)
        else:  # its id names nothing at the provider, and what the gateway keeps of it in Redis is sealed with it
            names = {name: kind for name, kind in names.items() if kind is not StoredKind.RESPONSE}
        await responses.keep_all(client, names, deployment, key_name, made_at.tenant)
