"""What all running calls of a gateway share: made once, by ``app.py``."""

from collections.abc import Callable
from datetime import datetime

import msgspec

from gateway.calls import Recorder
from gateway.racing.pace import Paces
from gateway.racing.seats import Seats
from gateway.racing.tasks import AttemptTasks


class Services(msgspec.Struct, frozen=True):
    """The recorder, the owners of tasks and seats, and the sources of time and ids."""

    recorder: Recorder
    tasks: AttemptTasks
    seats: Seats
    clock: Callable[[], float]  # monotonic seconds, with a finer resolution than the loop's
    new_id: Callable[[], str]
    utc_now: Callable[[], datetime]
    paces: Paces = msgspec.field(default_factory=Paces)  # how fast deployments usually are
