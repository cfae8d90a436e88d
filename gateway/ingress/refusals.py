"""Refusals: what the gateway itself says no to. Each is counted; a flood of them is told of in a line a second.

A refusal is no call: nobody is admitted, or there is nothing that anybody could be asked. What has become a call has a
row and a line of its own, however it ends, and what providers say no to is theirs.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from gateway.errors import ApiError, ClientDisconnected
from gateway.race_failures import RaceFailed

LINE_S = 1.0  # between two lines of the same kind
CALL_ID = "x-holeshot-call-id"


class Refused(msgspec.Struct, frozen=True):
    """Whom a request came from, and what for. Nothing of it is the client's own words."""

    peer: str | None  # the address it came from: a trusted proxy's client, or else whoever is connected
    method: str | None = None
    endpoint: str | None = None  # as it is in the list of routes; None where it is none of them
    client: str | None = None  # by the name the operator gave it, if its key is known


class Refusals:
    """Counts refusals, and logs the first of a kind at once, those of the second after it in one line."""

    def __init__(self, count: Callable[[int, str], None]) -> None:
        """Tell ``count`` the status and the reason of each."""
        self._count = count
        self._kinds: dict[tuple[int, str], _Kind] = {}  # a few: statuses and reasons of the error tree

    def hear(self, error: ApiError, refused: Callable[[], Refused]) -> None:
        """Take note of an error that a client is answered with, unless it is the end of a call, or a provider's."""
        if CALL_ID not in error.headers and not isinstance(error, RaceFailed | ClientDisconnected):
            self.refuse(error.status_code, error.kind, refused())

    def refuse(self, status: int, reason: str, refused: Refused, *, defect: BaseException | None = None) -> None:
        """Take note of a refusal; ``defect`` is a mistake of ours that caused it, whose first traceback is logged."""
        self._count(status, reason)
        kind = self._kinds.get((status, reason))
        if kind is None:
            kind = self._kinds[status, reason] = _Kind(status, reason, lambda: self._kinds.pop((status, reason)))
        kind.hear(refused, defect)

    def close(self) -> None:
        """Log what was not told yet."""
        for kind in list(self._kinds.values()):
            kind.close()


class _Kind:
    """Refusals for one reason, as long as they go on."""

    def __init__(self, status: int, reason: str, ended: Callable[[], object]) -> None:
        self._status = status
        self._reason = reason
        self._ended = ended
        self._untold = 0
        self._last = Refused(None)
        self._event = "request.refused"
        self._timer: asyncio.TimerHandle | None = None

    def hear(self, refused: Refused, defect: BaseException | None) -> None:
        self._untold += 1
        self._last = refused
        if defect is not None:
            self._event = "request.crashed"
        if self._timer is None:
            self._tell(defect)
            self._timer = asyncio.get_running_loop().call_later(LINE_S, self._go_on)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._untold:
            self._tell()
        self._ended()

    def _go_on(self) -> None:
        """Tell of those that came since the last line; when there are none, be forgotten."""
        if not self._untold:
            self._ended()
            return
        self._tell()
        self._timer = asyncio.get_running_loop().call_later(LINE_S, self._go_on)

    def _tell(self, defect: BaseException | None = None) -> None:
        facts: dict[str, Any] = {name: fact for name, fact in msgspec.structs.asdict(self._last).items() if fact}
        log = structlog.get_logger()
        if defect is not None:
            log.error(self._event, count=self._untold, **facts, exc_info=defect)
        else:
            log.warning(self._event, status=self._status, reason=self._reason, count=self._untold, **facts)
        self._untold = 0
