"""The leaderboard, and the plans of next calls explained."""

from typing import Any

import msgspec
from aiohttp import web

from gateway.errors import ModelNotFound
from gateway.fleet.model import Model
from gateway.ingress.api.answers import answer
from gateway.ingress.api.asked import asked
from gateway.ingress.api.configuration import priced
from gateway.ingress.context import CONTEXT, Context
from gateway.ingress.explaining import explained
from gateway.ingress.visitors import admit_visitor
from gateway.reports import Gaps


class BoardQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of which model; None: of all."""

    model: str | None = None


async def leaderboard(request: web.Request) -> web.Response:
    """Return the standings of every model, or of one, with prices and the gaps between chunks of the last day."""
    admit_visitor(request)
    context = request.app[CONTEXT]
    models = _wanted(context, asked(request, BoardQuery).model)
    gaps = await context.reports.gaps()
    return answer(request, {"models": [_board(context, model, gaps) for model in models]})


async def explain(request: web.Request) -> web.Response:
    """Return who would run for the next call of every model, or of ``?model=``, and why."""
    client = admit_visitor(request)
    context = request.app[CONTEXT]
    models = _wanted(context, request.query.get("model"))
    return answer(request, {"models": [explained(context, model, request.query, client) for model in models]})


def _board(context: Context, model: Model, gaps: Gaps) -> dict[str, Any]:
    board = context.steering.leaderboard(model.name)
    rows = []
    for row in board.deployments:
        deployment = model.deployments.get(row.deployment)
        p50_ms, p95_ms = gaps.get((model.name, row.deployment), (None, None))
        more = {
            "price": None if deployment is None else priced(deployment.price),
            "itl_p50_ms": p50_ms,
            "itl_p95_ms": p95_ms,
        }
        rows.append(msgspec.structs.asdict(row) | more)
    return msgspec.structs.asdict(board) | {"deployments": rows}


def _wanted(context: Context, name: str | None) -> list[Model]:
    """Return the models that are asked for.

    Raises:
        ModelNotFound: the one that is named is not configured.

    """
    models = context.fleet.models
    if name is None:
        return list(models.values())
    if name not in models:
        raise ModelNotFound(f"the model {name!r} is not configured; known models: {', '.join(models) or 'none'}")
    return [models[name]]
