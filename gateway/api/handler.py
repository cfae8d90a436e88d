"""The handler of every API of calls: a request is read, planned, raced, and answered."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.access import Client
from gateway.api.admission import Admit, AdmittedRequest, ClientHandler, admitted_call, client_context_of
from gateway.api.afterwards import Afterwards
from gateway.api.bodies import LARGE_BYTES, address_of, read_contents
from gateway.api.call_context import ClientContext
from gateway.api.call_runner import AnsweredHere, CallRunner
from gateway.api.client_sinks import CONTENT_TYPE, SINKS, PassingSink, StreamingSink, is_plain
from gateway.api.compacting import passes_unread, read_compacting
from gateway.api.context import CONTEXT, Context, GatewayPhase
from gateway.api.endpoint import Endpoint
from gateway.api.fallbacks import cause_of
from gateway.api.overrides import HEADER, NOTHING, RaceOverride, read_deadlines, tightened
from gateway.api.plan_call import CallAsked, planned_call
from gateway.api.preferences import NOTHING as NO_PREFERENCES
from gateway.api.provider_state import StoredAt, check_names, given_by, not_known, not_recent
from gateway.api.recall import kept_at, recalled, scope_of
from gateway.api.relayed_api import RelayedApi
from gateway.api.relayed_requests import default_model, form_fields, multipart_steps, read_json
from gateway.api.request import ParsedRequest
from gateway.api.resolved_model import THREAD, lost_thread
from gateway.core.attempts import WinOn
from gateway.core.calls import Call, CallRecord, whole_cost_usd
from gateway.core.errors import ApiError, ClientDisconnected, ResponseNotFound, ShuttingDown
from gateway.core.race_failures import RejectedByProvider
from gateway.http import JSON, Contents, PlainResponse, headers
from gateway.memory import Remembering
from gateway.overload import SEATED_BYTES, process_full
from gateway.racing import GatheringSink, answers_asked
from providers import aside, events, finished
from providers.dialects import Recalling


async def _large(sink: GatheringSink) -> bytes:
    """Return the body of a long answer, made in the thread for long work.

    Raises:
        Overloaded: there is no memory for the body.

    """
    try:
        return await aside(sink.body)
    except MemoryError as error:
        raise process_full() from error


LAST_WORD_S = 1.0  # seconds to write to a client that does not read, or still sends, when the gateway ends
COMMENT_S = 10.0  # between two comments while no answer is known to be valid


def answering(endpoint: Endpoint, admit: Admit | None = None, make: "MakeAnswer | None" = None) -> Handler:
    """Return the request handler of an API. ``admit``: see ``admitted_call``; ``make``: see ``answer_of``."""
    takes = endpoint.takes if endpoint.relayed is None else endpoint.relayed.takes
    return admitted_call(answer_of(endpoint, make or Responder), takes, admit)


def answer_of(endpoint: Endpoint, make: "MakeAnswer") -> ClientHandler:
    """Return the handler of an API's admitted requests; ``make`` makes the answer to a parsed request."""

    async def answer(request: web.Request, admitted: AdmittedRequest) -> web.StreamResponse:
        context, client = request.app[CONTEXT], admitted.client
        client_context = client_context_of(request, context, admitted)
        if endpoint.relayed is not None and request.content_type != JSON:
            parsed = await _read_form(endpoint.relayed, request, context, admitted)
        else:
            parsed = await _read(endpoint, request, context, admitted)
        made_by: StoredAt | None = None
        if parsed.continues is not None:
            made_by = await _stored_by(context, parsed.continues, client, _recalling_of(parsed))
            parsed = parsed if made_by else msgspec.structs.replace(parsed, converses=_recalling_of(parsed).previous)
        if parsed.headers:
            client_context = client_context.with_headers(parsed.headers)
        if parsed.may_name_stored:
            made_by = await _place_of(context, client, parsed, made_by)
        with context.fleet:
            return await make(context, request, parsed, client_context, made_by).give()

    return answer


