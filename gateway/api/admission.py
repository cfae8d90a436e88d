"""The frame of every call: its client is admitted, its body is read, and it has a seat until its end."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.api import headers
from gateway.api.auth import JSON
from gateway.api.bodies import ReceivedBody, address_of, read_body
from gateway.api.call_context import NO_LEVELS, ClientContext
from gateway.api.client import Client
from gateway.api.context import BEGUN, CONTEXT, Context
from gateway.api.headers import is_wanted
from gateway.api.json_body import read_tags
from gateway.core.errors import Overloaded
from gateway.limits import LimitReached
from providers import redact_word

if TYPE_CHECKING:
    from gateway.limits import Begun


# The context of an admitted request besides its body, the same for every API.


def client_context_of(
    request: web.Request, context: Context, client: Client, received: ReceivedBody, waited_s: float
) -> ClientContext:
    """Return the context of a call. The ``waited_s`` for its seat count as the gateway's own time.

    Raises:
        InvalidRequest: a header is invalid.

    """
    request_id = headers.request_id(request.headers)
    tags: Mapping[str, str] = read_tags(request.headers.get("x-holeshot-tags"))
    levels, end_user = NO_LEVELS, None
    if client.limits or context.payers.is_used:
        # A reload since the admission may have added limits of end users.
        begun = request.get(BEGUN)
        levels = (NO_LEVELS if begun is None else begun.levels) or context.payers.levels(client)
        end_user = context.payers.end_user(client, request.headers)
        tags = context.payers.tags(tags)
    return ClientContext(
        client=client,
        received=received,
        headers=headers.for_upstream(request.headers, request_id),
        tags=tags,
        levels=levels,
        end_user=end_user,
        request_id=None if request_id is None else redact_word(request_id),
        explain=is_wanted(request.headers),
        parent=None if context.tracing.own is None else headers.trace(request.headers),
        received_at=context.services.clock() - waited_s,
    )


# ``answer(request, client, received, waited_s)``: the last is the wait for a seat in seconds.
ClientHandler = Callable[[web.Request, Client, ReceivedBody, float], Awaitable[web.StreamResponse]]
Admit = Callable[[web.Request], Client]
_UNREAD = ReceivedBody(b"", None)


def admitted_call(
    answer: ClientHandler, takes: Sequence[str] = (JSON,), admit: Admit | None = None, *, runs_model: bool = True
) -> Handler:
    """Return the request handler of an API of calls. ``takes`` are the media types that the API accepts.

    ``admit`` returns the client that sends a request; by default the owner of its key.

    A client's ``max_parallel`` and ``rpm`` are held before the body is read, as a body costs memory. The seat is taken
    when the body is complete, so a slow body keeps no seat from other calls.

    Without ``runs_model`` its requests count in these limits, but need no seat, and their bodies are not read.
    """
    media_types = tuple(takes)

    async def handle(request: web.Request) -> web.StreamResponse:
        context = request.app[CONTEXT]
        context.check_begins()
        client = context.admission.admit(request, media_types) if admit is None else admit(request)
        intake, waited_s, owner = context.intake, 0.0, client.name or address_of(request, context)
        begun: Begun | None = None
        if client.limits or context.payers.is_used:
            levels = context.payers.levels(client)
            context.limits.check(levels, spends=context.spends(client))
            begun = await context.limits.begin(levels)
        request[BEGUN] = begun  # also None: a key that a request lacks is looked up by an exception
        try:
            if not runs_model:
                return await answer(request, client, _UNREAD, waited_s)
            received = await read_body(request, context, owner, client.priority)
            try:
                if not intake.enter(owner):
                    received.queue(context.bodies, owner)
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
