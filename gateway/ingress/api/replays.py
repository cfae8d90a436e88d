"""GET /api/replay: what other settings would have done."""

import msgspec
from aiohttp import web

from gateway.errors import InvalidRequest
from gateway.ingress.api.answers import answer
from gateway.ingress.api.asked import asked
from gateway.ingress.context import CONTEXT
from gateway.ingress.visitors import admit_visitor
from gateway.reports import ReplayWanted, Window

BUDGETS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)  # all at once: the page has a slider for them
_MOST_BUDGET = 7.0
_MOST_BUDGETS = 12


class ReplayQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of when and of what."""

    window: Window = Window.WEEK
    model: str | None = None
    without: str | None = None
    budget: str | None = None


async def replay(request: web.Request) -> web.Response:
    """Return what other settings would have done with one model's calls."""
    admit_visitor(request)
    query = asked(request, ReplayQuery)
    without = () if query.without is None else tuple(sorted(set(query.without.split(","))))
    wanted = ReplayWanted(query.window, query.model, without, _budgets(query.budget))
    return answer(request, await request.app[CONTEXT].reports.replay(wanted))


def _budgets(written: str | None) -> tuple[float, ...]:
    if written is None:
        return BUDGETS
    try:
        found = tuple(sorted({float(each) for each in written.split(",")}))
    except ValueError:
        found = ()
    if not found or len(found) > _MOST_BUDGETS or not all(0 < each <= _MOST_BUDGET for each in found):
        raise InvalidRequest(
            f"budget: numbers above 0 and at most {_MOST_BUDGET:g}, with commas, {_MOST_BUDGETS} at most",
            param="budget",
        )
    return found
