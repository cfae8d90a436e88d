"""Handlers of the APIs whose answers pass unread: deployments are tried in turn, best first, until one answers."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.api import fitting, headers
from gateway.api.admission import admitted_call, client_context_of
from gateway.api.auth import JSON
from gateway.api.bodies import LARGE_BYTES, ReceivedBody, read_contents
from gateway.api.call_context import ClientContext
from gateway.api.call_runner import CallRunner
from gateway.api.client import Client
from gateway.api.context import BEGUN, CONTEXT, Context
from gateway.api.endpoint import Endpoint
from gateway.api.json_body import CHARS_PER_TOKEN, Contents, Media, is_set, size_class
from gateway.api.overrides import HEADER, read_deadlines, tightened, with_override
from gateway.api.overrides import NOTHING as NO_OVERRIDE
from gateway.api.passthrough_requests import (
    RelayedApi,
    RelayedRequest,
    counting_api,
    default_model,
    multipart_steps,
    read_json,
)
from gateway.api.plan_call import PlannedCall, is_counted, limits_dollars
from gateway.api.preferences import CONSUMED, NOTHING, Chosen, is_passed_on, preferred
from gateway.api.provider_state import Given, StoredAt, check_names
from gateway.api.recall import recalled
from gateway.api.request import needs_of, required_turns
from gateway.core.attempts import Role, WinOn
from gateway.core.calls import Call, Maker, Mode, Objective, whole_cost_usd
from gateway.core.errors import ApiError, ClientDisconnected, NoDeploymentFits
from gateway.core.prompt_classes import PromptClass
from gateway.fleet.fleet import Fleet
from gateway.fleet.models import Deployment, Model
from gateway.racing import EXTRA_ROLES, Block, ClientGone, Relayed, RelayedExchange, Winner
from gateway.settings import DataPolicy, RaceSettings, Unpriced
from gateway.steering import Plan, Terms
from providers import ErrorKind, UpstreamError, encoded, finished
from providers.dialects import DIALECTS, PIVOT, TokenCounting, raw_json

# From a request to a race: builds the call, selects its deployments, and plans their order.


def plan_relay(
    context: Context,
    api: RelayedApi,
    parsed: RelayedRequest,
    client_context: ClientContext,
    *,
    name: str,
    fleet: Fleet,
    instead_of: Call | None = None,
    made_by: StoredAt | None = None,
) -> PlannedCall:
    """Build and plan the call that ``parsed`` requests from the model ``name``. The plan is counted in the standings.

    ``fleet`` is the one the call has leased; ``instead_of`` is the same call as built for the model that could not
    answer; ``made_by`` has what the request names.

    Raises:
        ModelNotFound, Forbidden, InvalidRequest: the client may not send this request to this model.
        NoDeploymentFits: no deployment of the model has the API and may be used.

    """
    client, is_short = client_context.client, api.is_short(parsed.size)
    client.check_model(name)
    found = fleet.find(name, adhoc=client.adhoc)
    model = with_override(found, parsed.race, client, stateful=not is_short)
    model = model if client.tenant is None else fleet.with_keys(model, client.tenant)
    is_race_set = model.race.mode is not Mode.AUTO
    if is_short:
        model = hedged(model)
    deployments, response_headers, fields = client.deployments(model), dict[str, str](), parsed.fields
    chosen: Chosen | None = None
    if parsed.preferences is not NOTHING and not is_passed_on(model):
        chosen = preferred(parsed.preferences, model, deployments, client)
        deployments = list(chosen.deployments)
        if chosen.unsupported:
            response_headers[fitting.IGNORED] = ", ".join(chosen.unsupported)
        fields = {key: value for key, value in fields.items() if key not in CONSUMED}
    if made_by is not None:
        deployments = fitting.having(deployments, made_by)
    excluded = dict(chosen.excluded) if chosen is not None else {}
    index = _first_of(fleet.models.get(parsed.model, found), api) if api.is_indexed else None
    known = fitting.COUNT_KNOWN
    unpriced = client.unpriced if limits_dollars(client_context.levels, model) else known
    able = []
    for deployment in deployments:
        reason = _obstacle(deployment, api, client.require, index, known if deployment.tenant else unpriced)
        reason = reason or _too_much(deployment, parsed) or context.vectors.difference(fleet, index, deployment)
        if reason is None:
            able.append(deployment.name)
        else:
            excluded[deployment.name] = reason
    if not able:
        raise NoDeploymentFits(model.name, excluded)
    call = _call_of(context, api, parsed, client_context, model, fields=fields, instead_of=instead_of, made_by=made_by)
    plan = context.steering.plan(
        model.name,
        able,
        model.race,
        _terms_of(
            context, call, model, excluded, is_short=is_short, race_asked=_race_asked(parsed, found, client, api)
        ),
        call.prompt_class,
        explain=client_context.explain,
        payer=model.payer,
        client=client_context.client.name,
    )
    plan = _as_asked(plan, model, api, parsed, chosen)
    if index is not None and is_race_set and index.name in model.deployments and model.tenant is None:
        context.vectors.compare(context, fleet, model, index, plan)
    return PlannedCall(call, model, plan, response_headers, None, tuple(able), _reading(api, parsed, model, plan))


def _race_asked(parsed: RelayedRequest, found: Model, client: Client, api: RelayedApi) -> RaceSettings | None:
    """Return the race that a request asks for in vain, of which its client is told."""
    if api.is_short(parsed.size) or parsed.race == NO_OVERRIDE:
        return None
    return with_override(found, parsed.race, client, stateful=False).race


def _call_of(
    context: Context,
    api: RelayedApi,
    parsed: RelayedRequest,
    client_context: ClientContext,
    model: Model,
    *,
    fields: Mapping[str, msgspec.Raw],
    instead_of: Call | None,
    made_by: StoredAt | None,
) -> Call:
    deadline_ms = model.race.ttft_ms if api.is_short(parsed.size) else None
    if instead_of is not None and instead_of.deadline_ms is not None:
        deadline_ms = instead_of.deadline_ms
    stamp = client_context.stamp(context, fields, instead_of)
    return Call(
        *msgspec.structs.astuple(stamp),
        client=client_context.client.name,
        model=model.name,
        asked_model=None if model.name == parsed.model else parsed.model,
        endpoint=api.endpoint,
        streamed=parsed.stream,
        mode=model.race.mode,
        objective=Objective.FIRST_TOKEN,
        win_on=WinOn.ANY,
        prompt_class=PromptClass(api.endpoint, size_class(parsed.size)),
        prompt_tokens=parsed.size // CHARS_PER_TOKEN if api.estimates else 0,
        inline_bytes=parsed.inline_bytes(fields) if api.estimates else None,
        size_tokens=parsed.size // CHARS_PER_TOKEN,
        wants_usage=False,
        fields=fields,
        headers=client_context.headers,
        replica=context.replica,
        region=context.settings.region,
        request_id=client_context.request_id,
        stateful=not api.is_short(parsed.size),
        deadline_ms=deadline_ms,
        profile=model.race.profile if instead_of is None else instead_of.profile,
        key_name=None if made_by is None else made_by.key_name,
    )


def _terms_of(
    context: Context,
    call: Call,
    model: Model,
    excluded: Mapping[str, str],
    *,
    is_short: bool,
    race_asked: RaceSettings | None,
) -> Terms:
    seats, is_paid = context.services.seats, is_counted(call, model)
    has_dollars = (model.race.usd_per_day, model.race.extra_usd_per_call) != (None, None)
    return Terms(
        call.objective,
        call.prompt_tokens,
        None,
        model.prices,
        seats.now(model.limits) if seats.leased else model.limits,
        model.weights or None,
        model.canaries or None,
        excluded or None,
        # Such answers have no tokens, or are not paid by the token.
        answer_tokens=0.0 if is_paid or has_dollars else None,
        leased=seats.leased,
        is_counted=is_paid,
        stateful=not is_short,
        watches=False,
        size_tokens=call.size_tokens,
        hedged_part=HEDGED_PART if is_short else 1.0,
        asked=race_asked,
        learnt_as=None if model.tenant is None else model.learnt_as,
    )


def _as_asked(plan: Plan, model: Model, api: RelayedApi, parsed: RelayedRequest, chosen: Chosen | None) -> Plan:
    """Return the plan with its costs, where characters are paid for, and in the order that the client asked for."""
    if api.is_short(parsed.size):
        plan = _of_one_model(plan, model)
    if api.by_character is not None or (api.by_query and plan.cost_usd):
        names = (*(launch.deployment for launch in plan.launches), *plan.rest)
        found = {name: _usd_of(api, parsed, model.deployments[name]) for name in names}
        plan = msgspec.structs.replace(plan, cost_usd={name: usd for name, usd in found.items() if usd is not None})
    if chosen is not None and chosen.order:
        plan = fitting.in_order(plan, chosen.order)
    if not api.is_short(parsed.size):  # one after the other
        first = [msgspec.structs.replace(each, audited=False) for each in plan.launches[:1]]
        rest = (*(each.deployment for each in plan.launches[1:]), *plan.rest)
        plan = msgspec.structs.replace(
            plan, launches=tuple(first), rest=rest, rescue_s=None, width_asked=0, narrowed=None
        )
    if chosen is not None and not chosen.failover:
        plan = msgspec.structs.replace(plan, launches=plan.launches[:1], rest=())
    return plan


# Extra attempts a call where the mode is ``auto``. Those later than the 95th percentile or so get one; with a budget of
# just as many, chance would empty it now and then, and a call that hangs then would wait for its rescue.
SHORT_BUDGET = 0.06
HEDGED_PART = 0.75  # of a budget for short calls; large ones are late more often than that, as sizes are fitted


def hedged(model: Model) -> Model:
    """Return ``model`` with a hedge of late calls, where its mode is left to us."""
    if model.race.mode is not Mode.AUTO:
        return model
    race = model.race.model_copy(update={"mode": Mode.HEDGE, "budget": min(model.race.budget, SHORT_BUDGET)})
    return msgspec.structs.replace(model, race=race)


def _first_of(model: Model, api: RelayedApi) -> Deployment | None:
    """Return the first deployment of ``model`` that has the API, in the order of the configuration."""
    return next((each for each in model.deployments.values() if api.api in each.apis), None)


def _of_one_model(plan: Plan, model: Model) -> Plan:
    """Return ``plan`` with no extra attempt but those that answer alike; others replace what fails or hangs."""
    if not plan.launches:
        return plan
    first, *others = plan.launches
    primary = model.deployments[first.deployment]
    same, rest = [first], list(plan.rest)
    for each in others:
        if each.role not in EXTRA_ROLES or model.deployments[each.deployment].answers_like(primary):
            same.append(each)
        elif plan.rescue_s is None:
            rest.insert(0, each.deployment)
        else:
            same.append(msgspec.structs.replace(each, delay_s=max(each.delay_s, plan.rescue_s), role=Role.FAILOVER))
    return msgspec.structs.replace(plan, launches=tuple(same), rest=tuple(rest))


def _obstacle(
    deployment: Deployment, api: RelayedApi, policy: DataPolicy, index: Deployment | None, unpriced: Unpriced | None
) -> str | None:
    """Return why a deployment cannot be used; None if it can. ``index``: beside whose answers this one will be kept."""
    if api.api not in deployment.apis:
        return f"answers {', '.join(sorted(deployment.apis))} only"
    if api.by_character is not None:
        if unpriced != fitting.COUNT_KNOWN and _counted_per_character(deployment) is None:
            return fitting.without_price(("character",))
    elif unpriced == fitting.REFUSE and (units := fitting.uncounted_units(deployment)) and not _has_units(deployment):
        return fitting.without_price(units)
    if index is not None and not deployment.is_same_model(index):
        return f"is another model than {index.name}, and vectors of both must not be mixed; same_as tells if it is not"
    return fitting.policy_violation(deployment, policy)


def _too_much(deployment: Deployment, parsed: RelayedRequest) -> str | None:
    """Return what a request asks for that is more than the deployment is known to give; None: nothing."""
    can = deployment.capabilities
    if can.max_documents is not None and (documents := parsed.number_of("documents")) > can.max_documents:
        return f"ranks at most {can.max_documents} documents, not {documents}"
    if can.max_dimensions is not None and parsed.dimensions > can.max_dimensions:
        return f"makes vectors of at most {can.max_dimensions} dimensions, not {parsed.dimensions}"
    return None


def _usd_of(api: RelayedApi, parsed: RelayedRequest, deployment: Deployment) -> float | None:
    """Return what an answer costs that is paid for by characters, or by queries; None: unknown."""
    if api.by_character is not None:
        usd = _counted_per_character(deployment)
        return None if usd is None else usd * parsed.characters(api.by_character)
    price = deployment.price or deployment.listed
    usd = None if price is None else price.usd("query")
    return usd if usd is not None or price is None else price.input_usd * (parsed.size // CHARS_PER_TOKEN)


def _has_units(deployment: Deployment) -> bool:
    """Whether anything besides tokens of text has a known price, as seconds of sound and pictures."""
    price = deployment.price or deployment.listed
    return price is not None and bool(price.units)


def _counted_per_character(deployment: Deployment) -> float | None:
    """Return what limits in dollars count for a character that is spoken; None: nothing is known."""
    if (usd := _usd_per_character(deployment)) is not None or deployment.listed is None:
        return usd
    return dict(deployment.listed.dearest).get("character")


def _usd_per_character(deployment: Deployment) -> float | None:
    """Return what a character costs that is spoken: as listed, else the higher of the two prices; None: unknown."""
    price = deployment.price or deployment.listed
    if price is None or (usd := price.usd("character")) is not None:
        return None if price is None else usd
    return None if price.unknown else max(price.input_usd, price.output_usd)


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
) -> tuple[RelayedRequest, ClientContext]:
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
    parsed: RelayedRequest,
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

    async def entered(name: str, instead_of: Call | None, *, fleet: Fleet) -> PlannedCall:
        return plan_relay(
            context, api, parsed, client_context, name=name, fleet=fleet, instead_of=instead_of, made_by=made_by
        )

    try:
        runner = CallRunner(
            context,
            parsed.model,
            parsed.preferences,
            entered,
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


def _reading(api: RelayedApi, parsed: RelayedRequest, model: Model, plan: Plan) -> Relayed:
    costs = plan.cost_usd if api.by_character is not None else {}
    return Relayed(
        api.path,
        DIALECTS.get(api.api, PIVOT),
        parsed.form,
        is_priced=api.is_text,
        cost_usd=costs,
        unpriced=[name for name in costs if _usd_per_character(model.deployments[name]) is None],
        takes_extra_body=api.takes_extra_body,
        is_sound=api.api == "audio",
        is_compared=api.is_short(parsed.size),
    )


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
