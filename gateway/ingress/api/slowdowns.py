"""GET /api/slowdowns: when deployments were slower than usual, or failed more often."""

from typing import Literal

import msgspec
from aiohttp import web

from gateway.ingress.api.answers import answer
from gateway.ingress.api.asked import asked
from gateway.ingress.context import CONTEXT
from gateway.ingress.visitors import admit_visitor
from gateway.reports import SlowdownsWanted, Window


class SlowdownsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of when, and of whom."""

    window: Window = Window.MONTH
    model: str | None = None
    deployment: str | None = None
    metric: Literal["ttft", "tps", "itl", "errors"] | None = None


async def slowdowns(request: web.Request) -> web.Response:
    """Return slowdowns, the newest first."""
    admit_visitor(request)
    query = asked(request, SlowdownsQuery)
    table = await request.app[CONTEXT].reports.slowdowns(SlowdownsWanted(**msgspec.structs.asdict(query)))
    return answer(request, {"data": table.rows, "sql": table.sql})
