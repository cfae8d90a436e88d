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


class Outbox:
    """What recorders are still to be told, in the order in which it happened.

    Bookkeeping for others must not delay the first bytes to a client. An attempt reads its first token, claims, and
    writes in one step of its task, so the next turn of the loop is late enough. It is told before that if anything
    depends on it: the next plan, launch or record of any call, whoever reads what was learnt, the gateway's end.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None  # each ``get_running_loop`` may take a system call
        self._is_due = False  # in the next turn

    def add(self, tell: Callable[..., None], *args: Any) -> None:
        """Call ``tell`` with ``args`` later. It must use the time of the event, not of the call."""
        self._waiting.append((tell, args))
        if not self._is_due:
            loop = self._loop
            if loop is None:
                loop = self._loop = asyncio.get_running_loop()
            loop.call_soon(self._turn)
            self._is_due = True

    def drain(self) -> None:
        """Tell all that waits now. What a recorder raises is logged, and the others are told."""
        waiting = self._waiting
        while waiting:
            tell, args = waiting.popleft()
            try:
                tell(*args)
            except Exception:  # noqa: BLE001 - a defect of a recorder must not end a call, nor hide what others did
                structlog.get_logger().exception("call.recorder_failed")

    def _turn(self) -> None:
        self._is_due = False
        self.drain()


class Services(msgspec.Struct, frozen=True):
    """The recorder, the owners of tasks and seats, and the sources of time and ids."""

    recorder: Recorder
    tasks: AttemptTasks[Any, Any]  # of ``Attempt`` and ``OpenCall``, which know this module
    seats: Seats
    clock: Callable[[], float]  # monotonic seconds, with a finer resolution than the loop's
    new_id: Callable[[], str]
    utc_now: Callable[[], datetime]
    paces: Paces = msgspec.field(default_factory=Paces)  # how fast deployments usually are
    outbox: Outbox = msgspec.field(default_factory=Outbox)
