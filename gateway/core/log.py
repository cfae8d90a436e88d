"""The logger for modules loaded by an engine, and the rules for logging an outage.

structlog is imported when the first line is logged.
"""

from collections.abc import Callable, Container
from typing import Any


def get_logger() -> Any:
    """Return structlog's logger, as set up by the process.

    structlog imports rich where that is installed. Both take a fifth of the imports of a first race, and most races log
    nothing.
    """
    import structlog  # noqa: PLC0415 - see above

    return structlog.get_logger()


REPEATED_S = 3600.0


class StandingFault:
    """A fault seen again and again: worth a line at its begin, at each change, and once an hour."""

    __slots__ = ("_clock", "_said_at_s", "_what")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._what: str | None = None
        self._said_at_s = 0.0

    def is_due(self, what: str) -> bool:
        """Note that the fault is present; return whether to log it now."""
        now_s = self._clock()
        if what == self._what and now_s - self._said_at_s < REPEATED_S:
            return False
        self._what, self._said_at_s = what, now_s
        return True

    def end(self) -> None:
        """Note that the fault is gone."""
        self._what = None


_MOST_CAUSES = 8  # of one outage: ever new words must not fill the log


class OutageCauses:
    """The causes of running outages, by place: each cause is worth one line, however often it is seen again.

    A place has its own outages, as a shard of Redis. The object is true during an outage anywhere.
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[str, set[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._seen)

    def is_new(self, cause: str, place: str = "") -> bool:
        """Note a failure; return whether the cause is new in its outage."""
        seen = self._seen.setdefault(place, set())
        if cause in seen or len(seen) >= _MOST_CAUSES:
            return False
        seen.add(cause)
        return True

    def end(self, place: str = "") -> bool:
        """Note a success; return whether an outage ends with it."""
        return self._seen.pop(place, None) is not None

    def keep(self, places: Container[str]) -> None:
        """Forget all other places."""
        self._seen = {place: seen for place, seen in self._seen.items() if place in places}
