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
    """Answer 200 while new calls are accepted; 503 while stopping, or before the keys of the database are known.

    The gateway stays ready when its database or Redis goes away: calls are answered, rows wait in the spool, each
    replica steers with its own statistics, and known keys stay good. The body has the state of both.
    """
    context = request.app[CONTEXT]
    status = "ok" if context.admission.keys.table.is_loaded else "keys_not_loaded"
    if context.phase is not Phase.SERVING:
        status = "stopping"
    body = msgspec.json.encode({"status": status, **context.process.readiness()})
    return web.Response(body=body, content_type="application/json", status=200 if status == "ok" else 503)


async def metrics(request: web.Request) -> web.Response:
    """Return the metrics in Prometheus' text format. Needs the key of an admin or a viewer if keys are required."""
    context = request.app[CONTEXT]
    context.admission.admit_viewer(request)
    body, content_type = await context.process.render_metrics()
    return web.Response(body=body, headers={"content-type": content_type})


async def leaderboard(request: web.Request) -> web.Response:
    """Return the standings of every model, or of ``?model=``; with ``?explain=1`` also the plans of their next calls.

    Needs the key of an admin or a viewer if keys are required.

    Raises:
        ModelNotFound: ``model`` is not configured.

    """
    context = request.app[CONTEXT]
    client = context.admission.admit_viewer(request)
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
