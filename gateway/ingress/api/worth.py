"""GET /api/race-value: what racing saved, and what it cost."""

import msgspec
from aiohttp import web

from gateway.ingress.api.answers import answer
from gateway.ingress.api.asked import asked
from gateway.ingress.context import CONTEXT
from gateway.ingress.visitors import admit_visitor
from gateway.reports import By, Window


class WorthQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of when, and by what."""

    window: Window = Window.DAY
    by: By = By.MODEL


async def race_value(request: web.Request) -> web.Response:
    """Return the columns of the view ``race_value``, by model or by client."""
    admit_visitor(request)
    query = asked(request, WorthQuery)
    table = await request.app[CONTEXT].reports.race_value(query.window, query.by)
    return answer(request, {"data": table.rows, "sql": table.sql})