async def _read(endpoint: Endpoint, request: web.Request, context: Context, admitted: AdmittedRequest) -> ParsedRequest:
    """Read a body of JSON, and put in the recent answers named there."""
    received, client, settings = admitted.received, admitted.client, context.settings
    contents = await read_contents(
        received.take(),
        context.body_work,
        endpoint.dialect.requests.prompt,
        endpoint.media,
        most_values=settings.limits.max_values,
    )
    if endpoint.addressed is not None:
        contents = endpoint.addressed(request, contents)
    recall = endpoint.recalls if endpoint.recalls is not None and context.memory.is_on else None
    follows: str | None = None
    if recall is not None:
        grow = partial(received.grow, context.bodies, client.name or address_of(request, context))
        recalled_answer = await recalled(context, client, contents, grow, endpoint.media, recall)
        contents, follows = recalled_answer.contents, recalled_answer.follows
    is_long = contents.size > SEATED_BYTES
    began_s = context.services.clock() if is_long else 0.0
    if endpoint.relayed is None:
        parsed = endpoint.read(contents, request.headers.get(HEADER), settings)
    else:
        parsed = _read_unread(endpoint, endpoint.relayed, contents, request, context, client)
    if is_long:
        context.body_work.turns.note("request", began_s)
    if endpoint.relayed is None or not parsed.stateful:
        deadlines = read_deadlines(request.headers)
        parsed = parsed if deadlines is NOTHING else _in_time(parsed, deadlines)
    if recall is None:
        return parsed
    if follows is not None and (maker := await context.responses.hint(client.name, follows)) is not None:
        parsed = msgspec.structs.replace(parsed, follows=maker)
    return _remembered(context, request, parsed, admitted, follows) if endpoint.relayed is None else parsed


def _read_unread(  # noqa: PLR0917 - as of every request
    endpoint: Endpoint, api: RelayedApi, contents: Contents, request: web.Request, context: Context, client: Client
) -> ParsedRequest:
    """Read a body of JSON whose answer passes unread."""
    header = request.headers.get(HEADER)
    original = msgspec.structs.replace(contents, fields=dict(contents.fields)) if api.by_summary else contents
    parsed = read_json(api, contents, header, partial(default_model, api, context.fleet, client))
    if api.by_summary and not passes_unread(context.fleet, parsed, adhoc=client.adhoc):
        return read_compacting(original, header)
    return parsed if endpoint.unpacked is None else endpoint.unpacked(parsed)


async def _read_form(
    api: RelayedApi, request: web.Request, context: Context, admitted: AdmittedRequest
) -> ParsedRequest:
    """Read a body that is a form."""
    body, default = admitted.received.take(), partial(default_model, api, context.fleet, admitted.client)
    steps = multipart_steps(api, request.headers["content-type"], body, request.headers.get(HEADER), default)
    parsed = finished(steps) if len(body) <= LARGE_BYTES else await context.body_work.run(steps)
    deadlines = NOTHING if parsed.stateful else read_deadlines(request.headers)
    return parsed if deadlines is NOTHING else _in_time(parsed, deadlines)


def _in_time(parsed: ParsedRequest, deadlines: RaceOverride) -> ParsedRequest:
    """Return a request with the deadlines of its headers. A request that is sent to one provider unread has none."""
    parsed = msgspec.structs.replace(parsed, race=tightened(parsed.race, deadlines))
    if parsed.preferences is NO_PREFERENCES:
        return parsed
    # Preferences override the race settings.
    return msgspec.structs.replace(parsed, preferences=tightened(parsed.preferences, deadlines))


async def _place_of(
    context: Context, client: Client, parsed: ParsedRequest, made_by: StoredAt | None
) -> StoredAt | None:
    """Return the deployment whose provider stores what a request names; ``made_by`` stores the response continued.

    Raises:
        ApiError: see ``check_names``.

    """
    dialect = parsed.dialect
    api = dialect.name if parsed.relayed is None else parsed.relayed.of
    fields: Mapping[str, msgspec.Raw] = parsed.fields
    if parsed.form is not None:
        steps = form_fields(parsed.form)
        fields = finished(steps) if parsed.size <= LARGE_BYTES else await context.body_work.run(steps)
    named = await check_names(context, client, api, fields, before=made_by)
    place = made_by or named
    if place is None and parsed.stores:
        place = await kept_at(context, client, parsed.fields.get(dialect.requests.prompt), dialect.recalling)
    return place


