"""GET /api/refusals: what the gateway refused whom, and who tries keys that nobody has."""

import msgspec
from aiohttp import web

from gateway.ingress.api.answers import answer
from gateway.ingress.api.asked import asked
from gateway.ingress.context import CONTEXT
from gateway.ingress.visitors import admit_visitor
from gateway.reports import Window


class RefusalsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of when."""

    window: Window = Window.DAY


async def refusals(request: web.Request) -> web.Response:
    """Return refusals by client and reason, and wrong keys by address; a minute is there when it is over."""
    admit_visitor(request)
    query = asked(request, RefusalsQuery)
    refused, guessed = await request.app[CONTEXT].reports.refusals(query.window)
    return answer(
        request,
        {"data": refused.rows, "wrong_keys": guessed.rows, "sql": refused.sql, "wrong_keys_sql": guessed.sql},
    )
