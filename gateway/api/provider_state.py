"""What a provider stores under the operator's key: who may name it, and requests about stored responses."""

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol
from urllib.parse import quote

import msgspec
from aiohttp import web
from aiohttp.hdrs import METH_GET, METH_HEAD

from gateway.api import headers
from gateway.api.admission import admitted_call
from gateway.api.auth import JSON
from gateway.api.bodies import Received
from gateway.api.client import Client
from gateway.api.context import CONTEXT, Context, InBackground, id_of_response
from gateway.api.json_body import too_many_values, values_outside_strings
from gateway.api.request import ParsedRequest
from gateway.core.attempts import AttemptRecord, Outcome, Role, TokensSource
from gateway.core.calls import Call, CallRecord, Maker, Mode, Objective
from gateway.core.errors import ApiError, Forbidden, InvalidRequest, NothingStored, ResponseNotFound
from gateway.core.prompt_classes import MeasuredApi, PromptClass, encoded_class
from gateway.core.race_failures import race_failed
from gateway.fleet.fleet import Fleet
from gateway.fleet.models import Deployment
from gateway.limits import Payer
from gateway.racing import settle
from gateway.settings import Settings
from providers import UNREADABLE, ErrorKind, Steps, UpstreamError, finished
from providers.dialects import (
    GIVES_STORED,
    GIVING_HEADERS,
    HELD,
    HOLDING,
    RESPONSES,
    Named,
    StoredKind,
    asked_fields,
    named_in_answer,
    plain,
)

# Names of what is stored.

MOST_NAMES = 5_000  # of a request: an agent names each item of a long conversation
MOST_GIVEN = 1_000  # of an answer: what it names beyond these is nobody's
LONGEST_NAME = 10_000  # characters; all known ids are far shorter, but credits are sealed texts
_SMALL_BYTES = 2**16  # searched in one turn of the loop
_AT_ONCE = 50  # questions to Redis
_CALLED = frozenset({StoredKind.SERVER, StoredKind.CONNECTOR})
_HOST = re.compile(r"https?://([a-z0-9.-]+)(?::\d+)?(?:[/?#][^\\\s]*)?", re.IGNORECASE | re.ASCII)


class StoredAt(msgspec.Struct, frozen=True):
    """The deployment that has what a request names."""

    deployment: str
    field: str
    is_exact: bool = False  # only this deployment has it; else every deployment of its provider
    key_name: str | None = None  # the only key of the provider that has it; None: any


class Known(Protocol):
    """Knows the ids that a client's answers named."""

    async def maker(self, client: str | None, name: str) -> Maker | None:
        """Return who gave ``client`` an id; None if it is unknown, or too long ago."""


class Watch(msgspec.Struct, frozen=True):
    """What of a client's requests is checked."""

    client: str | None
    ids: bool
    servers: bool


def watch_of(client: Client, settings: Settings) -> Watch | None:
    """Return what of a client's requests is checked; None: nothing.

    Without clients there is one owner of all, who may also call every MCP server, unless the operator says otherwise.
    """
    has_owner = client.name is not None
    ids = settings.provider_state == "none" or (settings.provider_state == "own" and has_owner)
    servers = settings.mcp_hosts is not None or has_owner
    return Watch(client.name, ids, servers) if ids or servers else None


def names_of(api: str, fields: Mapping[str, msgspec.Raw], most_values: int) -> Steps[list[Named]]:
    """Return what the ``fields`` of a request name, in slices.

    Raises:
        TooManyValues: a field with names has more than ``most_values``, which are built to find them.
        InvalidRequest: they name too much.

    """
    table, found = asked_fields(api), list[Named]()
    for name, raw in fields.items():
        field = table.get(plain(name))
        if field is None or not (yield from field.hinted(raw)):
            continue
        size = len(memoryview(raw))
        if size > most_values and (yield from values_outside_strings(raw, most_values)) > most_values:
            raise too_many_values(most_values, "where something stored at a provider is named", name)
        for each in field.named_in(name, raw):
            if each is None:
                yield
            else:
                found.append(each)
        if len(found) > MOST_NAMES:
            raise InvalidRequest(f"{name!r} names more than {MOST_NAMES} things that a provider stores", param=name)
    return found


def check_servers(named: list[Named], hosts: tuple[str, ...] | None) -> None:
    """Check that a provider may call the MCP servers and connectors of a request.

    Raises:
        Forbidden: the operator does not allow one of them.

    """
    for each in named:
        if each.kind not in _CALLED or _is_allowed(each, hosts or ()):
            continue
        raise Forbidden(
            f"'{each.field}': providers may not call {each.value[:100]!r} for clients: the operator lists the allowed"
            " hosts and connectors in 'mcp_hosts'",
            param=each.field,
        )


