"""Why connections are cut: counted in the metrics, and told in lines of the log that stand for many."""

import asyncio
from collections import Counter
from collections.abc import Callable
from enum import StrEnum

import structlog

LINE_S = 10.0  # between two lines of the log, at least
_MORE_FILES = "raise the limit of open files of this process: LimitNOFILE= in systemd, ulimit -n in a shell"


class Reason(StrEnum):
    """Why a connection is cut."""

    ADDRESS = "address"  # too many strangers from one address
    STRANGERS = "strangers"  # too many in all
    DESCRIPTORS = "descriptors"  # the process has no room for more connections
    LATE_HEAD = "late_head"  # the head of a request did not come whole in time
    LARGE_HEAD = "large_head"  # nor before it was too large
    STALLED = "stalled"  # its client takes nothing of an answer
    KEY = "key"  # the key of its running request was revoked or has expired


class Cuts:
    """Counts cut connections by reason: each for ``count_one``. ``opened`` returns how many are open, for the log."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, count_one: Callable[[Reason], None], opened: Callable[[], int]
    ) -> None:
        self._count_one = count_one
        self._loop = loop
        self._opened = opened
        self._untold: Counter[Reason] = Counter()
        self._line: asyncio.TimerHandle | None = None

    def count(self, reason: Reason) -> None:
        """Count it in the metrics, and in a line of the log that tells of many."""
        self._count_one(reason)
        self._untold[reason] += 1
        if self._line is None:
            self._tell()
            self._line = self._loop.call_later(LINE_S, self._tell_again)

    def close(self) -> None:
        """Tell what is left to tell."""
        if self._line is not None:
            self._line.cancel()
        self._tell()

    def _tell_again(self) -> None:
        self._line = None
        self._tell()

    def _tell(self) -> None:
        if self._untold:
            counts = {str(reason): number for reason, number in self._untold.items()}
            hint = {"hint": _MORE_FILES} if Reason.DESCRIPTORS in self._untold else {}
            structlog.get_logger().warning("connections.cut", **counts, open=self._opened(), **hint)
            self._untold.clear()