def _remembered(
    context: Context, request: web.Request, parsed: ParsedRequest, admitted: AdmittedRequest, follows: str | None
) -> ParsedRequest:
    """Return a request whose answer will be kept, if the request is complete in itself and its input fits in memory."""
    fields, bodies, client = parsed.fields, context.bodies, admitted.client
    is_kept = (parsed.stores or "store" in parsed.added) and not parsed.runs_on
    if not is_kept or parsed.continues is not None or parsed.converses is not None:
        return parsed
    prompt, recalling = fields.get(parsed.dialect.requests.prompt), _recalling_of(parsed)
    remembering = Remembering(context.memory, scope_of(client, recalling), prompt, follows, recalling)
    if (size := remembering.counted_bytes) > 0:
        if bodies.size + size > bodies.most_bytes // 2:  # the rest is for the bodies of calls
            return parsed
        try:
            admitted.received.grow(bodies, client.name or address_of(request, context), parsed.size + size)
        except ApiError:
            return parsed
    return msgspec.structs.replace(parsed, remembering=remembering)


def _answered(
    answer_here: Callable[[ApiError], web.Response | None], error: ApiError
) -> tuple[web.Response, bytes] | None:
    """Return the answer instead of an error: the gateway's own, or a refusal in the format of this API's vendor.

    Second comes what ends a stream.
    """
    if isinstance(error, RejectedByProvider) and error.answer:
        [event] = events(error.answer)
        return web.Response(body=event.data, content_type=JSON), error.answer
    own = answer_here(error)
    return None if own is None else (own, b"")


def _identified(response: web.Response, call: Call) -> web.Response:
    """Return a response of the gateway's own with the headers that name its call."""
    response.headers.update(headers.identifying(call.caller.envelope.request_id or call.caller.id))
    return response


MakeAnswer = Callable[[Context, web.Request, ParsedRequest, ClientContext, StoredAt | None], "Responder"]


def _recalling_of(parsed: ParsedRequest) -> Recalling:
    """Return the rules by which the API of a request names earlier answers."""
    recalling = parsed.dialect.recalling
    assert recalling is not None
    return recalling


