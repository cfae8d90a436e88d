"""The session: who looks, and at which gateway."""

from aiohttp import web

from gateway import __version__
from gateway.ingress.api.answers import answer
from gateway.ingress.context import CONTEXT
from gateway.ingress.visitors import admit_visitor


async def get_session(request: web.Request) -> web.Response:
    """Return who looks, and what the page needs to know of the gateway before it shows anything."""
    client = admit_visitor(request)
    context = request.app[CONTEXT]
    state = context.readiness()
    return answer(
        request,
        {
            "user": {"name": client.name, "role": client.role},
            "authentication": "key" if context.admission.keys.table.is_required else "none",
            "version": __version__,
            "replica": context.replica,
            "region": context.settings.region,
            "stores": {"database_ok": state["database"]["connected"], "redis": state["redis"] is not None},
            "models": list(context.fleet.models),
        },
    )
