"""What every handler is given: the gateway's living parts, as ``app.py`` put them together."""

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from gateway.errors import ApiError, ClientDisconnected, ClientStalled, ShuttingDown
from gateway.fleet.fleet import Fleet
from gateway.ingress.admission import Admission
from gateway.ingress.bodies.work import BodyWork
from gateway.ingress.phase import Phase
from gateway.ingress.refusals import Refusals
from gateway.ingress.stored_responses import StoredResponses
from gateway.ingress.turnstile import Turnstile
from gateway.racing.services import Services
from gateway.settings.model import Settings
from gateway.steering.steering import Steering


class Context:
    """The parts a handler works with. A reload replaces ``settings``, ``fleet`` and ``admission`` together."""

    def __init__(
        self,
        *,
        settings: Settings,
        fleet: Fleet,
        admission: Admission,
        steering: Steering,
        services: Services,
        responses: StoredResponses,
        refusals: Refusals,
        replica: str,
        readiness: Callable[[], dict[str, Any]],
        render_metrics: Callable[[], Awaitable[tuple[bytes, str]]],
    ) -> None:
        self.settings = settings
        self.fleet = fleet
        self.admission = admission
        self.steering = steering
        self.services = services
        self.responses = responses
        self.refusals = refusals
        self.replica = replica
        self.readiness = readiness
        self.render_metrics = render_metrics
        self.body_work = BodyWork()
        self.turnstile = Turnstile()
        self.phase = Phase.SERVING

    def cancelled_as(self, request: web.Request | None = None) -> type[ApiError]:
        """Return why a call is cancelled now: the gateway is stopping, or its client has gone, or takes nothing."""
        if self.phase is Phase.CUTTING:
            return ShuttingDown
        connection = None if request is None else request.protocol
        return ClientStalled if getattr(connection, "stalled", False) else ClientDisconnected

    def check_begins(self) -> None:
        """Refuse a call that could only be cut.

        Raises:
            ShuttingDown: the gateway ends now.

        """
        if self.phase is Phase.CUTTING:
            raise ShuttingDown("the gateway is stopping; retry")


CONTEXT = web.AppKey("holeshot", Context)
