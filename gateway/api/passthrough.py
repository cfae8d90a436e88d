"""Handlers of the APIs whose answers pass unread: deployments are tried in turn, best first, until one answers."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.api import headers
from gateway.api.admission import admitted_call, client_context_of
from gateway.api.auth import JSON
from gateway.api.bodies import LARGE_BYTES, ReceivedBody, read_contents
from gateway.api.call_context import ClientContext
from gateway.api.call_runner import CallRunner
from gateway.api.client import Client
from gateway.api.context import BEGUN, CONTEXT, Context
from gateway.api.endpoint import Endpoint
from gateway.api.json_body import Contents, Media, is_set
from gateway.api.overrides import HEADER, read_deadlines, tightened
from gateway.api.overrides import NOTHING as NO_OVERRIDE
from gateway.api.passthrough_requests import default_model, multipart_steps, read_json
from gateway.api.plan_call import plan_call
from gateway.api.provider_state import Given, StoredAt, check_names
from gateway.api.recall import recalled
from gateway.api.relayed_apis import RelayedApi, counting_api
from gateway.api.request import ParsedRequest, needs_of, required_turns
from gateway.core.calls import Maker, whole_cost_usd
from gateway.core.errors import ApiError, ClientDisconnected, NoDeploymentFits
from gateway.racing import Block, ClientGone, RelayedExchange, Winner
from providers import ErrorKind, UpstreamError, encoded, finished
from providers.dialects import TokenCounting, raw_json

# Passes a relayed answer on to the client: as it arrives, or whole, behind headers that say what it has cost.

_IDENTITY = ("", "identity")


class PassingSink:
    """Receives an answer that passes unread. One that goes on is written to the client's response as it arrives."""

    understands = False

    def __init__(self, request: web.Request, response_headers: Mapping[str, str]) -> None:
        self.streams = False  # whether the answer goes on after its beginning
        self.winner: Winner | None = None
        self.body = b""  # of a whole answer
        self.response: web.StreamResponse | None = None
        self._request = request
        self._response_headers = response_headers
        self._transport = request.transport

    async def begin(self, winner: Winner) -> None:
        """Start the answer: until here, an error can have its own status, and another deployment may answer."""
        self.winner = winner
        exchange = winner.exchange
        assert isinstance(exchange, RelayedExchange)
        if exchange.is_whole:
            return
        self.streams = True
        fields = headers.of_relayed(winner, self._response_headers)
        is_stream = fields["content-type"].lower().startswith("text/event-stream")
        if is_stream:
            fields["cache-control"] = "no-cache"
            fields["x-accel-buffering"] = "no"  # else nginx would buffer the stream
        response = self.response = web.StreamResponse(status=exchange.status, headers=fields)
        length = exchange.headers.get("content-length", "")
        is_known = length.isascii() and length.isdigit() and exchange.headers.get("content-encoding", "") in _IDENTITY
        if is_known and not is_stream:  # events may be masked or completed, so the length may change
            response.content_length = int(length)
        try:
            await response.prepare(self._request)
        except ConnectionError as error:
            raise ClientGone from error

    async def write(self, block: Block) -> None:
        """Send some bytes, and wait while the client is slow; or keep a whole answer."""
        response = self.response
        if response is None:
            self.body = block.forward
            return
        try:
            await response.write(block.forward)
            if self._request.protocol.writing_paused:  # aiohttp would wait only before the next write
                await self._request.writer.drain()
        except ConnectionError as error:
            raise ClientGone from error

    async def end(self, last: Block) -> None:
        """Send the last bytes and the end of the response in one write."""
        if self.response is not None:
            await self._finish(self.response, last.forward)

    def may_be_continued(self, error: UpstreamError) -> bool:
        """Return False: where in it another one would begin is not known."""
        del error
        return False

    async def fail(self, error: UpstreamError) -> None:
        """End the response if the answer itself has told the client of the error; else abort the connection."""
        exchange = None if self.winner is None else self.winner.exchange
        if self.response is not None and isinstance(exchange, RelayedExchange) and exchange.error is error:
            await self._finish(self.response, b"")
        else:
            self.drop()

    async def answer(self, response_headers: Mapping[str, str]) -> web.StreamResponse:
        """Return the response, which is sent already unless the answer is whole.

        Raises:
            ClientDisconnected: it never began.

        """
        if self.response is not None:
            return self.response
        if self.winner is None:
            raise ClientDisconnected("the client disconnected")
        fields, status = headers.of_relayed(self.winner, response_headers, self.body), self.winner.exchange.status
        if len(self.body) > LARGE_BYTES:
            return await _in_pieces(self._request, self.body, status, fields)
        return web.Response(body=self.body, status=status, headers=fields)

    def drop(self) -> None:
        """Abort the connection of a response that has begun, so that the client does not accept half an answer."""
        if self.response is not None and self._transport is not None:
            self._transport.abort()

    @staticmethod
    async def _finish(response: web.StreamResponse, last: bytes) -> None:
        try:
            await response.write_eof(last)
        except ConnectionError as error:
            raise ClientGone from error


