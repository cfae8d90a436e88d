"""/v1/responses/{id} and the paths below it: passed on to the provider that stores the response."""

from urllib.parse import quote

from aiohttp import web

from gateway.errors import ApiError, InvalidRequest, ResponseNotFound
from gateway.fleet.deployment import Deployment
from gateway.fleet.fleet import Fleet
from gateway.ingress import headers
from gateway.ingress.admission import JSON
from gateway.ingress.context import CONTEXT
from gateway.race_failures import race_failed
from providers.errors import ErrorKind, UpstreamError


async def kept_response(request: web.Request) -> web.Response:
    """Pass the request on to the deployment that made the response, if it was made for this client.

    No model is asked, so this is not a call and the ledger has no row of it.

    Raises:
        ResponseNotFound: this client has no such response, or the provider has deleted it.

    """
    context = request.app[CONTEXT]
    client = context.admission.admit(request)
    response_id, rest = request.match_info["id"], request.match_info.get("rest", "")
    if "stream" in request.query:
        raise InvalidRequest("a stored response is returned as a whole: leave out 'stream'", param="stream")
    made_by = await context.responses.find(client.name, response_id)
    with context.fleet.lease():
        deployment = None if made_by is None else _deployment(context.fleet, made_by)
        if deployment is None or not deployment.upstream.can_fetch:
            raise ResponseNotFound(f"the response {response_id!r} is not known here, or not to this key")
        path = "/".join(part for part in ("responses", quote(response_id, safe=""), rest) if part)
        try:
            answer = await deployment.upstream.fetch(request.method, path, list(request.query.items()))
        except UpstreamError as error:
            raise _translated(deployment.name, response_id, error) from None
    fields = {"content-type": JSON, "x-holeshot-provider": deployment.provider, "x-holeshot-deployment": made_by or ""}
    fields.update(headers.identifying(headers.request_id(request.headers) or context.services.new_id()))
    return web.Response(body=answer.body, status=answer.status, headers=fields)


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
