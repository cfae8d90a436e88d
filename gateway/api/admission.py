"""The frame of every call: the client is admitted, the body is read, and the call has a seat until its end."""

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.access import Client
from gateway.api.agent_sessions import HEADERS, session_in
from gateway.api.bodies import ReceivedBody, address_of, read_body
from gateway.api.call_context import NO_LEVELS, ClientContext
from gateway.api.context import CONTEXT, Context
from gateway.core.calls import Envelope
from gateway.core.errors import Overloaded
from gateway.http import JSON, PLAN_HEADER, headers, read_tags
from gateway.limits import BegunHolds, LimitReached
from providers import redact_word

# An admitted request, and its context besides the body: the same for every API.


class AdmittedRequest(msgspec.Struct, frozen=True):
    """A request that may be answered now."""

    client: Client
    received: ReceivedBody
    waited_s: float = 0.0  # the wait for the seat
    begun: BegunHolds | None = None  # what limits have counted already; None: the client has no limits


def client_context_of(request: web.Request, context: Context, admitted: AdmittedRequest) -> ClientContext:
    """Return the context of a call. The wait for the seat counts as the gateway's own time.

    Raises:
        InvalidRequest: a header is invalid.

    """
    client, begun = admitted.client, admitted.begun
    request_id, tagged = headers.request_id(request.headers), request.headers.get("x-holeshot-tags")
    tags: Mapping[str, str] = read_tags(tagged) if tagged else {}
    levels, end_user = NO_LEVELS, None
    if client.limits or context.payers.is_used:
        # A reload since the admission may have added limits of end users.
        levels = (NO_LEVELS if begun is None else begun.levels) or context.payers.levels(client)
        end_user = context.payers.end_user(client, request.headers)
        tags = context.payers.tags(tags)
    session, sent_headers = None, request.headers
    for name in HEADERS:  # hardly any request has one of these, so without a call
        if name in sent_headers:
            session = session_in(sent_headers)
            break
    return ClientContext(
        client=client,
        received=admitted.received,
        envelope=Envelope(
            headers=headers.for_upstream(request.headers, request_id),
            request_id=None if request_id is None else redact_word(request_id),
        ),
        tags=tags,
        begun=begun,
        levels=levels,
        end_user=end_user,
        explain=PLAN_HEADER in request.headers and headers.is_wanted(request.headers),
        session=session,
        parent=None if context.tracing.own is None else headers.trace(request.headers),
        received_at=context.services.clock() - admitted.waited_s,
    )


ClientHandler = Callable[[web.Request, AdmittedRequest], Awaitable[web.StreamResponse]]
Admit = Callable[[web.Request], Client]
Receive = Callable[[Hashable], Awaitable[ReceivedBody]]
_UNREAD = ReceivedBody(b"", None)
_RUNS = frozenset({"max_parallel"})


def admitted_call(
    answer: ClientHandler,
    takes: Sequence[str] = (JSON,),
    admit: Admit | None = None,
    receive: Receive | None = None,
    before: BegunHolds | None = None,
    *,
    runs_model: bool = True,
) -> Handler:
    """Return the request handler of an API. ``takes``: the media types that the API accepts.

    ``admit``: returns the client of a request; by default the owner of the key. ``receive``: returns the body for its
    owner; by default the request's. ``before``: what limits have counted already, namely ``rpm``.

    A client's ``max_parallel`` and ``rpm`` are held before the body is read, as a body costs memory. The seat is taken
    when the body is complete, so a slow body keeps no seat from other calls.

    Without ``runs_model`` requests count in these limits, but need no seat, and their bodies are not read.
    """
    media_types = tuple(takes)

    async def handle(request: web.Request) -> web.StreamResponse:
        context = request.app[CONTEXT]
        context.check_begins()
        client = context.admission.admit(request, media_types) if admit is None else admit(request)
        intake, waited_s, owner = context.intake, 0.0, client.name or address_of(request, context)
        begun = before
        try:
            if client.limits or context.payers.is_used:
                begun = await _begun(context, client, before)
            if not runs_model:
                return await answer(request, AdmittedRequest(client, _UNREAD, begun=begun))
            receiving = read_body(request, context, owner, client.priority) if receive is None else receive(owner)
            received = await receiving
            try:
                if not intake.enter(owner):
                    received.queue(context.bodies, owner)
                    waited_s = await intake.wait(client.priority, owner)
                try:
                    return await answer(request, AdmittedRequest(client, received, waited_s, begun))
                finally:
                    intake.leave(owner)
            finally:
                received.release()
        except (LimitReached, Overloaded):  # not the client's fault
            if begun is not None:
                begun.end(counts=False)
            raise
        finally:
            if begun is not None:
                begun.end()

    return handle


async def _begun(context: Context, client: Client, before: BegunHolds | None) -> BegunHolds:
    """Count the part of a request that limits can count before the body is read.

    Raises:
        LimitReached: too little is left.

    """
    levels, limits = context.payers.levels(client), context.limits
    limits.check(levels, spends=context.spends(client), is_begun=before is not None)
    if before is None:
        return await limits.begin(levels)
    return await limits.begin(levels, _RUNS, before=before)
