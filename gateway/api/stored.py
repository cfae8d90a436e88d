"""Requests about what a provider stores, responses and conversations, which go to the deployment that has it."""

import asyncio
from contextlib import suppress
from urllib.parse import quote

import msgspec
from aiohttp import web
from aiohttp.hdrs import METH_GET, METH_HEAD, METH_POST

from gateway.api import headers
from gateway.api.admission import admitted_call
from gateway.api.auth import JSON
from gateway.api.bodies import Received, read_contents
from gateway.api.client import Client
from gateway.api.context import CONTEXT, Context
from gateway.api.fitting import policy_violation
from gateway.api.json_body import is_set, read_model
from gateway.api.provider_state import Given, StoredAt, check_names
from gateway.core.calls import Maker
from gateway.core.errors import ApiError, InvalidRequest, NoDeploymentFits, NothingStored, ResponseNotFound
from gateway.core.race_failures import race_failed
from gateway.fleet.fleet import Fleet
from gateway.fleet.models import Deployment
from providers import STANDARD, ErrorKind, Request, SendCount, UpstreamError, cost_usd
from providers.dialects import RESPONSES

# /v1/responses/{id} and the paths below it: passed on to the provider that stores the response.


async def _kept_response(request: web.Request, client: Client, _received: Received, _waited_s: float) -> web.Response:
    """Pass the request on to the deployment that made the response, if it was made for this client.

    No model runs, so this is not a call and has no row in the ledger. But the request uses the operator's key, and the
    answer takes memory, so the client's ``rpm`` and ``max_parallel`` count it.

    Raises:
        ResponseNotFound: this client has no such response, or the provider has deleted it.

    """
    context = request.app[CONTEXT]
    response_id, rest = request.match_info["id"], request.match_info.get("rest", "")
    if "stream" in request.query:
        raise InvalidRequest("a stored response is returned as a whole: leave out 'stream'", param="stream")
    made_by = await context.responses.find(client.name, response_id)
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
    fields = {"content-type": JSON, "x-holeshot-provider": deployment.provider, "x-holeshot-deployment": made_by or ""}
    fields.update(headers.identifying(headers.request_id(request.headers) or context.services.new_id()))
    if not rest and method == METH_GET and (usd := _cost_of(deployment, answer.body)) is not None:
        fields["x-holeshot-cost-usd"] = f"{usd:.8f}"
    return web.Response(body=answer.body, status=answer.status, headers=fields)


kept_response = admitted_call(_kept_response, runs_model=False)


def _cost_of(deployment: Deployment, response: bytes) -> float | None:
    """Return the cost of a stored response, which may have run in the background; None until its usage is known."""
    with suppress(UpstreamError):
        usage = RESPONSES.answers.read_event(b'{"type":"response.completed","response":%b}' % response, ()).usage
        price, counts = deployment.price, {} if usage is None else msgspec.structs.asdict(usage)
        if price is not None and usage is not None:
            price = price.at(counts.pop("tier") or STANDARD, usage.prompt_tokens or 0)
            return cost_usd(price, **counts)
    return None


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


# /v1/conversations and the paths below it: passed on likewise. A conversation is made at one provider, and is named by
# later responses of the same client only.


class _Listed(msgspec.Struct):
    data: msgspec.Raw = msgspec.Raw(b"[]")


class _Named(msgspec.Struct):
    id: str | None = None


