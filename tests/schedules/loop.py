"""An event loop in virtual time that runs ready callbacks in an order of its own choosing.

Time passes only when nothing is ready: the clock then jumps to the next timer. What is ready is run one callback at a
time, the oldest first or any of them, as the dice say; asyncio promises the first, tasks that wake each other rely on
neither. The same dice give the same run again.
"""

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from contextlib import suppress
from random import Random
from typing import Any, Protocol, cast

MOST_STEPS = 600_000  # of one run: some hundred times as many as one takes
WORK_S = 0.002  # longest work of a thread


class StuckError(AssertionError):
    """Everything waits, and no timer is left to end it; or nothing ever waits."""


class Opens(Protocol):
    """What stands for an accepted socket: it becomes a transport."""

    def open(self, protocol: asyncio.BaseProtocol, loop: "ShuffledLoop") -> asyncio.Transport:
        """Connect ``protocol``, and return its transport."""

    def close(self) -> None:
        """Drop it before it was opened."""


class ShuffledLoop(asyncio.BaseEventLoop):
    """Starts at second 1,000. With ``shuffle`` 0 it is first in, first out; with 1 any that is ready is next."""

    def __init__(self, dice: Random, shuffle: float) -> None:
        super().__init__()
        self.now = 1000.0
        self.steps = 0
        self.moments: list[tuple[int, str, str]] = []  # what was noted, in order, with the step it was in
        self._dice = dice
        self._shuffle = shuffle
        self._ready: Any  # deque of handles, BaseEventLoop's own, as is the heap of timers
        self._scheduled: list[asyncio.TimerHandle]

    def time(self) -> float:
        return self.now

    def note(self, kind: str, what: str) -> None:
        """Note something whose place in the order of things matters."""
        self.moments.append((self.steps, kind, what))

    @property
    def pending_timers(self) -> list[asyncio.TimerHandle]:
        """Timers neither fired nor cancelled."""
        return [timer for timer in self._scheduled if not timer.cancelled()]

    def call_later(  # type: ignore[override] # as above
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> Any:
        """Return, as uvloop does for what is due at once, a handle that knows no time."""
        if delay <= 0:
            return self.call_soon(callback, *args, context=context)
        return super().call_later(delay, callback, *args, context=context)

    def run_in_executor(  # type: ignore[override] # as much of it as asyncio's own callers need
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> Any:
        """Do a thread's work at once, and tell of it later."""
        future = self.create_future()

        def told(result: Any, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        try:
            result, error = func(*args), None
        except Exception as raised:  # noqa: BLE001 - it is the future's
            result, error = None, raised
        self.call_later(self._dice.random() * WORK_S, told, result, error)
        return future

    async def connect_accepted_socket(self, protocol_factory: Any, sock: Any, **options: Any) -> Any:
        """Open what stands for a socket."""
        protocol = protocol_factory()
        return cast("Opens", sock).open(protocol, self), protocol

    def _run_once(self) -> None:
        ready, timers = self._ready, self._scheduled
        self.steps += 1
        if self.steps > MOST_STEPS:
            busy = [getattr(each._callback, "__self__", each) for each in list(ready)[:5]]
            raise StuckError(f"{MOST_STEPS} steps, and no end: {busy}")
        while timers and timers[0].cancelled():
            heapq.heappop(timers)._scheduled = False  # type: ignore[attr-defined] # asyncio's own mark
        if not ready:
            if not timers:
                raise StuckError("everything waits, and no timer is left to end it")
            self.now = max(self.now, timers[0].when())
        while timers and timers[0].when() <= self.now:
            timer = heapq.heappop(timers)
            timer._scheduled = False  # type: ignore[attr-defined] # likewise
            ready.append(timer)
        if not ready:
            return
        at = 0
        if self._shuffle and len(ready) > 1 and self._dice.random() < self._shuffle:
            at = self._dice.randrange(len(ready))
        handle = ready[at]
        del ready[at]
        if not handle.cancelled():
            handle._run()
        del handle, ready  # as asyncio's does: the frame of this method may outlive it, in that of a task that raised

    def close(self) -> None:
        """Close the loop and the coroutines of tasks that have not ended, which would disturb other tests later."""
        left = [] if self.is_closed() else asyncio.all_tasks(self)
        super().close()
        for task in left:
            with suppress(RuntimeError):  # what they do at their end may need the loop
                cast("Coroutine[Any, Any, Any]", task.get_coro()).close()

    def _write_to_self(self) -> None:
        """Wake nobody: there is one thread."""
