"""Requests about what a provider stores, responses and conversations, which go to the deployment that has it."""

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
from gateway.api.context import CONTEXT
from gateway.core.errors import ApiError, InvalidRequest, ResponseNotFound
from gateway.core.race_failures import race_failed
from gateway.fleet.fleet import Fleet
from gateway.fleet.models import Deployment
from providers import STANDARD, ErrorKind, UpstreamError, cost_usd
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