async def _conversation(request: web.Request, client: Client, received: Received, _waited_s: float) -> web.Response:
    """Make a conversation, or pass the request on to the deployment that keeps it, if it was made for this client.

    Raises:
        NothingStored: this client has no such conversation, or the provider has deleted it.
        InvalidRequest: a conversation is to be made, and several providers could keep it.

    """
    context = request.app[CONTEXT]
    fields: dict[str, msgspec.Raw] = {}
    if request.method == METH_POST:
        contents = await read_contents(
            received.take(), context.body_work, most_values=context.settings.limits.max_values
        )
        fields = contents.fields
    model = read_model(fields) if is_set(fields.get("model")) else None
    fields.pop("model", None)
    named = await check_names(context, client, RESPONSES.name, {"input": fields.get("items", msgspec.Raw(b"[]"))})
    name, key_name = request.match_info.get("id"), None if named is None else named.key_name
    with context.fleet:
        if name is None:
            deployment = _keeper(context, client, model, named)
        else:
            maker = await context.responses.maker(client.name, name)
            found = None if maker is None else _deployment(context.fleet, maker.deployment)
            if maker is None or found is None or not found.upstream.can_fetch:
                raise NothingStored(f"the conversation {name!r} is not known here, or not to this key")
            deployment, key_name = found, maker.key_name
        path = "/".join(quote(part, safe="") for part in request.path.strip("/").split("/")[1:])
        sendings = SendCount()
        try:
            async with asyncio.timeout(deployment.clocks.ttft_s):
                if request.method == METH_POST:
                    asked = Request(
                        "", fields, RESPONSES, once=True, key_name=key_name, first_key=key_name, sendings=sendings
                    )
                    answer = await deployment.upstream.send(path, asked)
                else:
                    method = METH_GET if request.method == METH_HEAD else request.method
                    answer = await deployment.upstream.fetch(method, path, list(request.query.items()))
        except UpstreamError as error:
            deployment.hide_addresses(error)
            raise _gone(deployment.name, name, error) from None
        except TimeoutError:
            late = UpstreamError(ErrorKind.TTFT_TIMEOUT, f"no answer within {deployment.clocks.ttft_s:g} s")
            raise _gone(deployment.name, name, late) from None
    await _keep_names(context, client, answer.body, Maker(deployment.name, sendings.key_name or key_name))
    headed = {"content-type": JSON, "x-holeshot-provider": deployment.provider}
    headed["x-holeshot-deployment"] = deployment.name
    headed.update(headers.identifying(headers.request_id(request.headers) or context.services.new_id()))
    return web.Response(body=answer.body, status=answer.status, headers=headed)


conversation = admitted_call(_conversation)
kept_conversation = admitted_call(_conversation, runs_model=False)


def _keeper(context: Context, client: Client, model: str | None, named: StoredAt | None) -> Deployment:
    """Return the deployment that is to keep a new conversation: of ``model``, if the request names one.

    Raises:
        NoDeploymentFits: none can.
        InvalidRequest: several providers could.

    """
    if model is not None:
        client.check_model(model)
        models = [context.fleet.find(model, adhoc=client.adhoc)]
    else:
        models = [each for each in context.fleet.models.values() if client.models is None or each.name in client.models]
    found: dict[str, Deployment] = {}
    reasons: dict[str, str] = {}
    for each in models:
        for deployment in client.deployments(each):
            reason = policy_violation(deployment, client.require)
            if RESPONSES.name not in deployment.apis or not deployment.upstream.can_fetch:
                reason = f"answers {', '.join(sorted(deployment.apis))} only, and keeps no conversations"
            if reason is not None:
                reasons[deployment.name] = reason
            elif named is None or named.deployment.partition("/")[0] == deployment.provider:
                found.setdefault(deployment.provider, deployment)
    if not found:
        raise NoDeploymentFits(model or "any model", reasons)
    if len(found) > 1:
        raise InvalidRequest(
            f"a conversation is kept by one provider, and {', '.join(sorted(found))} could: name a model of one of them"
            " as 'model'",
            param="model",
        )
    return next(iter(found.values()))


async def _keep_names(context: Context, client: Client, answer: bytes, maker: Maker) -> None:
    """Store that this client may name the conversation or the items of an answer."""
    given = Given(RESPONSES.name, client.name)
    names: list[str] = []
    with suppress(msgspec.DecodeError):
        made = msgspec.json.decode(answer, type=_Named)
        names += [] if made.id is None else [made.id]
        given.add(b'{"output":%b}' % bytes(msgspec.json.decode(answer, type=_Listed).data))
    await context.responses.keep_all(client.name, [*names, *given.names], maker.deployment, maker.key_name)


def _gone(deployment: str, name: str | None, error: UpstreamError) -> ApiError:
    if name is not None and error.kind is ErrorKind.NOT_FOUND:
        return NothingStored(f"{deployment} does not know the conversation {name!r}, or what is asked of it")
    return race_failed(deployment, [(deployment, error)])