def relaying(api: RelayedApi) -> Handler:
    """Return the request handler of ``api``."""

    async def relay(
        request: web.Request, client: Client, received: ReceivedBody, waited_s: float
    ) -> web.StreamResponse:
        context = request.app[CONTEXT]
        parsed, client_context = await receive(request, client, received, api, waited_s=waited_s)
        made_by = await check_names(context, client, api.of, parsed.fields)
        with context.fleet:
            return await answered(context, request, api, parsed, client_context, made_by=made_by)

    return admitted_call(relay, api.takes)


async def receive(
    request: web.Request,
    client: Client,
    received: ReceivedBody,
    api: RelayedApi,
    *,
    waited_s: float,
    prompt: str = "",
    media: Media | None = None,
) -> tuple[ParsedRequest, ClientContext]:
    """Read the request of an admitted client; with ``media``, the field ``prompt`` of a large body is scanned.

    Raises:
        ApiError: the request is invalid.

    """
    context = request.app[CONTEXT]
    client_context, body = client_context_of(request, context, client, received, waited_s), received.take()
    race = request.headers.get(HEADER)

    def default() -> str:
        return default_model(api, context.fleet, client_context.client)

    if request.content_type == JSON:
        contents = await read_contents(
            body, context.body_work, prompt, media, most_values=context.settings.limits.max_values
        )
        if (model := request.match_info.get("model")) is not None:  # if the URL has it
            contents.fields["model"] = raw_json(model)
        if api.recalls and context.memory.is_on:
            grow = partial(received.grow, context.bodies, client.name)
            contents = (await recalled(context, client, contents, grow, media)).contents
        parsed = read_json(api, contents, race, default)
    else:
        steps = multipart_steps(api, request.headers["content-type"], body, race, default)
        parsed = finished(steps) if len(body) <= LARGE_BYTES else await context.body_work.run(steps)
    if api.is_short(parsed.size) and (deadlines := read_deadlines(request.headers)) is not NO_OVERRIDE:
        parsed = msgspec.structs.replace(parsed, race=tightened(parsed.race, deadlines))
    return parsed, client_context


