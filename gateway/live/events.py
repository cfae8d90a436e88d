"""The events of a live stream, and their bytes: the same on a page's connection and between gateways.

Instants are Unix milliseconds; other times are milliseconds since a call was received or an attempt was launched. What
is unknown is None, never zero. The bounds hold what other processes send to the same shape; ours are always within.
"""

from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta, Struct

Id = Annotated[str, Meta(min_length=1, max_length=64)]
Name = Annotated[str, Meta(max_length=512)]
UnixMs = Annotated[int, Meta(ge=0, le=10**14)]
Ms = Annotated[float, Meta(ge=0.0, le=1e10)]
Number = Annotated[int, Meta(ge=0, le=10**10)]
Usd = Annotated[float, Meta(ge=0.0, le=1e9)]

INSTALLATION, PROCESS = "installation", "process"  # whose races a stream has


class Began(Struct, frozen=True, kw_only=True, gc=False):
    """A call has begun."""

    kind: ClassVar[str] = "call"
    id: Id
    at_ms: UnixMs
    client: Name | None
    model: Name  # as the client asked for it
    endpoint: Name
    streamed: bool
    mode: Name
    objective: Name
    replica: Name
    worker: Name


class Launched(Struct, frozen=True, kw_only=True, gc=False):
    """An attempt was launched."""

    kind: ClassVar[str] = "launch"
    call: Id
    attempt: Id
    number: Number
    deployment: Name
    provider: Name
    role: Name
    at_ms: UnixMs
    offset_ms: Ms


class First(Struct, frozen=True, kw_only=True, gc=False):
    """An attempt has its first token, by the call's ``win_on``."""

    kind: ClassVar[str] = "first"
    call: Id
    attempt: Id
    ttft_ms: Ms


class Tokens(Struct, frozen=True, kw_only=True, gc=False):
    """How many tokens attempts have, as far as that has changed; estimated until the provider reports it."""

    kind: ClassVar[str] = "tokens"
    v: tuple[tuple[Id, Number], ...]


class Ended(Struct, frozen=True, kw_only=True, gc=False):
    """An attempt has ended."""

    kind: ClassVar[str] = "end"
    call: Id
    attempt: Id
    outcome: Name
    ms: Ms | None
    tokens: Number | None
    error: Name | None


class Done(Struct, frozen=True, kw_only=True, gc=False):
    """A call has ended; with ``status`` None it has not been heard of how."""

    kind: ClassVar[str] = "done"
    id: Id
    status: Number | None = None
    winner: Id | None = None
    ttft_ms: Ms | None = None
    total_ms: Ms | None = None
    completion_tokens: Number | None = None
    cost_usd: Usd | None = None
    error: Name | None = None


class RunningAttempt(Launched, frozen=True, kw_only=True, gc=False):
    """An attempt of a running call, as far as it has come."""

    ttft_ms: Ms | None = None
    tokens: Number | None = None
    outcome: Name | None = None  # None: it runs
    ms: Ms | None = None
    error: Name | None = None


class RunningCall(Began, frozen=True, kw_only=True, gc=False):
    """A call that runs when somebody begins to look: in ``hello``, and an event of its own between gateways."""

    kind: ClassVar[str] = "running"

    attempts: tuple[RunningAttempt, ...]


class Hello(Struct, frozen=True, kw_only=True, gc=False):
    """The first event of a stream. ``left_out``: running calls beyond those in ``running``, the newest."""

    kind: ClassVar[str] = "hello"
    scope: Name
    replica: Name
    worker: Name
    now_ms: UnixMs
    running: tuple[RunningCall, ...]
    left_out: Number = 0


class Gap(Struct, frozen=True, kw_only=True, gc=False):
    """Events were dropped, as the viewer takes them too slowly. All calls but those in ``running`` have ended."""

    kind: ClassVar[str] = "gap"
    dropped: Number
    running: tuple[Id, ...] = ()


class Scope(Struct, frozen=True, kw_only=True, gc=False):
    """From now on the stream has the races of this scope."""

    kind: ClassVar[str] = "scope"
    scope: Name
    reason: Name | None = None


Event = Began | RunningCall | Launched | First | Tokens | Ended | Done | Hello | Gap | Scope
_encode = msgspec.json.Encoder().encode
_HEADS = {
    kind: b"event: %b\ndata: " % kind.kind.encode()
    for kind in (Began, RunningCall, Launched, First, Tokens, Ended, Done, Hello, Gap, Scope)
}


def frame(event: Event) -> bytes:
    """Return an event as it is sent: a server-sent event."""
    return _HEADS[type(event)] + _encode(event) + b"\n\n"
