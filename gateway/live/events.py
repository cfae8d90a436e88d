"""The events of a live stream, and their bytes: the same on a page's connection and between gateways.

Instants are Unix milliseconds; other times are milliseconds since a call was received or an attempt was launched.
Unknown values are None, never zero. The bounds validate events of other processes; our own are always within them.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
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


class CallDone(Struct, frozen=True, kw_only=True, gc=False):
    """A call has ended. Its result is unknown if ``status`` is None."""

    kind: ClassVar[str] = "done"
    id: Id
    status: Number | None = None
    winner: Id | None = None
    ttft_ms: Ms | None = None
    total_ms: Ms | None = None
    completion_tokens: Number | None = None
    cost_usd: Usd | None = None
    error: Name | None = None
    narrowed: Name | None = None  # why it had fewer attempts than asked for


class RunningAttempt(Launched, frozen=True, kw_only=True, gc=False):
    """An attempt of a running call, as far as it has come."""

    ttft_ms: Ms | None = None
    tokens: Number | None = None
    outcome: Name | None = None  # None: it runs
    ms: Ms | None = None
    error: Name | None = None


class RunningCall(Began, frozen=True, kw_only=True, gc=False):
    """A call that runs when a viewer connects: in ``hello``, and an event of its own between gateways."""

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


Event = Began | RunningCall | Launched | First | Tokens | Ended | CallDone | Hello | Gap | Scope
_encode = msgspec.json.Encoder().encode
_HEADS = {
    kind: b"event: %b\ndata: " % kind.kind.encode()
    for kind in (Began, RunningCall, Launched, First, Tokens, Ended, CallDone, Hello, Gap, Scope)
}


def frame(event: Event) -> bytes:
    """Return an event as it is sent: a server-sent event."""
    return _HEADS[type(event)] + _encode(event) + b"\n\n"


# One viewer: its filter, and the events that wait for it.

MOST_WAITING = 256  # events for one viewer; then the oldest is dropped
GATHER_S = 0.05  # events within this time go out in one write; the difference is not visible


class Wanted(msgspec.Struct, frozen=True):
    """A viewer's filter. None matches every call; ``deployment`` matches calls with an attempt there."""

    model: str | None = None
    client: str | None = None
    deployment: str | None = None

    def admits(self, call: Began, deployments: Sequence[str]) -> bool:
        """Whether the filter matches a call whose attempts so far run at ``deployments``."""
        return (
            (self.model is None or self.model == call.model)
            and (self.client is None or self.client == call.client)
            and (self.deployment is None or self.deployment in deployments)
        )


class ProcessFilter(Wanted, frozen=True):
    """The filter for the calls of one process, which it publishes to others."""

    worker: str = ""

    def admits(self, call: Began, deployments: Sequence[str]) -> bool:
        """Whether a call runs in this process."""
        del deployments
        return call.worker == self.worker


class Viewer:
    """A queue of at most ``most`` events for one viewer: a slow one gets a gap, and delays no other."""

    __slots__ = (
        "_dropped",
        "_due",
        "_enough",
        "_hello",
        "_is_over",
        "_loop",
        "_most",
        "_on_end",
        "_push",
        "_running",
        "_timer",
        "_waiting",
        "wanted",
    )

    def __init__(
        self,
        wanted: Wanted,
        running: Callable[["Viewer"], Sequence[str]],
        *,
        loop: asyncio.AbstractEventLoop,
        most: int = MOST_WAITING,
    ) -> None:
        """``running`` returns the ids of the running calls that this viewer sees."""
        self.wanted = wanted
        self._running = running
        self._loop = loop
        self._most = most
        self._enough = most * 3 // 4  # with so many, they are sent at once
        self._waiting: deque[bytes] = deque()
        self._dropped = 0
        self._due = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False
        self._on_end: Callable[[], None] = lambda: None
        self._push: Callable[[bytes], bool] = lambda _: False
        self._hello = b""

    def greet(self, hello: bytes) -> None:
        """Queue the first event, which is never dropped."""
        self._hello = hello
        self._due.set()

    def offer(self, event: bytes) -> None:
        """Queue an event; drop the oldest one if too many wait."""
        waiting = self._waiting
        if len(waiting) == self._most:
            waiting.popleft()
            self._dropped += 1
        waiting.append(event)
        if len(waiting) == 1:
            self._timer = self._loop.call_later(GATHER_S, self._due.set)
        elif len(waiting) == self._enough:
            self._hurry()

    async def take(self, within_s: float) -> bytes | None:
        """Wait for events and return them, or nothing if none came in time; None at the end of the stream."""
        try:
            async with asyncio.timeout(within_s):
                await self._due.wait()
        except TimeoutError:
            return b""
        if self._is_over and not self._waiting and not self._hello:
            return None
        return self.take_now()

    def take_now(self) -> bytes:
        """Return the waiting events, joined."""
        return b"".join(self.take_events())

    def take_events(self) -> list[bytes]:
        """Return the waiting events."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._is_over:
            self._due.clear()
        events = [self._hello, *self._waiting] if self._hello else list(self._waiting)
        self._hello = b""
        self._waiting.clear()
        if self._dropped:
            # Last, so that its list of running calls is right at this point of the stream.
            events.append(frame(Gap(dropped=self._dropped, running=tuple(self._running(self)))))
            self._dropped = 0
        return events

    def push_to(self, push: Callable[[bytes], bool]) -> None:
        """Have ``push`` send events at once when many wait; it returns False while its client has not read all before.

        A busy loop makes more events in one turn than the queue holds, and the viewer's task runs only in the next.
        """
        self._push = push

    def _hurry(self) -> None:
        if not self._hello and not self._dropped and self._push(b"".join(self._waiting)):
            self._waiting.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        else:
            self._due.set()

    def end(self) -> None:
        """End the stream after the waiting events."""
        self._is_over = True
        self._due.set()
        self._on_end()

    def on_end(self, act: Callable[[], None]) -> None:
        """Call ``act`` when the stream is ended by the gateway, not by its viewer."""
        self._on_end = act

    def forget(self) -> None:
        """Drop the waiting events: the viewer has gone."""
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.clear()
