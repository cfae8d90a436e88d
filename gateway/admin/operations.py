"""The services that only operators' handlers use, beside the ``Context`` of calls: reports, live view, process."""

from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from gateway.admin.answers import Stores
from gateway.admin.sign_in import SignIn
from gateway.alerts.alerts import Alerts
from gateway.core.reports import Reports
from gateway.live.live import Live


class Operations(msgspec.Struct, frozen=True, kw_only=True):
    """The reports, the live view and the alerts of a process, the state of its stores, and its metrics.

    ``render_metrics`` returns the page and its content type. ``signing_key`` is the one beside a SQLite database, which
    signs sessions if no other is set. ``sign_in`` is used where ``page.sign_in`` is set.
    """

    reports: Reports
    live: Live
    alerts: Alerts
    readiness: Callable[[], Stores]
    render_metrics: Callable[[], Awaitable[tuple[bytes, str]]]
    signing_key: str
    sign_in: SignIn


OPERATIONS = web.AppKey("holeshot.operations", Operations)
