"""Requests about stored responses, interactions and conversations, passed on to the deployment that stores them."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from urllib.parse import quote, unquote

import msgspec
from aiohttp import web
from aiohttp.hdrs import METH_DELETE, METH_GET, METH_HEAD, METH_POST
from aiohttp.typedefs import Handler

from gateway.access import Client
from gateway.api.admission import AdmittedRequest, admitted_call
from gateway.api.bodies import read_contents
from gateway.api.client_sinks import UnreadSink
from gateway.api.context import CONTEXT, Context
from gateway.api.preferences import policy_violation
from gateway.api.provider_state import ReturnedNames, StoredAt, check_names, not_known, not_recent
from gateway.api.recall import scope_of
from gateway.api.stored_responses import InBackground
from gateway.api.told import broken
from gateway.core.attempts import AttemptRecord, Outcome, Role, TokensSource
from gateway.core.calls import TENANT, Call, CallRecord, Level, Maker, Mode, Objective
from gateway.core.errors import (
    ApiError,
    ClientDisconnected,
    InvalidRequest,
    NamesUnreachable,
    NoDeploymentFits,
    NothingStored,
    ResponseNotFound,
)
from gateway.core.prompt_classes import MeasuredApi, PromptClass, encoded_class
from gateway.core.race_failures import race_failed
from gateway.fleet import Deployment, Fleet
from gateway.http import JSON, headers, is_set, read_model
from gateway.limits import Payer
from gateway.racing import ClientGone, settle
from providers import (
    UNREADABLE,
    ErrorKind,
    Request,
    Rest,
    Sendings,
    UpstreamAnswer,
    UpstreamError,
    events,
    step_by_step,
)
from providers.dialects import DIALECTS, RESPONSES, Dialect, Recalling

# /v1/responses/{id}, /v1beta/interactions/{id} and paths below: passed on to the provider that stores the answer.

_CANCEL = "cancel"
_KEY = "key"  # the gateway's key, in the URLs of some of Google's clients
ENDPOINT = "responses.retrieve"  # of the row with the cost of a response in the background


def kept_answer(dialect: Dialect) -> Handler:
    """Return the handler of requests about one stored answer, for an API whose answers have names."""
    recalling = _recalling_of(dialect)

    async def answer(request: web.Request, admitted: AdmittedRequest) -> web.StreamResponse:
        return await _kept_answer(request, admitted, dialect, recalling)

    return admitted_call(answer, runs_model=False)


def _recalling_of(dialect: Dialect) -> Recalling:
    assert dialect.recalling is not None
    return dialect.recalling


async def _kept_answer(
    request: web.Request, admitted: AdmittedRequest, dialect: Dialect, recalling: Recalling
) -> web.StreamResponse:
    """Pass a request about an answer on to the deployment that stores the answer, if it was made for this client.

    If no provider stores the answer, or the provider has dropped it, answer from the gateway's memory. With
    ``stream=true`` the events of a response in the background are passed on, from ``starting_after`` on.

    No model runs, so this is not a call; there is a row in the ledger only for the end of a response in the background.
    But the request uses the operator's key, and the answer takes memory, so the client's ``rpm`` and ``max_parallel``
    count the request.

    Raises:
        ResponseNotFound: this client has no such response, or the provider has deleted it.
        NamesUnreachable: the deployment is unknown now, or not all replicas could be told to forget the answer.

    """
    context, scope = request.app[CONTEXT], scope_of(admitted.client, recalling)
    deletes = request.method == METH_DELETE and "rest" not in request.match_info
    try:
        was_known = deletes and await context.memory.forget(scope, request.match_info["id"])
    except NamesUnreachable:
        await _asked_for(request, admitted, dialect, recalling, was_known=True)  # the provider deletes it all the same
        raise
    return await _asked_for(request, admitted, dialect, recalling, was_known=was_known)


async def _asked_for(
    request: web.Request, admitted: AdmittedRequest, dialect: Dialect, recalling: Recalling, *, was_known: bool
) -> web.StreamResponse:
    """Answer a request about an answer; ``was_known``: the gateway has just forgotten the answer."""
    context, client = request.app[CONTEXT], admitted.client
    began_s = context.services.clock()
    response_id, rest = request.match_info["id"], request.match_info.get("rest", "")
    made_by = None
    try:
        made_by = await context.responses.maker(client.name, response_id)
    except NamesUnreachable:
        if not was_known and await context.memory.answer(scope_of(client, recalling), response_id) is None:
            raise
    request_id = headers.request_id(request.headers)
    with context.fleet:
        deployment = _deployment(context.fleet, made_by, client)
        if deployment is None or not deployment.upstream.can_fetch:
            return (
                _deleted(recalling, response_id)
                if was_known
                else await _remembered(context, client, request, recalling)
            )
        path = "/".join(part for part in (recalling.path, quote(response_id, safe=""), rest) if part)
        method, query = _fetched_by(request), [each for each in request.query.items() if each[0] != _KEY]
        if request.method != METH_GET or rest:
            query = _unstreamed(request)
        try:
            answer = await _asked(deployment, deployment.upstream.fetch(method, path, query))
        except UpstreamError as error:
            if _is_absent(error) and was_known:
                return _deleted(recalling, response_id)
            if _is_absent(error) and await context.memory.answer(scope_of(client, recalling), response_id) is not None:
                return await _remembered(context, client, request, recalling)
            raise _translated(deployment, recalling, response_id, error) from None
        fields = {
            "content-type": JSON,
            "x-holeshot-provider": deployment.provider,
            "x-holeshot-deployment": deployment.name,
        }
        fields.update(headers.identifying(request_id or context.services.new_id()))
        note_end = partial(_note_end, context, client, recalling, response_id, request_id, began_s)
        if answer.rest is not None:
            sink = _FollowingSink(
                request, fields, dialect, lambda ended: note_end(_paid(context, deployment, recalling, ended))
            )
            intervals_s = [
                each.keepalive_s for each in context.fleet.models.values() if deployment.name in each.deployments
            ]
            try:
                return await sink.follow(deployment, answer.rest, min(filter(None, intervals_s), default=None))
            finally:
                await sink.stop()
                await sink.note_end()
        owner = (
            _paid(context, deployment, recalling, answer.body)
            if rest == _CANCEL or (not rest and method == METH_GET)
            else None
        )
        await note_end(owner)
    if owner is not None and owner.cost_usd is not None and method == METH_GET:
        fields["x-holeshot-cost-usd"] = f"{owner.cost_usd:.8f}"
    return web.Response(body=answer.body, status=answer.status, headers=fields)


class _FollowingSink(UnreadSink):
    """Writes the events of a response in the background as they come, for a client that lost its connection.

    The stream may be silent for as long as the response runs, and ends with its client.
    """

    def __init__(
        self,
        request: web.Request,
        response_headers: Mapping[str, str],
        dialect: Dialect,
        note: Callable[[bytes], Awaitable[None]],
    ) -> None:
        """``note``: called with the answer once its end was seen, else with b""; ``dialect``: of the events."""
        super().__init__(request, response_headers)
        self._dialect, self._told_by = dialect, _recalling_of(dialect).ended
        self._ended = b""
        self._note: Callable[[bytes], Awaitable[None]] | None = note

    async def note_end(self) -> None:
        """Record the end of a response in the background, once."""
        note, self._note = self._note, None
        if note is not None:
            await note(self._ended)

    async def follow(self, deployment: Deployment, rest: Rest, keepalive_s: float | None) -> web.StreamResponse:
        """Pass on ``rest`` to its end. ``keepalive_s``: after so much silence a comment is sent; None: no comments.

        Raises:
            ClientDisconnected: the client has left.

        """
        self._response_headers = {
            **self._response_headers,
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            "x-accel-buffering": "no",  # otherwise nginx would buffer the stream
        }
        response = self.response = web.StreamResponse(headers=self._response_headers)
        latest, last = b"", b""
        try:
            await response.prepare(self._request)
            self.keep_alive(keepalive_s)
            while not rest.ended:
                block = await rest.read()
                self._look(block)
                latest = block or latest
                if block:
                    await self._send(block)
        except UpstreamError as error:
            deployment.hide_addresses(error)
            error.deployment = deployment.name
            last = broken(error, self._dialect, None)
            last = last if (numbers := self._dialect.answers.numbers) is None else numbers.numbered(last, latest)
        except (ClientGone, ConnectionError):
            raise ClientDisconnected("the client disconnected") from None
        finally:
            rest.abort()
        await self.note_end()  # before the client may ask for the cost
        with suppress(ClientGone):
            await self._finish(last)
        return response

    def _look(self, block: bytes) -> None:
        if _MAY_END.search(block) is None:
            return
        for each in events(block):
            self._ended = self._told_by(each.data) or self._ended


_MAY_END = re.compile(rb'"(?:response|interaction)\.(?:completed|incomplete|failed|cancelled)"')


def _unstreamed(request: web.Request) -> list[tuple[str, str]]:
    return [(name, value) for name, value in request.query.items() if name not in {"stream", _KEY}]


def _deleted(recalling: Recalling, response_id: str) -> web.Response:
    """Return the reply that the gateway has forgotten an answer that no provider stores."""
    return web.json_response(recalling.deleted(response_id))


async def _remembered(context: Context, client: Client, request: web.Request, recalling: Recalling) -> web.Response:
    """Return an answer that no provider stores, from the gateway's memory.

    Raises:
        ResponseNotFound: the answer is unknown, or the memory does not have what was asked for.
        InvalidRequest: the client asks for events.

    """
    response_id = request.match_info["id"]
    if request.query.get("stream") == "true":
        raise InvalidRequest(
            f"no provider has this {recalling.noun}: only one in the background is streamed again; leave out 'stream'",
            param="stream",
        )
    answer = await context.memory.answer(scope_of(client, recalling), response_id)
    if answer is None:
        raise ResponseNotFound(
            f"the {recalling.noun} {response_id!r} is not known here, or not to this key:"
            f" {not_known(context.settings)}, and {not_recent(context.settings)}"
        )
    if _fetched_by(request) != METH_GET or "rest" in request.match_info:
        raise ResponseNotFound(
            f"no provider stores the {recalling.noun} {response_id!r}: of what the gateway keeps for the next turn only"
            f" GET /v1/{recalling.path}/{response_id} can be asked; send 'store: true' with what is to be stored at a"
            " provider"
        )
    fields = {"content-type": JSON}
    fields.update(headers.identifying(headers.request_id(request.headers) or context.services.new_id()))
    return web.Response(body=recalling.answered_again(*answer), headers=fields)


def _fetched_by(request: web.Request) -> str:
    return METH_GET if request.method == METH_HEAD else request.method  # aiohttp sends no body in reply to HEAD


async def _asked(deployment: Deployment, answering: Awaitable[UpstreamAnswer]) -> UpstreamAnswer:
    """Return the reply of a deployment, within the deployment's time for a first token.

    Raises:
        UpstreamError: there is no reply; the operator's addresses are hidden in the error.

    """
    limit_s = deployment.clocks.ttft_s
    try:
        async with asyncio.timeout(limit_s):
            return await answering
    except UpstreamError as error:
        deployment.hide_addresses(error)
        raise
    except TimeoutError:
        raise UpstreamError(ErrorKind.TTFT_TIMEOUT, f"no answer within {limit_s:g} s") from None


def _deployment(fleet: Fleet, maker: Maker | None, client: Client) -> Deployment | None:
    """Return the deployment of ``maker``, with the keys that ``client`` brings; None if the client may not use it."""
    if maker is None or not client.made(maker, fleet):
        return None
    deployment = _named(fleet, maker.deployment)
    return deployment if deployment is None or client.tenant is None else fleet.with_key(deployment, client.tenant)


def _named(fleet: Fleet, name: str) -> Deployment | None:
    """Return the deployment ``name`` of any model, or an ad-hoc one if ``name`` begins with a configured provider."""
    deployments = (deployment for model in fleet.models.values() for deployment in model.deployments.values())
    named = next((deployment for deployment in deployments if deployment.name == name), None)
    if named is not None or name.partition("/")[0] not in fleet.upstreams:
        return named
    return next(iter(fleet.find(name, adhoc=True).deployments.values()), None)


def _is_absent(error: UpstreamError) -> bool:
    return error.kind.facts.is_absence or error.status == HTTPStatus.NOT_FOUND


def _translated(deployment: Deployment, recalling: Recalling, response_id: str, error: UpstreamError) -> ApiError:
    if _is_absent(error):
        return ResponseNotFound(
            f"{deployment.name} does not know the {recalling.noun} {response_id!r} any more: {error.message}"
        )
    return _failed(deployment, error)


# The cost of a response in the background. The call ends when the response begins, and the call's row stays: limits in
# dollars have counted the most that the response may cost. The first process to see the end writes a row with the
# actual cost, and limits count the difference.


async def begin_in_background(context: Context, call: Call, record: CallRecord | None, answer: bytes) -> None:
    """Note how limits counted the call of a response in the background, if ``answer`` is only its beginning."""
    begun = None if record is None else next((each for each in record.attempts if each.is_begun), None)
    recalling = call.request.dialect.recalling
    response_id = None if recalling is None else recalling.id_of(answer)
    if record is None or begun is None or response_id is None:
        return
    await context.responses.begin(
        call.caller.client,
        response_id,
        InBackground(
            attempt_id=begun.id,
            model=record.model,
            ran_as=begun.model or call.decision.model,
            since_s=call.caller.started_at.timestamp(),
            counted_usd=_counted_usd(begun),
            owners=tuple(level.owner for level in call.caller.levels),
            size_class=call.traits.prompt_class.size,
            tags=call.caller.tags,
            deployment=begun.deployment if begun.learnt_as is None else None,  # else it runs with the client's key
            api=call.request.dialect.name,
        ),
    )


def _counted_usd(begun: AttemptRecord) -> float | None:
    """Return the dollars that limits count for an answer that has begun; None: unknown, or the client pays."""
    if begun.learnt_as is not None:
        return None
    return begun.limit_usd if begun.counted_high_usd is None else begun.counted_high_usd


def _paid(context: Context, deployment: Deployment, recalling: Recalling, response: bytes) -> AttemptRecord | None:
    """Return a stored answer as an attempt with a cost; None until the answer has a usage."""
    status, usage = recalling.state_of(response)
    if usage is None:
        return None
    counts = msgspec.structs.asdict(usage)
    attempt = AttemptRecord(
        id=context.services.new_id(),
        call_id=context.services.new_id(),
        number=1,
        started_at=context.services.utc_now(),
        role=Role.PRIMARY,
        key_name=None if deployment.tenant is None else TENANT,
        learnt_as=deployment.learnt_as,
        provider=deployment.provider,
        deployment=deployment.name,
        launch_offset_ms=0.0,
        outcome=Outcome.WON,
        is_extra=False,
        tokens_source=TokensSource.REPORTED,
        finish_reason=status,
        other_units=counts.pop("units"),
        **counts,
    )
    return settle([attempt], attempt, {deployment.name: deployment}, 0).attempts[0]


async def _note_end(  # noqa: PLR0917 - what is known of both
    context: Context,
    client: Client,
    recalling: Recalling,
    response_id: str,
    request_id: str | None,
    began_s: float,
    row: AttemptRecord | None,
) -> None:
    """Record the end of a response in the background, if ``row`` is the first to show it."""
    if row is None or row.finish_reason in recalling.running:
        return
    row_of = partial(_row_of_end, context, client.name, row, began_s, request_id)
    ended = await context.responses.end(client.name, response_id, row_of)
    if ended is not None:
        _record_end(context, *ended, row, context.payers.levels(client))


async def look_again(context: Context, client: str | None, response_id: str, begun: InBackground) -> bool | None:
    """Ask for a response that ``begun`` before this process, and record the end if the response has ended.

    Return whether the end was seen now; None: there will be none, as the provider does not know the response, or no
    usage.

    Raises:
        ApiError, UpstreamError: the provider cannot be asked now.

    """
    began_s, recalling = context.services.clock(), _recalling_of(DIALECTS.get(begun.api or "", RESPONSES))
    with context.fleet:
        deployment = None if begun.deployment is None else _named(context.fleet, begun.deployment)
        if deployment is None or not deployment.upstream.can_fetch:
            raise ResponseNotFound("its provider is not configured now")
        path = f"{recalling.path}/{quote(response_id, safe='')}"
        try:
            answer = await _asked(deployment, deployment.upstream.fetch(METH_GET, path, []))
        except UpstreamError as error:
            if _is_absent(error):
                return None
            raise
        paid = _paid(context, deployment, recalling, answer.body)
    if paid is None:
        status, _ = recalling.state_of(answer.body)
        return False if status is None or status in recalling.running else None  # a failed response may have no usage
    if paid.finish_reason in recalling.running:
        return False
    row_of = partial(_row_of_end, context, client, paid, began_s, None)
    ended = await context.responses.end(client, response_id, row_of)
    if ended is not None:
        _record_end(context, *ended, paid)
    return True


def _record_end(
    context: Context, begun: InBackground, row: CallRecord, ended: AttemptRecord, levels: Sequence[Level] = ()
) -> None:
    """Write ``row``, the end of a response in the background; limits count its cost in place of the former amount.

    ``levels``: of the client.
    """
    context.services.recorder.call_finished(row)
    usd = ended.limit_usd if ended.cost_usd is None else ended.cost_usd
    if usd is not None and begun.counted_usd is not None and not context.responses.settle_left(begun, usd):
        payer = Payer(begun.ran_as, begun.ran_as)
        with suppress(ApiError):  # a reload may have removed the model
            model = context.fleet.find(begun.ran_as, adhoc=True)
            payer = Payer(model.name, model.payer or model.name, model.use_limits, model.dearest, model.zone)
        context.limits.correct(
            begun.owners, payer, usd, counted_usd=begun.counted_usd, since_s=begun.since_s, levels=levels
        )


def _row_of_end(  # noqa: PLR0917 - what is known of both
    context: Context,
    client: str | None,
    ended: AttemptRecord,
    began_s: float,
    request_id: str | None,
    begun: InBackground,
) -> CallRecord:
    """Return the row for the end of a response in the background."""
    is_own = ended.learnt_as is None  # the operator has paid
    attempt = msgspec.structs.replace(
        ended,
        continues=begun.attempt_id,
        model=begun.ran_as,
        client=client,
        api=ENDPOINT,
        size_class=begun.size_class,
        status_code=200,
    )
    return CallRecord(
        id=ended.call_id,
        started_at=ended.started_at,
        client=client,
        model=begun.model,
        endpoint=ENDPOINT,
        streamed=False,
        mode=Mode.SINGLE,
        objective=Objective.FIRST_TOKEN,
        prompt_class=encoded_class(PromptClass(MeasuredApi.WHOLE, begun.size_class)),
        replica=context.replica,
        region=context.settings.region,
        request_id=request_id,
        answered_model=None if begun.ran_as == begun.model else begun.ran_as,
        launched=1,
        extras=0,
        winner_attempt_id=attempt.id,
        status_code=200,
        error_kind=None,
        ttft_ms=None,
        total_ms=(context.services.clock() - began_s) * 1000,
        overhead_ms=None,
        prompt_tokens=attempt.prompt_tokens,
        completion_tokens=attempt.completion_tokens,
        reasoning_tokens=attempt.reasoning_tokens,
        cached_tokens=attempt.cached_tokens,
        cache_write_tokens=attempt.cache_write_tokens,
        cost_usd=attempt.cost_usd if is_own else 0.0,
        cost_low_usd=attempt.cost_low_usd if is_own else 0.0,
        cost_high_usd=attempt.cost_high_usd if is_own else 0.0,
        cache_saved_usd=attempt.cache_saved_usd if is_own else None,
        api=ENDPOINT,
        size_class=begun.size_class,
        tokens_source=attempt.tokens_source,
        finish_reason=attempt.finish_reason,
        tags=begun.tags,
        attempts=(attempt,),
    )


# /v1/conversations and paths below: also passed on. A conversation is made at one provider, and only later responses of
# the same client may name it.


class _Listed(msgspec.Struct):
    data: msgspec.Raw = msgspec.Raw(b"[]")


class _Named(msgspec.Struct):
    id: str | None = None


async def _conversation(request: web.Request, admitted: AdmittedRequest) -> web.Response:
    """Make a conversation, or pass the request on to the deployment that keeps this client's conversation.

    Raises:
        NothingStored: this client has no such conversation, or the provider has deleted it.
        InvalidRequest: a new conversation could be kept by several providers.

    """
    context, client = request.app[CONTEXT], admitted.client
    fields: dict[str, msgspec.Raw] = {}
    if request.method == METH_POST:
        contents = await read_contents(
            admitted.received.take(),
            context.body_work,
            most_values=context.settings.limits.max_values,
            nulls=True,  # removes nulls of ``metadata``, which must be present
        )
        fields = contents.fields
    model = read_model(fields) if is_set(fields.get("model")) else None
    fields.pop("model", None)
    named = await check_names(context, client, RESPONSES.name, {"input": fields.get("items", msgspec.Raw(b"[]"))})
    name, key_name = request.match_info.get("id"), None if named is None else named.key_name
    path = _path_at_provider(request)
    with context.fleet:
        if name is None:
            deployment = _keeper(context, client, model, named)
        else:
            maker = await context.responses.maker(client.name, name)
            deployment_found = _deployment(context.fleet, maker, client)
            if maker is None or deployment_found is None or not deployment_found.upstream.can_fetch:
                raise NothingStored(
                    f"the conversation {name!r} is not known here, or not to this key: {not_known(context.settings)}"
                )
            deployment, key_name = deployment_found, maker.key_name
        sendings = Sendings()
        if request.method == METH_POST:
            upstream_request = Request(
                "",
                fields,
                RESPONSES,
                own_headers=deployment.extra_headers,
                once=True,
                client=client.name,
                key_name=key_name,
                first_key=key_name,
                sendings=sendings,
            )
            answering = step_by_step(lambda: deployment.upstream.send(path, upstream_request), sendings)
        else:
            answering = deployment.upstream.fetch(_fetched_by(request), path, _unstreamed(request))
        try:
            answer = await _asked(deployment, answering)
        except UpstreamError as error:
            raise _gone(deployment, name, error) from None
    await _keep_names(
        context, client, answer.body, Maker(deployment.name, sendings.key_name or key_name, deployment.tenant)
    )
    headed = {"content-type": JSON, "x-holeshot-provider": deployment.provider}
    headed["x-holeshot-deployment"] = deployment.name
    headed.update(headers.identifying(headers.request_id(request.headers) or context.services.new_id()))
    return web.Response(body=answer.body, status=answer.status, headers=headed)


conversation = admitted_call(_conversation)
kept_conversation = admitted_call(_conversation, runs_model=False)


def _path_at_provider(request: web.Request) -> str:
    """Return the path of a request at the provider; names in it cannot lead outside of the conversation.

    Raises:
        NothingStored: a name could lead elsewhere, e.g. ``..``.

    """
    parts = [unquote(part) for part in request.rel_url.raw_path.strip("/").split("/")[1:]]
    if any(part in {"", ".", ".."} or "/" in part or "\\" in part for part in parts):
        raise NothingStored("a conversation or an item of this name is not known here")
    return "/".join(quote(part, safe="") for part in parts)


_PROMISES = {True: 2, None: 1, False: 0}


def _keeper(context: Context, client: Client, model: str | None, named: StoredAt | None) -> Deployment:
    """Return the deployment for a new conversation: of ``model``, if the request names one.

    Raises:
        NoDeploymentFits: no deployment can keep conversations.
        InvalidRequest: several providers can.

    """
    if model is not None:
        client.check_model(model)
        models = [context.fleet.find(model, adhoc=client.adhoc)]
    else:
        models = [each for each in context.fleet.models.values() if client.may_use(each.name)]
    hosts: dict[str, Deployment] = {}
    reasons: dict[str, str] = {}
    for each in models:
        try:
            usable = each if client.tenant is None else context.fleet.with_keys(each, client.tenant)
        except NoDeploymentFits as error:
            reasons.update(error.reasons)
            continue
        for deployment in client.deployments(usable):
            reason = policy_violation(deployment, client.require)
            if RESPONSES.name not in deployment.apis or not deployment.upstream.can_fetch:
                reason = f"answers {', '.join(sorted(deployment.apis))} only, and keeps no conversations"
            if reason is not None:
                reasons[deployment.name] = reason
            elif named is None or named.deployment.partition("/")[0] == deployment.provider:
                hosts.setdefault(deployment.provider, deployment)
    if not hosts:
        raise NoDeploymentFits(model or "any model", reasons)
    # Many servers have Responses, few have conversations. A deployment that is known to have conversations comes first,
    # then one that may have them, then the others.
    best = max(_PROMISES[each.conversations] for each in hosts.values())
    hosts = {name: each for name, each in hosts.items() if _PROMISES[each.conversations] == best}
    if len(hosts) > 1:
        raise InvalidRequest(
            f"a conversation is kept by one provider, and {', '.join(sorted(hosts))} could: name a model of one of them"
            " as 'model'",
            param="model",
        )
    return next(iter(hosts.values()))


async def _keep_names(context: Context, client: Client, answer: bytes, maker: Maker) -> None:
    """Store that this client may name the conversation, and the items of an answer."""
    returned_names = ReturnedNames(RESPONSES.name, is_owned=client.name is not None or maker.tenant is not None)
    names: list[str] = []
    with suppress(*UNREADABLE):
        named = msgspec.json.decode(answer, type=_Named)
        names += [] if named.id is None else [named.id]
        returned_names.add(b'{"output":%b}' % bytes(msgspec.json.decode(answer, type=_Listed).data))
    await context.responses.keep_all(
        client.name, [*names, *returned_names.names], maker.deployment, maker.key_name, maker.tenant
    )


def _gone(deployment: Deployment, name: str | None, error: UpstreamError) -> ApiError:
    if name is not None and _is_absent(error):
        return NothingStored(f"{deployment.name} does not know the conversation {name!r}, or what is asked of it")
    return _failed(deployment, error)


def _failed(deployment: Deployment, error: UpstreamError) -> ApiError:
    brought = () if deployment.tenant is None else (deployment.name,)
    return race_failed(deployment.name, [(deployment.name, error)], brought=brought)
