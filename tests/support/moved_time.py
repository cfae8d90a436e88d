"""The clocks of a gateway in a test, moved."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Any


class MovedTime:
    """The clocks of a test: they run as ours does, so many seconds ahead."""

    ahead_s = 0.0

    def unix_s(self) -> float:
        return time.time() + self.ahead_s

    def monotonic_s(self) -> float:
        return time.monotonic() + self.ahead_s

    def utc_now(self) -> datetime:
        return datetime.fromtimestamp(self.unix_s(), UTC)

    def is_now(self, at: datetime) -> None:
        self.ahead_s = at.timestamp() - time.time()

    def let_pass(self, seconds: float) -> None:
        """Move on by so many seconds, and the timers of the running loop with us."""
        self.ahead_s += seconds
        let_pass(seconds)

    @property
    def runtime(self) -> dict[str, Any]:
        """The clocks that ``serving`` takes."""
        return {"unix_clock": self.unix_s, "clock": self.monotonic_s, "utc_now": self.utc_now}


def let_pass(seconds: float) -> None:
    """Have the timers of the running loop come due as if so many seconds had passed.

    For a time limit that is to end once something has happened: a short one may end before, on a busy machine.
    """
    loop = asyncio.get_running_loop()
    now = loop.time
    vars(loop)["time"] = lambda: now() + seconds
