"""What every call begins and ends with: its client is admitted, its body is read, and it has a seat until its end."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from aiohttp import web

from gateway.errors import Overloaded
from gateway.ingress.admission import JSON, Client
from gateway.ingress.bodies.reading import Received, address_of, read_body
from gateway.ingress.context import BEGUN, CONTEXT
from gateway.limits.errors import LimitReached

if TYPE_CHECKING:
    from gateway.limits.limits import Begun

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
# ``answer(request, client, received, waited_s)``: the call has waited that long for its seat.
ClientHandler = Callable[[web.Request, Client, Received, float], Awaitable[web.StreamResponse]]
Admit = Callable[[web.Request], Client]


def seated(answer: ClientHandler, takes: Sequence[str] = (JSON,), admit: Admit | None = None) -> Handler:
    """Return the request handler of an API of calls. ``takes`` are the media types that the API accepts.

    ``admit`` returns the client that sends a request; by default the one whose key it has.

    A client's ``max_parallel`` and ``rpm`` are held before the body is read, as a body costs memory. The seat is taken
    when the body is complete: one that comes slowly takes no room from other calls.
    """
    media_types = tuple(takes)

    async def handle(request: web.Request) -> web.StreamResponse:
        context = request.app[CONTEXT]
        context.check_begins()
        client = context.admission.admit(request, media_types) if admit is None else admit(request)
        intake, waited_s, owner = context.intake, 0.0, client.name or address_of(request, context)
        begun: Begun | None = None
        if client.limits:
            context.limits.check(client.name, client.limits)
            begun = request[BEGUN] = await context.limits.begin(client.name, client.limits)
        try:
            received = await read_body(request, context, owner, client.priority)
            try:
                if not intake.enter(owner):
                    waited_s = await intake.wait(client.priority, owner)
                try:
                    return await answer(request, client, received, waited_s)
                finally:
                    intake.leave(owner)
            finally:
                received.release()
        except (LimitReached, Overloaded):  # not its own fault
            if begun is not None:
                begun.end(counts=False)
            raise
        finally:
            if begun is not None:
                begun.end()

    return handle
