"""What every call begins and ends with: its client is admitted, and it has a seat until its answer has ended."""

from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web

from gateway.ingress.admission import JSON, Client
from gateway.ingress.context import CONTEXT

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
# ``answer(request, client, waited_s)``: the call has waited that long for its seat.
ClientHandler = Callable[[web.Request, Client, float], Awaitable[web.StreamResponse]]
Admit = Callable[[web.Request], Client]


def seated(answer: ClientHandler, takes: Sequence[str] = (JSON,), admit: Admit | None = None) -> Handler:
    """Return the request handler of an API of calls. ``takes`` are the media types that the API accepts.

    ``admit`` returns the client that sends a request; by default the one whose key it has.

    The seat is taken before the body is read: a call that is refused shall cost little.
    """
    media_types = tuple(takes)

    async def handle(request: web.Request) -> web.StreamResponse:
        context = request.app[CONTEXT]
        context.check_begins()
        client = context.admission.admit(request, media_types) if admit is None else admit(request)
        if client.limits:
            context.limits.check(client.name, client.limits)
        intake, waited_s = context.intake, 0.0
        if not intake.enter():
            waited_s = await intake.wait(client.priority)
        try:
            return await answer(request, client, waited_s)
        finally:
            intake.leave()

    return handle
