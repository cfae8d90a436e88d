"""Responses that a provider keeps: requests about them go to it, and what ran in the background is paid at its end."""

import asyncio
from contextlib import suppress
from urllib.parse import quote

import msgspec
from aiohttp import web
from aiohttp.hdrs import METH_GET, METH_HEAD

from gateway.api import headers
from gateway.api.admission import admitted_call
from gateway.api.auth import JSON
from gateway.api.bodies import Received
from gateway.api.client import Client
from gateway.api.context import CONTEXT, Context, InBackground
from gateway.core.attempts import AttemptRecord, Outcome, Role, TokensSource
from gateway.core.calls import Call, CallRecord, Mode, Objective
from gateway.core.errors import ApiError, InvalidRequest, ResponseNotFound
from gateway.core.prompt_classes import MeasuredApi, PromptClass, encoded_class
from gateway.core.race_failures import race_failed
from gateway.fleet.fleet import Fleet
from gateway.fleet.models import Deployment
from gateway.limits import Payer
from gateway.racing import settle
from providers import UNREADABLE, ErrorKind, UpstreamError
from providers.dialects import RESPONSES

# /v1/responses/{id} and the paths below it: passed on to the provider that stores the response.

_CANCEL = "cancel"
_RUNNING = frozenset({"queued", "in_progress"})
ENDPOINT = "responses.retrieve"  # of the row with the cost of what ran in the background


async def _kept_response(request: web.Request, client: Client, _received: Received, _waited_s: float) -> web.Response:
    """Pass the request on to the deployment that made the response, if it was made for this client.

    No model runs, so this is not a call, and has a row in the ledger only if it shows the end of a response in the
    background. But the request uses the operator's key, and the answer takes memory, so the client's ``rpm`` and
    ``max_parallel`` count it.

    Raises:
        ResponseNotFound: this client has no such response, or the provider has deleted it.

    """
    context = request.app[CONTEXT]
    began_s = context.services.clock()
    response_id, rest = request.match_info["id"], request.match_info.get("rest", "")
    if "stream" in request.query:
        raise InvalidRequest("a stored response is returned as a whole: leave out 'stream'", param="stream")
    made_by = await context.responses.find(client.name, response_id)
    request_id = headers.request_id(request.headers)
    with context.fleet:
        deployment = None if made_by is None else _deployment(context.fleet, made_by)
        if deployment is None or not deployment.upstream.can_fetch:
            raise ResponseNotFound(f"the response {response_id!r} is not known here, or not to this key")
        path = "/".join(part for part in ("responses", quote(response_id, safe=""), rest) if part)
        method = METH_GET if request.method == METH_HEAD else request.method  # aiohttp leaves out the body of a HEAD's
        limit_s = deployment.clocks.ttft_s
        try:
            async with asyncio.timeout(limit_s):
                answer = await deployment.upstream.fetch(method, path, list(request.query.items()))
        except UpstreamError as error:
            deployment.hide_addresses(error)
            raise _translated(deployment.name, response_id, error) from None
        except TimeoutError:
            late = UpstreamError(ErrorKind.TTFT_TIMEOUT, f"no answer within {limit_s:g} s")
            raise _translated(deployment.name, response_id, late) from None
        found = (
            _paid(context, deployment, answer.body) if rest == _CANCEL or (not rest and method == METH_GET) else None
        )
        if found is not None and found.finish_reason not in _RUNNING:
            begun = await context.responses.end(client.name, response_id)
            if begun is not None:
                _record_end(context, client, begun, found, request_id, began_s)
    fields = {"content-type": JSON, "x-holeshot-provider": deployment.provider, "x-holeshot-deployment": made_by or ""}
    fields.update(headers.identifying(request_id or context.services.new_id()))
    if found is not None and found.cost_usd is not None and method == METH_GET:
        fields["x-holeshot-cost-usd"] = f"{found.cost_usd:.8f}"
    return web.Response(body=answer.body, status=answer.status, headers=fields)


kept_response = admitted_call(_kept_response, runs_model=False)


