"""What every request handler uses: the parts of the gateway, as ``app.py`` composes them."""

from aiohttp import web

from gateway.errors import ApiError, ClientDisconnected, ShuttingDown
from gateway.fleet.fleet import Fleet
from gateway.ingress.admission import Admission
from gateway.ingress.bodies.work import BodyWork
from gateway.ingress.phase import Phase
from gateway.ingress.process_state import ProcessState
from gateway.ingress.refusals import Refusals
from gateway.ingress.stored_responses import StoredResponses
from gateway.ingress.wrong_keys import WrongKeys
from gateway.limits.limits import Begun, Limits
from gateway.live.live import Live
from gateway.overload.bodies import Bodies
from gateway.overload.intake import Intake
from gateway.racing.services import Services
from gateway.reports import Reports
from gateway.settings.model import Settings
from gateway.steering.steering import Steering
from gateway.tracing.tracing import Tracing


class Context:
    """The parts a request handler uses. A reload replaces ``settings``, ``fleet`` and the keys together."""

    def __init__(
        self,
        *,
        settings: Settings,
        fleet: Fleet,
        admission: Admission,
        steering: Steering,
        limits: Limits,
        services: Services,
        intake: Intake,
        bodies: Bodies,
        live: Live,
        tracing: Tracing,
        responses: StoredResponses,
        refusals: Refusals,
        reports: Reports,
        process: ProcessState,
    ) -> None:
        self.settings = settings
        self.fleet = fleet
        self.admission = admission
        self.steering = steering
        self.limits = limits
        self.services = services
        self.intake = intake
        self.bodies = bodies
        self.live = live
        self.tracing = tracing
        self.responses = responses
        self.refusals = refusals
        self.reports = reports
        self.process = process
        self.body_work = BodyWork()
        self.wrong_keys = WrongKeys()
        self.phase = Phase.SERVING

    def cancelled_as(self, request: web.Request | None = None) -> type[ApiError]:
        """Return the error for a call that is cancelled now: the gateway stops, or its client is gone or was cut."""
        if self.phase is Phase.CUTTING:
            return ShuttingDown
        connection = None if request is None else request.protocol
        return getattr(connection, "cut_as", None) or ClientDisconnected

    def check_begins(self) -> None:
        """Check that a new call may still begin.

        Raises:
            ShuttingDown: the grace time is over; a new call would be cut at once.

        """
        if self.phase is Phase.CUTTING:
            raise ShuttingDown("the gateway is stopping; retry")


CONTEXT = web.AppKey("holeshot", Context)
BEGUN: web.RequestKey[Begun] = web.RequestKey("holeshot.begun", Begun)  # of a client with limits
