"""The services and the client context of a call, over HTTP or in the caller's own process. Independent of HTTP."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from gateway.api.client import Client
from gateway.api.json_body import tags_of_metadata
from gateway.api.payers import END_USER, TEAM, EndUser
from gateway.core.attempts import AnswerKind, Invalid, WinOn
from gateway.core.calls import Call, Kind, Level, Objective
from gateway.core.ids import TraceContext
from gateway.core.prompt_classes import PromptClass
from gateway.fleet.fleet import Fleet
from gateway.fleet.models import Model
from gateway.limits import Limits
from gateway.racing import Kept, Services
from gateway.settings import Settings
from gateway.steering import Steering
from gateway.tracing.tracing import Tracing
from providers import aside
from providers.dialects import PIVOT, Dialect


class Received(Kept, Protocol):
    """The body of a request, as its call uses it."""

    def shrink(self, size: int) -> None:
        """Count only ``size`` bytes from now on: the rest was released."""


_T = TypeVar("_T")


class Lent(Protocol):
    """Memory of the budget that is used for a while."""

    def release(self) -> None:
        """Return it."""


class WorkThread:
    """The thread for long work, for requests: each borrows the memory that it needs when its turn has come."""

    def __init__(self) -> None:
        self.runs = 0
        self._turn = asyncio.Lock()

    async def run(self, work: Callable[[], _T], lend: Callable[[], Lent | None] = lambda: None) -> _T:
        """Return the result of ``work``. The memory that it needs is lent when its turn comes, until it has ended.

        Raises:
            ApiError: ``lend`` has not enough.

        """
        async with self._turn:
            lent = lend()
            self.runs += 1
            doing = aside(work)
            if lent is not None:
                doing.add_done_callback(lambda _: lent.release())
            return await asyncio.shield(doing)  # cancelled or not, it runs to its end


class CallContext:
    """The parts that every call uses, as ``gateway/app/engine.py`` composes them."""

    def __init__(
        self,
        *,
        settings: Settings,
        fleet: Fleet,
        steering: Steering,
        limits: Limits,
        services: Services,
        tracing: Tracing,
        replica: str,
    ) -> None:
        self.settings = settings
        self.fleet = fleet
        self.steering = steering
        self.limits = limits
        self.services = services
        self.tracing = tracing
        self.replica = replica
        self.work_thread = WorkThread()

    def lend(self, client: str | None, size: int) -> Lent | None:
        """Count ``size`` bytes that work on a request of ``client`` takes; None where none is counted.

        Raises:
            ApiError: there is no room for them.

        """
        del client, size
        return None


NO_LEVELS: Sequence[Level] = ()


class ClientContext(msgspec.Struct, frozen=True, kw_only=True):
    """The client of a call, and the data of its request besides the body."""

    client: Client
    received: Received | None = None  # its body, released when it is not needed any more
    headers: Mapping[str, str] = {}  # to be sent upstream
    tags: Mapping[str, str] = {}
    request_id: str | None = None
    explain: bool = False  # whether the response explains the plan
    levels: Sequence[Level] = ()  # the accounts whose limits count the call, as far as known before its body is read
    end_user: EndUser | None = None  # finds the end user in the body; None: end users have no limits
    parent: TraceContext | None = None  # the client's trace; None: none, or calls are not traced
    received_at: float | None = None  # when the body was complete, monotonic seconds; None: now


def new_call(
    context: CallContext,
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
    is_restricted: bool = False,
    key_name: str | None = None,
    runs_on: bool = False,
    size_tokens: int | None = None,
) -> Call:
    """Build the call. ``instead_of`` is the same call as built for the model that could not answer."""
    services = context.services
    received_at = services.clock() if origin.received_at is None else origin.received_at
    call_id = services.new_id() if instead_of is None else instead_of.id
    tracing = context.tracing.own
    levels, tags = origin.levels, origin.tags
    if context.settings.tags_from_metadata and "metadata" in fields:
        names = [name for name in context.settings.tags_from_metadata if name not in (TEAM, END_USER)]
        tags = {**tags_of_metadata(fields["metadata"], names), **tags}
    if levels and origin.client.team is not None:
        tags = {**tags, TEAM: origin.client.team}
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
        size_tokens=size_tokens,
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
        is_restricted=is_restricted,
        key_name=key_name,
        runs_on=runs_on,
        levels=levels,
        trace=None if tracing is None else tracing.trace(call_id, origin.parent),
    )
