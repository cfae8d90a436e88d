"""GET /api/usage: what each client has used, and what is left of its limits."""

from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from gateway.ingress.admission import Client
from gateway.ingress.api.answers import answer
from gateway.ingress.api.asked import asked
from gateway.ingress.context import CONTEXT, Context
from gateway.ingress.visitors import admit_visitor
from gateway.limits.limits import Standing
from gateway.limits.windows import DOLLARS
from gateway.reports import Window

_NOTHING: Mapping[str, Any] = {
    "calls": 0, "failed": 0, "prompt_tokens": None, "completion_tokens": None, "cost_usd": None,
    "duplicate_cost_usd": None,
}  # fmt: skip


class UsageQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of when."""

    window: Window = Window.DAY


async def usage(request: web.Request) -> web.Response:
    """Return the clients that called, the dearest first, then those that did not."""
    admit_visitor(request)
    query = asked(request, UsageQuery)
    context = request.app[CONTEXT]
    table = await context.reports.usage(query.window)
    clients = _clients(context)
    spent = await context.reports.spent() if any(DOLLARS & each.limits.keys() for each in clients.values()) else {}
    rows = {row["client"]: row for row in table.rows}
    rows |= {name: {"client": name, **_NOTHING} for name in clients if name not in rows}
    data = [{**row, "limits": _limits(context, clients.get(name), spent)} for name, row in rows.items()]
    return answer(request, {"data": data, "sql": table.sql})


def _clients(context: Context) -> dict[str | None, Client]:
    """Return every client that has a key; without keys, the programs on this machine."""
    admission = context.admission
    if not admission.keys.table.is_required:
        return {None: admission.local}
    known = (each.client for each in admission.keys.table.known.values())
    return {client.name: client for client in known if client is not None}


def _limits(context: Context, client: Client | None, spent: Mapping[str | None, tuple[float, float]]) -> list[Standing]:
    if client is None:
        return []
    return [
        msgspec.structs.replace(each, used=max(each.used or 0.0, _spent(each.limit, spent.get(client.name))))
        if each.limit in DOLLARS
        else each
        for each in context.limits.standings(client.name, client.limits)
    ]


def _spent(limit: str, spent: tuple[float, float] | None) -> float:
    """Return what the ledger has, of all processes: a process that just began, or has no calls, knows less."""
    day_usd, month_usd = spent or (0.0, 0.0)
    return day_usd if limit == "usd_per_day" else month_usd
