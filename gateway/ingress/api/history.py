"""GET /api/history and /api/heat: how fast and how reliable deployments were, over time and over the week."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, Literal

import msgspec
from aiohttp import web

from gateway.ingress.api.answers import answer
from gateway.ingress.api.asked import asked
from gateway.ingress.context import CONTEXT
from gateway.ingress.visitors import admit_visitor
from gateway.reports import HeatMetric, HeatWanted, HistoryWanted, Window

MAY_LAST = timedelta(days=1)  # after that an outage without an end is one whose end nobody saw


class HistoryQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose history."""

    window: Window = Window.DAY
    model: str | None = None
    deployment: str | None = None
    client: str | None = None


class HeatQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which figure, and of whom."""

    metric: HeatMetric = HeatMetric.TTFT_P50
    window: Literal["7d", "30d"] = "7d"
    model: str | None = None
    deployment: str | None = None


async def history(request: web.Request) -> web.Response:
    """Return the series of deployments."""
    admit_visitor(request)
    query = asked(request, HistoryQuery)
    found = await request.app[CONTEXT].reports.history(HistoryWanted(**msgspec.structs.asdict(query)))
    return answer(
        request,
        {
            "window": query.window,
            "from": found.since,
            "to": found.until,
            "step_s": found.step_s,
            "series": found.series,
            "outages": [_outage(row, found.until) for row in found.outages],
            "sql": found.sql,
            "outages_sql": found.outages_sql,
        },
    )


async def heat(request: web.Request) -> web.Response:
    """Return a figure by hour of the day and weekday."""
    admit_visitor(request)
    query = asked(request, HeatQuery)
    wanted = HeatWanted(
        metric=query.metric, window=Window(query.window), model=query.model, deployment=query.deployment
    )
    table = await request.app[CONTEXT].reports.heat(wanted)
    return answer(request, {"metric": query.metric, "rows": list(_by_deployment(table.rows)), "sql": table.sql})


def _outage(row: dict[str, Any], now: datetime) -> dict[str, Any]:
    """Return an outage; ``to`` is null while it lasts, and when nobody could see its end."""
    known = {name: row[name] for name in ("deployment", "reason", "replica")}
    began_at, ended_at = row["began_at"], row["ended_at"]
    may_last = ended_at is None and now - began_at < MAY_LAST
    return {**known, "from": began_at, "to": ended_at, "may_last": may_last}


def _by_deployment(cells: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a row of cells for each deployment of a model; ``cells`` are in this order."""
    for (deployment, model), some in groupby(cells, key=lambda cell: (cell["deployment"], cell["model"])):
        here = [{name: cell[name] for name in ("weekday", "hour", "value", "n")} for cell in some]
        yield {"deployment": deployment, "model": model, "cells": here}
