"""Status endpoints for operators and their tools: health, metrics and the leaderboard."""

import msgspec
from aiohttp import web

from gateway.errors import ModelNotFound
from gateway.ingress.context import CONTEXT
from gateway.ingress.explaining import explained
from gateway.ingress.phase import Phase


async def live(_request: web.Request) -> web.Response:
    """Answer 200 as long as the process responds."""
    return web.json_response({"status": "ok"})


async def ready(request: web.Request) -> web.Response:
    """Answer 200 while new calls are accepted, 503 while stopping.

    The gateway stays ready without its database or Redis: calls are answered, rows wait in the spool, and each
    replica steers with its own statistics. The body has the state of both.
    """
    context = request.app[CONTEXT]
    serving = context.phase is Phase.SERVING
    body = {"status": "ok" if serving else "stopping", **context.readiness()}
    return web.Response(body=msgspec.json.encode(body), content_type="application/json", status=200 if serving else 503)


async def metrics(request: web.Request) -> web.Response:
    """Return the metrics in Prometheus' text format. Needs an admin key if clients are configured."""
    context = request.app[CONTEXT]
    context.admission.admit_admin(request)
    body, content_type = await context.render_metrics()
    return web.Response(body=body, headers={"content-type": content_type})


async def leaderboard(request: web.Request) -> web.Response:
    """Return the standings of every model, or of ``?model=``; with ``?explain=1`` also the plans of their next calls.

    Needs an admin key if clients are configured.

    Raises:
        ModelNotFound: ``model`` is not configured.

    """
    context = request.app[CONTEXT]
    client = context.admission.admit_admin(request)
    wanted = request.query.get("model")
    models = context.fleet.models
    if wanted is not None and wanted not in models:
        raise ModelNotFound(f"the model {wanted!r} is not configured; known models: {', '.join(models) or 'none'}")
    names = [wanted] if wanted is not None else list(models)
    if request.query.get("explain", "0") not in _NO:
        plans = [explained(context, models[name], request.query, client) for name in names]
        return web.Response(body=msgspec.json.encode({"models": plans}), content_type="application/json")
    standings = [context.steering.leaderboard(name) for name in names]
    return web.Response(body=msgspec.json.encode({"models": standings}), content_type="application/json")


_NO = frozenset({"0", "false", ""})
