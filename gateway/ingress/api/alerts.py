"""GET /api/alerts: what is wrong now, and what was."""

from typing import Any

import msgspec
from aiohttp import web

from gateway.alerts.alert import Alert
from gateway.ingress.api.answers import answer
from gateway.ingress.api.asked import asked
from gateway.ingress.context import CONTEXT
from gateway.ingress.visitors import admit_visitor
from gateway.reports import ReportsUnreachable, ReportTooSlow


class AlertsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing can be chosen."""


async def alerts(request: web.Request) -> web.Response:
    """Return the open alerts as this process knows them, also while the database is away, and those in its rows."""
    admit_visitor(request)
    asked(request, AlertsQuery)
    context = request.app[CONTEXT]
    lasting = await context.process.alerts.open_alerts()
    settings = context.settings.alerts
    found: dict[str, Any] = {
        "enabled": settings.enabled,
        "webhooks": sorted(settings.webhooks),
        "open": [_shown(each) for each in lasting],
        "data": None,
        "sql": None,
    }
    try:
        table = await context.reports.alerts()
    except (ReportsUnreachable, ReportTooSlow):  # logged; the open ones are the more important now
        pass
    else:
        found |= {"data": table.rows, "sql": table.sql}
    return answer(request, found)


def _shown(alert: Alert) -> dict[str, Any]:
    return {"id": alert.id, "key": alert.key, **{name: getattr(alert, name) for name in _SHOWN}}


_SHOWN = (
    "kind", "subject", "severity", "summary", "figures", "sql",
    "opened_at", "seen_at", "resolved_at", "replica", "scope",
)  # fmt: skip
