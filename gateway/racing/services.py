"""What all running calls of a gateway share: made once, by ``app.py``."""

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
import structlog

from gateway.calls import Recorder
from gateway.racing.pace import Paces
from gateway.racing.seats import Seats
from gateway.racing.tasks import AttemptTasks

TOLD_WITHIN_S = 0.005  # half of the 10 ms that are promised, as a busy loop's timers are late


class Outbox:
    """What recorders are still to be told, in the order in which it happened.

    Bookkeeping for others must not delay the first bytes to a client, so it waits here until they are written. It is
    told by then, before the next plan, launch or record of any call, before anybody reads what was learnt, when the
    gateway stops, and after ``TOLD_WITHIN_S`` at the latest.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None  # each ``get_running_loop`` may take a system call
        self._timer: asyncio.TimerHandle | None = None  # set while anything waits

    def add(self, tell: Callable[..., None], *args: Any) -> None:
        """Call ``tell`` with ``args`` later. It must use the time of the event, not of the call."""
        self._waiting.append((tell, args))
        if self._timer is None:
            loop = self._loop
            if loop is None:
                loop = self._loop = asyncio.get_running_loop()
            self._timer = loop.call_later(TOLD_WITHIN_S, self.drain)

    def drain_soon(self) -> None:
        """Tell what waits in the next turn of the loop: the bytes that it had to wait for are written."""
        if self._timer is not None and self._loop is not None:
            self._loop.call_soon(self.drain)

    def drain(self) -> None:
        """Tell all that waits now. What a recorder raises is logged, and the others are told."""
        waiting = self._waiting
        while waiting:
            tell, args = waiting.popleft()
            try:
                tell(*args)
            except Exception:  # noqa: BLE001 - a defect of a recorder must not end a call, nor hide what others did
                structlog.get_logger().exception("call.recorder_failed")
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Services(msgspec.Struct, frozen=True):
    """The recorder, the owners of tasks and seats, and the sources of time and ids."""

    recorder: Recorder
    tasks: AttemptTasks
    seats: Seats
    clock: Callable[[], float]  # monotonic seconds, with a finer resolution than the loop's
    new_id: Callable[[], str]
    utc_now: Callable[[], datetime]
    paces: Paces = msgspec.field(default_factory=Paces)  # how fast deployments usually are
    outbox: Outbox = msgspec.field(default_factory=Outbox)