async def answered(
    context: Context,
    request: web.Request,
    api: RelayedApi,
    parsed: ParsedRequest,
    client_context: ClientContext,
    *,
    made_by: StoredAt | None = None,
    answer_here: Callable[[ApiError], web.Response | None] = lambda _: None,
) -> web.StreamResponse:
    """Return the answer of the first model that gives one; ``answer_here`` may answer if none does.

    ``made_by`` has what the request names. The caller must hold a lease of the context's fleet.

    Raises:
        ApiError: no model answered.

    """
    try:
        runner = CallRunner(
            context,
            parsed.model,
            parsed.preferences,
            partial(plan_call, context, parsed, client_context, made_by=made_by, vectors=context.vectors),
            may_fall_back=made_by is None,
            begun=request.get(BEGUN),
            cancelled_as=partial(context.cancelled_as, request),
            answer_here=answer_here,
        )
        await runner.begin()
    except ApiError as error:
        if (own := answer_here(error)) is None:
            raise
        return own
    sink = PassingSink(request, runner.response_headers)
    try:
        record = await runner.run(partial(runner.gather, sink))
    except BaseException:
        sink.drop()
        raise
    if isinstance(record, web.Response):
        record.headers.update(headers.identifying(runner.call.request_id or runner.call.id))
        return record
    if api.gives and sink.winner is not None:
        made_at = runner.planned.model.deployments[sink.winner.deployment]
        key_name = next((each.key_name for each in record.attempts if each.id == record.winner_attempt_id), None)
        maker = Maker(made_at.name, key_name, made_at.tenant)
        await _keep_names(context, api.of, client_context.client.name, sink.body, maker)
    usd = record.cost_usd if client_context.client.tenant is None else whole_cost_usd(record)
    cost = {} if usd is None else {"x-holeshot-cost-usd": f"{usd:.8f}"}
    return await sink.answer({**runner.response_headers, **cost})


async def _keep_names(context: Context, api: str, client: str | None, answer: bytes, maker: Maker) -> None:
    """Store what the answer names: later requests of this client, with this key, may name it."""
    given = Given(api, is_owned=client is not None or maker.tenant is not None)
    given.add(answer)
    await context.responses.keep_all(client, given.names, maker.deployment, maker.key_name, maker.tenant)


PIECE_BYTES = 256 * 1024  # of a large answer: in one piece, it would be copied in one turn of the loop


async def _in_pieces(request: web.Request, body: bytes, status: int, fields: dict[str, str]) -> web.StreamResponse:
    response = web.StreamResponse(status=status, headers=fields)
    response.content_length = len(body)
    view = memoryview(body)
    try:
        await response.prepare(request)
        for at in range(0, len(body), PIECE_BYTES):
            await response.write(bytes(view[at : at + PIECE_BYTES]))
            await asyncio.sleep(0)  # a fast client never makes ``write`` wait
        await response.write_eof()
    except ConnectionError:
        raise ClientDisconnected("the client disconnected") from None
    return response


# Counts the tokens of a prompt, by a deployment that has the client's API; estimated if none has it.

ESTIMATED = "x-holeshot-estimated"


def counting(endpoint: Endpoint, counts: TokenCounting) -> Handler:
    """Return the request handler that counts tokens. An estimate is marked, and is not recorded as a call."""
    api, prompt, media = (
        counting_api(endpoint.dialect.name, counts.path),
        endpoint.dialect.requests.prompt,
        endpoint.media,
    )
    assert media is not None

    async def count(
        request: web.Request, client: Client, received: ReceivedBody, waited_s: float
    ) -> web.StreamResponse:
        context = request.app[CONTEXT]
        parsed, client_context = await receive(
            request, client, received, api, waited_s=waited_s, prompt=prompt, media=media
        )
        made_by = await check_names(context, client, api.api, parsed.fields)
        has_whole = counts.whole is not None and is_set(parsed.fields.get(counts.whole))
        turns = parsed.fields[counts.whole or prompt] if has_whole else required_turns(parsed.fields, prompt)

        def estimate(error: ApiError) -> web.Response | None:
            if not (isinstance(error, NoDeploymentFits) or error.code == ErrorKind.NO_SUCH_API):
                return None
            contents = Contents({}, parsed.size, scan_media=parsed.scan_media)
            needs = needs_of(turns, contents, media, max_tokens=None, tools=False, json_schema=False)
            fields = headers.identifying(client_context.request_id) if client_context.request_id is not None else {}
            return web.Response(
                body=encoded({**dict(counts.also), counts.field: max(1, needs.prompt_tokens)}),
                content_type="application/json",
                headers={**fields, ESTIMATED: "true"},
            )

        with context.fleet:
            return await answered(context, request, api, parsed, client_context, made_by=made_by, answer_here=estimate)

    return admitted_call(count)
