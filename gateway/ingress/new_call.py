"""Builds the ``Call`` of a request, first for its model, then for fallbacks: one place for every API."""

from collections.abc import Mapping

import msgspec

from gateway.attempt_records import AnswerKind, Invalid, WinOn
from gateway.calls import Call, Kind, Objective
from gateway.fleet.model import Model
from gateway.ingress.admission import Client
from gateway.ingress.bodies.reading import Received
from gateway.ingress.context import Context
from gateway.prompt_classes import PromptClass
from gateway.trace_context import TraceContext
from providers.dialects.dialect import Dialect
from providers.dialects.index import PIVOT


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The client, and what came with the request besides its body."""

    client: Client
    received: Received | None = None  # its body, to be released when it is not needed any more
    headers: Mapping[str, str] = {}  # to be sent upstream
    tags: Mapping[str, str] = {}
    request_id: str | None = None
    explain: bool = False  # whether the response shall explain the plan
    parent: TraceContext | None = None  # the client's trace; None: none, or calls are not traced
    received_at: float | None = None  # when the body was complete, monotonic seconds; None: now


def new_call(
    context: Context,
    origin: Origin,
    model: Model,
    instead_of: Call | None,
    *,
    asked_model: str,
    endpoint: str,
    streamed: bool,
    prompt_class: PromptClass,
    prompt_tokens: int,
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
        wants_usage=wants_usage,
        fields=fields,
        wordings=wordings,
        dropped=dropped,
        headers=origin.headers,
        tags=origin.tags,
        replica=context.process.replica,
        region=context.settings.region,
        request_id=origin.request_id,
        stateful=stateful,
        kind=kind,
        answer_kind=answer_kind,
        deadline_ms=deadline_ms,
        profile=model.race.profile if instead_of is None else instead_of.profile,
        is_narrowed=is_narrowed,
        limits=origin.client.limits,
        trace=None if tracing is None else tracing.trace(call_id, origin.parent),
    )
