"""One viewer: what it wants to see, and the events that wait for it."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from gateway.live.events import Began, Gap, frame

MOST_WAITING = 256  # events for one viewer; then the oldest is dropped
GATHER_S = 0.05  # events that come within this time go out in one write; nobody sees the difference


class Wanted(msgspec.Struct, frozen=True):
    """Which calls somebody wants to see; None: any. ``deployment``: those in whose races it runs."""

    model: str | None = None
    client: str | None = None
    deployment: str | None = None

    def admits(self, call: Began, deployments: Sequence[str]) -> bool:
        """Whether a call is among them whose attempts so far run at ``deployments``."""
        return (
            (self.model is None or self.model == call.model)
            and (self.client is None or self.client == call.client)
            and (self.deployment is None or self.deployment in deployments)
        )


class OwnWanted(Wanted, frozen=True):
    """The calls of one process: what it publishes to others."""

    worker: str = ""

    def admits(self, call: Began, deployments: Sequence[str]) -> bool:
        """Whether a call runs in this process."""
        del deployments
        return call.worker == self.worker


class Viewer:
    """Events that wait to be taken, at most ``most``: who takes them slowly has a gap, and holds nobody up."""

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
        self._enough = most * 3 // 4  # to be sent at once
        self._waiting: deque[bytes] = deque()
        self._dropped = 0
        self._due = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False
        self._on_end: Callable[[], None] = lambda: None
        self._push: Callable[[bytes], bool] = lambda _: False
        self._hello = b""

    def greet(self, hello: bytes) -> None:
        """Have the first event wait, which is never dropped."""
        self._hello = hello
        self._due.set()

    def offer(self, event: bytes) -> None:
        """Have an event wait; drop the oldest one if too many do."""
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
        """Return the events that wait, in one."""
        return b"".join(self.take_events())

    def take_events(self) -> list[bytes]:
        """Return the events that wait."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._is_over:
            self._due.clear()
        events = [self._hello, *self._waiting] if self._hello else list(self._waiting)
        self._hello = b""
        self._waiting.clear()
        if self._dropped:
            # Last, so that what it says of the running calls is true where it stands.
            events.append(frame(Gap(dropped=self._dropped, running=tuple(self._running(self)))))
            self._dropped = 0
        return events

    def push_to(self, push: Callable[[bytes], bool]) -> None:
        """Have ``push`` send events at once when many wait; it returns False if its client has not taken all before.

        A busy loop makes more events in one turn than may wait, and the viewer's task would run only in the next.
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
        """End the stream, after what waits."""
        self._is_over = True
        self._due.set()
        self._on_end()

    def on_end(self, act: Callable[[], None]) -> None:
        """Call ``act`` when the stream is ended here, not by its viewer."""
        self._on_end = act

    def forget(self) -> None:
        """Drop what waits: the viewer has gone."""
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.clear()
