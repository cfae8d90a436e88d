"""GET /api/slo: where the targets stand."""

from aiohttp import web

from gateway.ingress.api.answers import answer
from gateway.ingress.api.asked import NoQuery, asked
from gateway.ingress.context import CONTEXT
from gateway.ingress.visitors import admit_visitor
from gateway.targets.shown import as_object


async def slo(request: web.Request) -> web.Response:
    """Return each target of the configuration: its figures, what is left of its error budget, and a verdict."""
    admit_visitor(request)
    asked(request, NoQuery)
    standings = await request.app[CONTEXT].reports.targets()
    return answer(request, {"targets": [as_object(each) for each in standings]})