async def _stored_by(context: Context, response_id: str, client: Client, recalling: Recalling) -> StoredAt | None:
    """Return the deployment that stores the continued answer; None if a request may name any answer.

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
        if not response_id:  # as Google names an interaction with 'store': false
            advice = f"{recalling.previous!r} is empty: an answer with 'store': false is kept nowhere, so send the"
            raise ResponseNotFound(f"{advice} conversation so far as 'input'", param=recalling.previous)
        why = f"is not known here as one that a provider stores for this key ({not_known(context.settings)})"
        if allowed == "none":
            why = "cannot be continued here (provider_state: none)"
        raise ResponseNotFound(
            f"the {recalling.noun} {response_id!r} {why}, and {not_recent(context.settings)}: send"
            " the conversation so far as 'input', or the first request again with 'store': true",
            param=recalling.previous,
        )
    return StoredAt(made_by.deployment, recalling.previous, is_exact=True, key_name=made_by.key_name)


class Responder:
    """Answers one call: streamed, as one JSON body, or unread as the provider answers."""

    streaming: Callable[..., StreamingSink] = StreamingSink

    def __init__(
        self,
        context: Context,
        request: web.Request,
        parsed: ParsedRequest,
        client_context: ClientContext,
        made_by: StoredAt | None,
        *,
        answer_here: Callable[[ApiError], web.Response | None] = lambda _: None,
    ) -> None:
        """``made_by`` stores what the request names; ``answer_here`` may answer if no model does."""
        self._context = context
        self._request = request
        self._parsed = parsed
        self._client_context = client_context
        self._answer_here = answer_here
        self._runner = runner = CallRunner(
            context,
            parsed.model,
            parsed.preferences,
            partial(planned_call, CallAsked(context, parsed, client_context, made_by, vectors=context.vectors)),
            may_fall_back=made_by is None,
            begun=client_context.begun,
            cancelled_as=partial(context.cancelled_as, request),
            answer_here=partial(_answered, answer_here),
            body=client_context.received,
        )
        given = given_by(parsed, request.headers, client_context.client)
        self._after = Afterwards(context, parsed, client_context, runner, given)

    async def give(self) -> web.StreamResponse:
        """Run the call and return its HTTP response."""
        runner, parsed = self._runner, self._parsed
        if parsed.relayed is not None:
            return await self._passed()
        await runner.begin()
        if not parsed.stream:
            return await self._whole()
        sink = self._sink(runner.open_call.call)
        try:
            await runner.run(partial(runner.stream, sink))
        except AnsweredHere as here:
            await sink.refused_by(here.events)
        except ApiError as error:
            answer = self._told(error)
            if not await sink.refused(answer):
                raise answer from None
        except asyncio.CancelledError:
            await self._say_last(sink)
            raise
        except Exception:
            sink.drop()
            raise
        finally:
            await sink.stop()
            if parsed.runs_on:  # the client may have left before the end
                await self._after.begun(sink.beginning, runner.open_call.record)
        if sink.response is None:
            raise ClientDisconnected("the client disconnected")
        return sink.response

    async def _say_last(self, sink: StreamingSink) -> None:
        if self._context.phase is GatewayPhase.CUTTING:  # else the client is gone, or was disconnected
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORD_S):
                    await sink.refused(ShuttingDown("the gateway stopped before this answer was complete; retry"))

    def _told(self, error: ApiError) -> ApiError:
        """Return the error to answer with: ``lost_thread`` for a thread's next turn that others could answer."""
        model, parsed = self._runner.models.planned.model, self._parsed
        has_others = len(model.deployments) > 1 or bool(model.fallbacks or parsed.preferences.models[1:])
        if parsed.converses != THREAD or not has_others or cause_of(error) is None:
            return error
        return lost_thread(error.message)

    def _sink(self, call: Call) -> StreamingSink:
        after, runner = self._after, self._runner
        make = SINKS.get(self._parsed.written, self.streaming)
        keep = after.keep if after.given is not None else None
        sink = make(self._request, call, runner.response_headers, keep, after.forget)
        sink.given = after.given
        if self._parsed.remembering is not None:
            sink.remember(self._parsed.remembering, after.remember)
        silence_s, is_late = runner.models.planned.model.keepalive_s, call.decision.win_on is WinOn.VALID
        sink.keepalive_s = silence_s
        every_s = COMMENT_S if silence_s is None and is_late else silence_s  # the first token may be the last
        if every_s is not None:
            sink.keep_alive(every_s)
        return sink

    async def _passed(self) -> web.StreamResponse:
        """Pass the answer on unread."""
        runner = self._runner
        try:
            await runner.begin()
        except ApiError as error:
            if (answer := self._answer_here(error)) is None:
                raise
            return answer
        sink = PassingSink(self._request, runner.response_headers, runner.models.planned.model.keepalive_s)
        try:
            record = await runner.run(partial(runner.gather, sink))
        except AnsweredHere as here:
            return _identified(here.response, runner.call)
        except BaseException:
            sink.drop()
            raise
        finally:
            if sink.response is not None:
                await sink.stop()
        if sink.winner is not None and self._after.keeps:
            await self._after.heard(sink.body, sink.winner, record)
        return await sink.answer({**runner.response_headers, **self._cost(record)}, self._parsed.told_as)

    def _cost(self, record: CallRecord) -> dict[str, str]:
        """Return the header with the call's cost, as far as the cost is known."""
        usd = record.cost_usd if self._client_context.client.tenant is None else whole_cost_usd(record)
        return {} if usd is None else {"x-holeshot-cost-usd": f"{usd:.8f}"}

    async def _whole(self) -> web.StreamResponse:
        call = self._runner.call
        dialect, client_fields = call.request.dialect, call.request.fields
        # The usual case, found without a call of a function.
        is_one = not dialect.requests.batched and dialect.requests.choices not in client_fields
        sink = GatheringSink(dialect, single=is_one or answers_asked(client_fields, dialect) == 1)
        try:
            record = await self._runner.run(partial(self._runner.gather, sink))
        except AnsweredHere as here:
            return _identified(here.response, call)
        except ApiError as error:
            raise self._told(error) from None
        if sink.winner is None:
            raise ClientDisconnected("the client disconnected")
        fields = headers.for_client(sink.winner)
        fields.update(self._runner.response_headers)
        fields.update(self._cost(record))
        body = await _large(sink) if sink.is_long else sink.body()
        if self._parsed.told_as is not None:
            body = self._parsed.told_as(body)
        if self._after.keeps:
            await self._after.heard(body, sink.winner, record)
        if not is_plain(self._request, self._context):
            return web.Response(body=body, content_type=JSON, headers=fields)
        fields[CONTENT_TYPE] = JSON
        return PlainResponse(fields, body)