def _deployment(fleet: Fleet, name: str) -> Deployment | None:
    """Return the deployment ``name`` of any model, or one of the provider that ``name`` begins with."""
    known = (deployment for model in fleet.models.values() for deployment in model.deployments.values())
    found = next((deployment for deployment in known if deployment.name == name), None)
    if found is not None or name.partition("/")[0] not in fleet.upstreams:
        return found
    return next(iter(fleet.find(name, adhoc=True).deployments.values()), None)


def _translated(deployment: str, response_id: str, error: UpstreamError) -> ApiError:
    if error.kind in {ErrorKind.NOT_FOUND, ErrorKind.NO_SUCH_API}:
        return ResponseNotFound(f"{deployment} does not know the response {response_id!r} any more: {error.message}")
    return race_failed(deployment, [(deployment, error)])


# What a response in the background has cost. Its call has ended with its beginning, and that row stays as it is: limits
# in dollars have counted what it may cost. Whoever first sees its end writes a row with what it did cost, and limits
# count the difference.


class _Said(msgspec.Struct):
    id: str = ""
    status: str | None = None


_said = msgspec.json.Decoder(_Said)


async def begin_in_background(context: Context, call: Call, record: CallRecord, answer: bytes) -> None:
    """Remember what the call of a response that runs on was counted with, if its ``answer`` is only a beginning."""
    begun = next((each for each in record.attempts if each.is_begun), None)
    if begun is None:
        return
    try:
        response_id = _said.decode(answer).id
    except UNREADABLE:
        return
    await context.responses.begin(
        call.client,
        response_id,
        InBackground(
            attempt_id=begun.id,
            model=record.model,
            ran_as=begun.model or call.model,
            since_s=call.started_at.timestamp(),
            counted_usd=begun.cost_high_usd,
            owners=tuple(level.owner for level in call.levels),
            size_class=call.prompt_class.size,
            tags=call.tags,
        ),
    )


def _paid(context: Context, deployment: Deployment, response: bytes) -> AttemptRecord | None:
    """Return a stored response as an attempt with its cost; None until its usage is known."""
    usage, said = None, _Said()
    with suppress(UpstreamError, *UNREADABLE):
        usage = RESPONSES.answers.read_event(b'{"type":"response.completed","response":%b}' % response, ()).usage
        said = _said.decode(response)
    if usage is None:
        return None
    attempt = AttemptRecord(
        id=context.services.new_id(),
        call_id=context.services.new_id(),
        number=1,
        started_at=context.services.utc_now(),
        role=Role.PRIMARY,
        provider=deployment.provider,
        deployment=deployment.name,
        launch_offset_ms=0.0,
        outcome=Outcome.WON,
        is_extra=False,
        tokens_source=TokensSource.REPORTED,
        finish_reason=said.status,
        **msgspec.structs.asdict(usage),
    )
    return settle([attempt], attempt, {deployment.name: deployment}, 0).attempts[0]


def _record_end(  # noqa: PLR0917 - what is known of both
    context: Context,
    client: Client,
    begun: InBackground,
    ended: AttemptRecord,
    request_id: str | None,
    began_s: float,
) -> None:
    """Write the row of the end of what had ``begun``, and let limits count its cost instead of what they have."""
    usd = ended.cost_usd
    if usd is not None and begun.counted_usd is not None:
        model = context.fleet.find(begun.ran_as, adhoc=True)
        payer = Payer(model.name, model.payer or model.name, model.usd_per_day, model.dearest)
        context.limits.correct(begun.owners, payer, usd - begun.counted_usd, since_s=begun.since_s)
    attempt = msgspec.structs.replace(
        ended,
        continues=begun.attempt_id,
        model=begun.ran_as,
        client=client.name,
        api=ENDPOINT,
        size_class=begun.size_class,
        status_code=200,
    )
    context.services.recorder.call_finished(
        CallRecord(
            id=ended.call_id,
            started_at=ended.started_at,
            client=client.name,
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
            cost_usd=usd,
            cost_low_usd=attempt.cost_low_usd,
            cost_high_usd=attempt.cost_high_usd,
            cache_saved_usd=attempt.cache_saved_usd,
            api=ENDPOINT,
            size_class=begun.size_class,
            tokens_source=attempt.tokens_source,
            finish_reason=attempt.finish_reason,
            tags=begun.tags,
            attempts=(attempt,),
        )
    )
