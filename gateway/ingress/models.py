"""GET /v1/models and /v1/models/{id}: what a client may ask for."""

from typing import Any

import msgspec
from aiohttp import web

from gateway.fleet import Model
from gateway.ingress.context import CONTEXT


async def list_models(request: web.Request) -> web.Response:
    """List the configured models this client may use."""
    context = request.app[CONTEXT]
    client = context.admission.admit(request)
    models = [model for name, model in context.fleet.models.items() if client.models is None or name in client.models]
    return _json({"object": "list", "data": [_model(model) for model in models]})


async def get_model(request: web.Request) -> web.Response:
    """Describe one model; the id may hold slashes."""
    context = request.app[CONTEXT]
    client = context.admission.admit(request)
    name = request.match_info["id"]
    client.check_model(name)
    return _json(_model(context.fleet.find(name, adhoc=client.adhoc)))


def _model(model: Model) -> dict[str, Any]:
    # OpenAI's clients expect "created"; a configured name has no birthday, so it is the epoch.
    return {
        "id": model.name,
        "object": "model",
        "created": 0,
        "owned_by": "holeshot",
        "deployments": list(model.deployments),
    }


def _json(body: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")
