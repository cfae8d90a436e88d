"""The logger for modules that an engine loads, and what of an outage is worth a line.

structlog is imported when the first line is logged.
"""

from collections.abc import Callable, Container
from typing import Any


def get_logger() -> Any:
    """Return structlog's logger, as the process has set it up.

    structlog imports rich where that is installed, together a fifth of a first race's imports, and most races log
    nothing.
    """
    import structlog  # noqa: PLC0415 - see above

    return structlog.get_logger()


REPEATED_S = 3600.0


class StandingFault:
    """A fault that is seen again and again: worth a line when it begins or changes, and once an hour."""

    __slots__ = ("_clock", "_said_at_s", "_what")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._what: str | None = None
        self._said_at_s = 0.0

    def is_due(self, what: str) -> bool:
        """Note that the fault is there; return whether to log it now."""
        now_s = self._clock()
        if what == self._what and now_s - self._said_at_s < REPEATED_S:
            return False
        self._what, self._said_at_s = what, now_s
        return True

    def end(self) -> None:
        """Note that it is gone."""
        self._what = None


_MOST_CAUSES = 8  # of one outage: words that differ each time must not fill the log


class OutageCauses:
    """The causes of running outages, by place: each is worth one line, however often it is seen again.

    A place is whatever has outages of its own, as a shard of Redis. It is true while there is an outage anywhere.
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[str, set[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._seen)

    def is_new(self, cause: str, place: str = "") -> bool:
        """Note a failure; return whether its cause is the first of an outage, or another one than before."""
        seen = self._seen.setdefault(place, set())
        if cause in seen or len(seen) >= _MOST_CAUSES:
            return False
        seen.add(cause)
        return True

    def end(self, place: str = "") -> bool:
        """Note a success; return whether it ends an outage."""
        return self._seen.pop(place, None) is not None

    def keep(self, places: Container[str]) -> None:
        """Forget all other places."""
        self._seen = {place: seen for place, seen in self._seen.items() if place in places}