def _is_allowed(named: Named, hosts: tuple[str, ...]) -> bool:
    if "*" in hosts:
        return True
    if named.kind is StoredKind.CONNECTOR:
        return named.value in hosts
    url = _HOST.fullmatch(named.value)  # others may be read as another host by the provider than by us
    if url is None:
        return False
    host = url[1].lower().rstrip(".")
    return any(host == each or (each.startswith("*.") and host.endswith(each[1:])) for each in map(str.lower, hosts))


async def stored_at(
    named: list[Named], watch: Watch, known: Known, settings: Settings, before: StoredAt | None = None
) -> StoredAt | None:
    """Return which deployment's provider has what a request names, also ``before``; None if it names nothing stored.

    Raises:
        NothingStored: this client was not given one of the names.
        InvalidRequest: several providers have them.

    """
    ids = [each for each in named if each.kind not in _CALLED and (watch.ids or each.kind in HELD)]
    found = before
    is_any = settings.provider_state == "any"
    for at in range(0, len(ids), _AT_ONCE):
        part = ids[at : at + _AT_ONCE]
        is_none = settings.provider_state == "none"
        for each in part:
            if is_none or len(each.value) > LONGEST_NAME:
                raise _unknown(each, settings)
        makers = await asyncio.gather(*(known.maker(watch.client, each.value) for each in part))
        for each, maker in zip(part, makers, strict=True):
            if maker is None:
                if is_any or (not watch.ids and each.kind is StoredKind.CONTAINER):
                    continue
                raise _unknown(each, settings)
            deployment = maker.deployment
            if found is None:
                found = StoredAt(deployment, each.field, key_name=maker.key_name)
            elif _provider(found.deployment) != _provider(deployment):
                raise InvalidRequest(
                    f"'{found.field}' is stored at {_provider(found.deployment)}, but '{each.field}' at"
                    f" {_provider(deployment)}: no provider has both",
                    param=each.field,
                )
    return found


def _provider(deployment: str) -> str:
    return deployment.partition("/")[0]


def _unknown(named: Named, settings: Settings) -> NothingStored:
    why = f"no answer to this key named it in the last {settings.response_ids_ttl_s / 86_400:g} days"
    if settings.provider_state == "none":
        why = "requests may name nothing that a provider stores (provider_state: none)"
    return NothingStored(
        f"'{named.field}': the {named.kind} {named.value[:100]!r} is not this key's: {why}; send its content instead",
        param=named.field,
    )


async def check_names(
    context: Context,
    client: Client,
    api: str,
    fields: Mapping[str, msgspec.Raw],
    *,
    before: StoredAt | None = None,
) -> StoredAt | None:
    """Return which deployment's provider has what a request of ``client`` names; None: any may be asked.

    ``before`` is the place of what it is already known to name.

    Raises:
        NothingStored: this client was not given one of the names.
        Forbidden: it names an MCP server that is not allowed.
        InvalidRequest: it names too much, or what several providers have.

    """
    settings = context.settings
    watch = watch_of(client, settings)
    if watch is None:
        fields = {name: fields[name] for name in HOLDING.intersection(fields)}
        if not fields:
            return before
        watch = Watch(client.name, ids=False, servers=False)
    steps = names_of(api, fields, settings.limits.max_values)
    size = sum(len(memoryview(raw)) for raw in fields.values())
    named = finished(steps) if size <= _SMALL_BYTES else await context.body_work.run(steps)
    if watch.servers:
        check_servers(named, settings.mcp_hosts)
    return await stored_at(named, watch, context.responses, settings, before)


def gives(asked: ParsedRequest, headers: Mapping[str, str]) -> bool:
    """Whether the answer to a request may name what its provider stores from then on."""
    if asked.stores or asked.stateful or not GIVES_STORED.isdisjoint(asked.fields):
        return True
    for name, part in GIVING_HEADERS.items():  # noqa: SIM110 - a generator is a call more, and this runs for each call
        if name in headers and part in headers[name]:
            return True
    return False


class Given:
    """Gathers what the answer to one call names, for ``StoredResponses``."""

    def __init__(self, api: str, client: str | None) -> None:
        self._api = api
        self._client = client
        self.names: dict[str, StoredKind] = {}

    def add(self, said: bytes) -> None:
        """Gather the names of a whole answer, or of one event's data."""
        for named in named_in_answer(self._api, said):
            if self._client is None and named.kind not in HELD:
                continue  # everybody may name it
            if len(self.names) < MOST_GIVEN and len(named.value) <= LONGEST_NAME:
                self.names[named.value] = named.kind


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
    status: str | None = None


_said = msgspec.json.Decoder(_Said)


async def begin_in_background(context: Context, call: Call, record: CallRecord | None, answer: bytes) -> None:
    """Remember what the call of a response that runs on was counted with, if its ``answer`` is only a beginning."""
    begun = None if record is None else next((each for each in record.attempts if each.is_begun), None)
    response_id = id_of_response(answer)
    if record is None or begun is None or response_id is None:
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
    counts = msgspec.structs.asdict(usage)
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
        other_units=counts.pop("units"),
        **counts,
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
