"""What a handler tells of the process it runs in."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from gateway.alerts.alerts import Alerts


class ProcessState(msgspec.Struct, frozen=True, kw_only=True):
    """The process's replica, the state of its stores, its metrics (the page, and its content type), and its alerts.

    ``signing_key`` is the one beside a SQLite database, which signs sessions where no other is set.
    """

    replica: str
    signing_key: str
    readiness: Callable[[], dict[str, Any]]
    render_metrics: Callable[[], Awaitable[tuple[bytes, str]]]
    alerts: Alerts
