"""A sign of life in a silent answer: the timer, and the places for comments in a stream of events."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

COMMENT = b": keep-alive\n\n"  # in a stream of events that passes unread: every reader of events skips such a line
TAIL_BYTES = 4
_BETWEEN = (b"\n\n", b"\n\r\n", b"\r\r")


def is_between(tail: bytes) -> bool:
    """Return whether a stream that so far ends with ``tail`` is between two events: the last line was empty."""
    return tail.endswith(_BETWEEN)


class KeepAlive:
    """Calls ``say`` after each so many seconds without ``sent``, by one timer.

    The timer looks for the time of the last sending, and waits for the rest: a sending costs only a look at the loop's
    clock.
    """

    __slots__ = ("_every_s", "_is_over", "_loop", "_say", "_saying", "_sent_at", "_timer")

    def __init__(self, say: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._say = say
        self._loop = asyncio.get_running_loop()
        self._sent_at = self._loop.time()
        self._every_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._saying: asyncio.Task[None] | None = None
        self._is_over = False

    def every(self, seconds: float | None) -> None:
        """Call ``say`` after so many silent seconds from now on; None: not any more. Without effect after ``end``."""
        self._cancel_timer()
        if seconds is not None and not self._is_over:
            self._every_s = seconds
            self._timer = self._loop.call_at(max(self._sent_at + seconds, self._loop.time()), self._look)

    def sent(self) -> None:
        """Note that bytes of the answer were sent now."""
        self._sent_at = self._loop.time()

    def end(self) -> None:
        """Stop the calls of ``say``: the end of the answer is being sent."""
        self._is_over = True
        self._cancel_timer()
        if self._saying is not None:
            self._saying.cancel()

    async def stop(self) -> None:
        """Call ``end``, and wait for a running ``say``."""
        self.end()
        if self._saying is not None:
            await asyncio.wait({self._saying})

    def _look(self) -> None:
        now = self._loop.time()
        due = self._sent_at + self._every_s
        if due <= now:
            self._saying = self._loop.create_task(self._say())
            self._sent_at, due = now, now + self._every_s
        self._timer = self._loop.call_at(due, self._look)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
