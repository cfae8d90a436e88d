"""What all calls of a gateway share while they run: made once, by the composition root."""

from collections.abc import Callable
from datetime import datetime

import msgspec

from gateway.calls import Recorder
from gateway.racing.seats import Seats
from gateway.racing.tasks import AttemptTasks


class Services(msgspec.Struct, frozen=True):
    """Who hears of calls, who owns their tasks and seats, and where time and ids come from."""

    recorder: Recorder
    tasks: AttemptTasks
    seats: Seats
    clock: Callable[[], float]  # monotonic seconds, finer than the loop's own
    new_id: Callable[[], str]
    utc_now: Callable[[], datetime]
