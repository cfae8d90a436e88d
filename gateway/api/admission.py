"""Builds the ``Call`` of a request, first for its model, then for fallbacks: one place for every API."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from gateway.api import headers
from gateway.api.auth import JSON, Client
from gateway.api.bodies import Received, address_of, read_body
from gateway.api.context import BEGUN, CONTEXT, Context
from gateway.api.headers import is_wanted
from gateway.api.json_body import read_tags
from gateway.api.payers import END_USER, EndUser
from gateway.core.attempts import AnswerKind, Invalid, WinOn
from gateway.core.calls import Call, Kind, Level, Objective
from gateway.core.errors import Overloaded
from gateway.core.ids import TraceContext
from gateway.core.prompt_classes import PromptClass
from gateway.fleet.models import Model
from gateway.limits import LimitReached
from providers import redact_word
from providers.dialects import PIVOT, Dialect

if TYPE_CHECKING:
    from gateway.limits import Begun


NO_LEVELS: Sequence[Level] = ()


class ClientContext(msgspec.Struct, frozen=True, kw_only=True):
    """The client, and what came with the request besides its body."""

    client: Client
    received: Received | None = None  # its body, to be released when it is not needed any more
    headers: Mapping[str, str] = {}  # to be sent upstream
    tags: Mapping[str, str] = {}
    request_id: str | None = None
    explain: bool = False  # whether the response shall explain the plan
    levels: Sequence[Level] = ()  # whose limits count the call, as far as they are known before its body
    end_user: EndUser | None = None  # how it is found in the body; None: end users have no limits
    parent: TraceContext | None = None  # the client's trace; None: none, or calls are not traced
    received_at: float | None = None  # when the body was complete, monotonic seconds; None: now


def new_call(
    context: Context,
    origin: ClientContext,
    model: Model,
    instead_of: Call | None,
    *,
    asked_model: str,
    endpoint: str,
    streamed: bool,
    prompt_class: PromptClass,
    prompt_tokens: int,
    inline_bytes: int | None,
    fields: Mapping[str, msgspec.Raw],
    dialect: Dialect = PIVOT,
    objective: Objective = Objective.FIRST_TOKEN,
    win_on: WinOn = WinOn.ANY,
    sentence_words: int = 0,
    invalid: Invalid = Invalid.ERROR,
    wants_usage: bool = False,
    stateful: bool = False,
    kind: Kind | None = None,
    answer_kind: AnswerKind = AnswerKind.PLAIN,
    deadline_ms: float | None = None,
    wordings: Mapping[str, Mapping[str, msgspec.Raw]] = {},
    dropped: Mapping[str, tuple[str, ...]] = {},
    is_narrowed: bool = False,
) -> Call:
    """Build the call. ``instead_of`` is the same call as built for the model that could not answer."""
    services = context.services
    received_at = services.clock() if origin.received_at is None else origin.received_at
    call_id = services.new_id() if instead_of is None else instead_of.id
    tracing = context.tracing.own
    levels, tags = origin.levels, origin.tags
    if origin.end_user is not None and (found := origin.end_user.of(fields)) is not None:
        levels, tags = (*levels, found[1]), {**tags, END_USER: found[0]}
    return Call(
        id=call_id,
        received_at=received_at if instead_of is None else instead_of.received_at,
        started_at=services.utc_now() if instead_of is None else instead_of.started_at,
        client=origin.client.name,
        model=model.name,
        asked_model=None if model.name == asked_model else asked_model,
        endpoint=endpoint,
        dialect=dialect,
        streamed=streamed,
        mode=model.race.mode,
        objective=objective,
        win_on=win_on,
        sentence_words=sentence_words,
        invalid=invalid,
        prompt_class=prompt_class,
        prompt_tokens=prompt_tokens,
        inline_bytes=inline_bytes,
        wants_usage=wants_usage,
        fields=fields,
        wordings=wordings,
        dropped=dropped,
        headers=origin.headers,
        tags=tags,
        replica=context.replica,
        region=context.settings.region,
        request_id=origin.request_id,
        stateful=stateful,
        kind=kind,
        answer_kind=answer_kind,
        deadline_ms=deadline_ms,
        profile=model.race.profile if instead_of is None else instead_of.profile,
        is_narrowed=is_narrowed,
        levels=levels,
        trace=None if tracing is None else tracing.trace(call_id, origin.parent),
    )


# What is known of the request of an admitted client besides its body, the same for every API.


def client_context(
    request: web.Request, context: Context, client: Client, received: Received, waited_s: float
) -> ClientContext:
    """Return the origin of a call. The seconds that it has waited for its seat count as the gateway's own.

    Raises:
        InvalidRequest: a header is invalid.

    """
    request_id = headers.request_id(request.headers)
    tags, levels, end_user = read_tags(request.headers.get("x-holeshot-tags")), NO_LEVELS, None
    if client.limits or context.payers.is_used:
        # A reload since then may have brought limits of end users.
        levels = (request[BEGUN].levels if BEGUN in request else NO_LEVELS) or context.payers.levels(client)
        end_user = context.payers.end_user(client, levels, request.headers)
        tags = context.payers.tags(client, tags)
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


# What every call begins and ends with: its client is admitted, its body is read, and it has a seat until its end.

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
        if client.limits or context.payers.is_used:
            levels = context.payers.levels(client)
            context.limits.check(levels)
            begun = request[BEGUN] = await context.limits.begin(levels)
        try:
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
