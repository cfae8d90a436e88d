"""The leaderboard, and the plans of next calls explained."""

from aiohttp import web

from gateway.errors import ModelNotFound
from gateway.fleet.model import Model
from gateway.ingress.api.answers import answer
from gateway.ingress.context import CONTEXT, Context
from gateway.ingress.explaining import explained
from gateway.ingress.visitors import admit_visitor


async def leaderboard(request: web.Request) -> web.Response:
    """Return the standings of every model, or of ``?model=``."""
    admit_visitor(request)
    context = request.app[CONTEXT]
    models = _wanted(context, request)
    return answer(request, {"models": [context.steering.leaderboard(model.name) for model in models]})


async def explain(request: web.Request) -> web.Response:
    """Return who would run for the next call of every model, or of ``?model=``, and why."""
    client = admit_visitor(request)
    context = request.app[CONTEXT]
    models = _wanted(context, request)
    return answer(request, {"models": [explained(context, model, request.query, client) for model in models]})


def _wanted(context: Context, request: web.Request) -> list[Model]:
    """Return the models that are asked for.

    Raises:
        ModelNotFound: the one that is named is not configured.

    """
    models = context.fleet.models
    name = request.query.get("model")
    if name is None:
        return list(models.values())
    if name not in models:
        raise ModelNotFound(f"the model {name!r} is not configured; known models: {', '.join(models) or 'none'}")
    return [models[name]]
