"""The services and the client context of a call, over HTTP or in the caller's process. Independent of HTTP."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from gateway.access import Client
from gateway.api.agent_sessions import SESSION
from gateway.api.payers import END_USER, TEAM, EndUser
from gateway.core.calls import Caller, Envelope, Level
from gateway.core.ids import TraceContext
from gateway.fleet import Fleet
from gateway.http import tags_of_metadata
from gateway.limits import BegunHolds, Limits
from gateway.racing import CallResource, Services
from gateway.settings import Settings, signing_secret
from gateway.steering import Steering
from gateway.tracing import Tracing
from providers import aside, redact_word


class CallBody(CallResource, Protocol):
    """The body of a request, for its call."""

    def shrink(self, size: int) -> None:
        """Count only ``size`` bytes from now on, as the rest was released."""


_T = TypeVar("_T")


class MemoryLoan(Protocol):
    """Memory of the budget, borrowed for some time."""

    def release(self) -> None:
        """Return the lent memory."""


class WorkThread:
    """The thread for long work, for requests: each request borrows the memory for its work when its turn comes."""

    def __init__(self) -> None:
        self.runs = 0
        self._turn = asyncio.Lock()

    async def run(self, work: Callable[[], _T], lend: Callable[[], MemoryLoan | None] = lambda: None) -> _T:
        """Return the result of ``work``; memory is borrowed from the beginning of the turn to the end of the work.

        Raises:
            ApiError: ``lend`` has too little memory.

        """
        async with self._turn:
            lent = lend()
            self.runs += 1
            doing = aside(work)
            if lent is not None:
                doing.add_done_callback(lambda _: lent.release())
            return await asyncio.shield(doing)  # even after a cancellation the work runs to its end


class CallContext:
    """The services that every call uses, composed by ``gateway/app/engine.py``."""

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
        self.secret = signing_secret(settings).encode()

    def lend(self, client: str | None, size: int) -> MemoryLoan | None:
        """Count ``size`` bytes for work on a request of ``client``; None if nothing is counted.

        Raises:
            ApiError: there is no room.

        """
        del client, size
        return None


NO_LEVELS: Sequence[Level] = ()


_LISTS = frozenset({"anthropic-beta"})


class ClientContext(msgspec.Struct, frozen=True, kw_only=True):
    """The client of a call, and the request's data besides the body."""

    client: Client
    received: CallBody | None = None  # released when no longer needed
    envelope: Envelope = Envelope()
    tags: Mapping[str, str] = {}
    explain: bool = False  # whether the response explains the plan
    begun: BegunHolds | None = None  # what limits have counted already
    levels: Sequence[Level] = ()  # the accounts whose limits count the call, as far as known before the body is read
    session: str | None = None  # of an agent, from the headers
    end_user: EndUser | None = None  # finds the end user in the body; None: end users have no limits
    parent: TraceContext | None = None  # the client's trace; None: none, or calls are not traced
    received_at: float | None = None  # when the body was complete, monotonic seconds; None: now

    def with_headers(self, more: Mapping[str, str]) -> "ClientContext":
        """Return a copy with ``more`` headers; in a list (``anthropic-beta``) each word stands once."""
        headers = dict(self.envelope.headers)
        for name, value in more.items():
            if name in _LISTS:
                words = map(str.strip, f"{headers.get(name, '')},{value}".split(","))
                value = ", ".join(dict.fromkeys(filter(None, words)))  # noqa: PLW2901 - both values count
            headers[name] = value
        envelope = msgspec.structs.replace(self.envelope, headers=headers)
        return msgspec.structs.replace(self, envelope=envelope)

    def caller(self, context: CallContext, fields: Mapping[str, msgspec.Raw], session: str | None) -> Caller:
        """Return the caller of a call with these ``fields``; the call begins now.

        ``session``: of an agent, from the headers or the body.
        """
        services, tracing = context.services, context.tracing.own
        received_at = services.clock() if self.received_at is None else self.received_at
        call_id, levels, tags = services.new_id(), self.levels, self.tags
        if context.settings.tags_from_metadata and "metadata" in fields:
            names = [name for name in context.settings.tags_from_metadata if name not in (TEAM, END_USER)]
            tags = {**tags_of_metadata(fields["metadata"], names), **tags}
        if session is not None and SESSION not in tags:
            tags = {**tags, SESSION: redact_word(session)}
        if levels and self.client.team is not None:
            tags = {**tags, TEAM: self.client.team}
        if self.end_user is not None and (level := self.end_user.of(fields)) is not None:
            levels, tags = (*levels, level[1]), {**tags, END_USER: level[0]}
        trace = None if tracing is None else tracing.trace(call_id, self.parent)
        return Caller(  # without names, which cost more
            call_id,
            received_at,
            services.utc_now(),
            context.replica,
            context.settings.region,
            self.client.name,
            self.envelope,
            tags,
            levels,
            trace,
        )
