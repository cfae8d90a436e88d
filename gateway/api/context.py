"""The context of the handlers of calls: the parts of the gateway, as composed by ``gateway/app``."""

import asyncio
from enum import Enum, auto
from typing import TYPE_CHECKING

from aiohttp import web

from gateway.access import Client, KeyAdmission, WrongKeyCounter
from gateway.api.call_context import CallContext
from gateway.api.payers import Payers
from gateway.api.refusals import Refusals
from gateway.api.stored_responses import StoredResponses
from gateway.api.vectors import VectorComparisons
from gateway.core.errors import ApiError, ClientDisconnected, ShuttingDown
from gateway.fleet import Fleet
from gateway.http import BodyWork
from gateway.limits import Limits
from gateway.memory import AnswerMemory
from gateway.overload import Bodies, Body, Intake, OpenSockets, process_full
from gateway.racing import Services
from gateway.settings import Settings
from gateway.steering import Steering
from gateway.tracing import Tracing
from providers import check_room

if TYPE_CHECKING:
    from collections.abc import Callable

# The phases of a gateway's shutdown.


class GatewayPhase(Enum):
    """The gateway's state for requests: it moves only forward."""

    SERVING = auto()
    LAME_DUCK = auto()  # not ready; calls are still answered, each with `connection: close`
    DRAINING = auto()  # no new connections; running calls may finish
    CUTTING = auto()  # the grace time is over: running calls are cut, and no new ones begin


class LedgerUnavailable(ApiError):
    """Neither the database nor the disk can keep the call's row, and the settings allow no call without a row."""

    # Means: Neither the database nor the disk takes rows, and `ledger.required` is set: no call without its row.
    # Retry: after `retry-after`.
    # Caller: Wait, or ask another replica.
    # Operator: Make the database reachable, or free space in `spool_dir`; `/health/ready` says which.
    status = 503
    type = "service_unavailable"
    code = "ledger_unavailable"


_RETRY_S = "5"  # the disk is tried again each second


class Context(CallContext):
    """The context of HTTP handlers. A reload replaces ``settings``, ``fleet`` and the keys together."""

    def __init__(
        self,
        *,
        settings: Settings,
        fleet: Fleet,
        admission: KeyAdmission,
        steering: Steering,
        limits: Limits,
        services: Services,
        intake: Intake,
        bodies: Bodies,
        tracing: Tracing,
        responses: StoredResponses,
        memory: AnswerMemory,
        refusals: Refusals,
        vectors: VectorComparisons,
        replica: str,
    ) -> None:
        super().__init__(
            settings=settings,
            fleet=fleet,
            steering=steering,
            limits=limits,
            services=services,
            tracing=tracing,
            replica=replica,
        )
        self.payers = Payers(settings)
        self.admission = admission
        self.intake = intake
        self.bodies = bodies
        self.responses = responses
        self.memory = memory
        self.refusals = refusals
        self.vectors = vectors
        self.body_work = BodyWork(services.clock)
        self.wrong_keys = WrongKeyCounter()
        self.sockets = OpenSockets()
        self.phase = GatewayPhase.SERVING
        self.drains = asyncio.Event()  # set when the phase becomes DRAINING
        self.is_unrecorded: Callable[[], bool] = _recorded  # whether nothing would keep the row of a call

    def lend(self, client: str | None, size: int) -> Body:
        """Count ``size`` bytes beside the bodies.

        Raises:
            TooManyBodies, Overloaded: there is no room for the bytes

        """
        lent = self.bodies.whole(client, size)
        try:
            check_room(size)
        except MemoryError as error:
            lent.release()
            raise process_full() from error
        return lent

    def spends(self, client: Client) -> bool:
        """Return whether each call of ``client``, for any model, spends the operator's dollars."""
        return not self.fleet.has_free and (client.tenant is None or self.settings.tenant_keys.mixed)

    def cancelled_as(self, request: web.Request | None = None) -> type[ApiError]:
        """Return the error of a call cancelled now: the gateway stops, or the client is gone or was disconnected."""
        if self.phase is GatewayPhase.CUTTING:
            return ShuttingDown
        connection = None if request is None else request.protocol
        return getattr(connection, "cut_as", None) or ClientDisconnected

    def check_begins(self) -> None:
        """Check that a new call may still begin.

        Raises:
            ShuttingDown: the grace time is over; a new call would be cut at once.
            LedgerUnavailable: the call's row could be kept nowhere, and the settings demand a row

        """
        if self.phase is GatewayPhase.CUTTING:
            raise ShuttingDown("the gateway is stopping; retry")
        if self.settings.ledger.required and self.is_unrecorded():
            raise LedgerUnavailable(
                "neither the database nor the disk takes rows now, and ledger.required is set; retry",
                headers={"retry-after": _RETRY_S},
            )


def _recorded() -> bool:
    return False


CONTEXT = web.AppKey("holeshot", Context)
