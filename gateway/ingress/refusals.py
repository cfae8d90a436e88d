"""Refusals: requests that the gateway itself rejects. All are counted, in the metrics and by the minute in the ledger.

The log has at most one line a second per kind.

A refusal is not a call: the client was not admitted, or no deployment could be asked. A call has its own ledger row
and log line, however it ends. Errors of providers are not refusals.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from gateway.errors import ApiError, ClientDisconnected
from gateway.ingress.refusal_minutes import RefusalMinutes
from gateway.key_errors import NotSignedIn
from gateway.race_failures import RaceFailed

LINE_S = 1.0  # between two lines of the same kind
CALL_ID = "x-holeshot-call-id"
_NO_REFUSALS = (RaceFailed, ClientDisconnected, NotSignedIn)


class Refused(msgspec.Struct, frozen=True):
    """The origin and target of a refused request. No field has text that the client chose."""

    peer: str | None  # the address of the client if a trusted proxy names it, else of the peer
    method: str | None = None
    endpoint: str | None = None  # a pattern from the list of routes; None: no route
    client: str | None = None  # the configured name, if the key is known


class Refusals:
    """Counts refusals. The first of a kind is logged at once, those that follow in one line per second."""

    def __init__(
        self,
        count: Callable[[int, str, str | None], None],
        minutes: RefusalMinutes,
        keeps_addresses: Callable[[], bool],
    ) -> None:
        """``count`` is called with the status, the reason and the client of each refusal.

        ``keeps_addresses`` returns whether the log and the ledger may have addresses.
        """
        self._count = count
        self._minutes = minutes
        self._keeps_addresses = keeps_addresses
        self._kinds: dict[tuple[int, str], _Kind] = {}  # few: one for each status and reason of the error tree

    def add_error(self, error: ApiError, refused: Callable[[], Refused]) -> None:
        """Record the error that a client is answered with, unless it belongs to a call or is no refusal."""
        if CALL_ID not in error.headers and not isinstance(error, _NO_REFUSALS):
            self.add(error.status_code, error.kind, refused())

    def add(self, status: int, reason: str, refused: Refused, *, defect: BaseException | None = None) -> None:
        """Record a refusal. ``defect`` is the bug that caused it; the first of a kind is logged with traceback."""
        self._count(status, reason, refused.client)
        if refused.peer is not None and not self._keeps_addresses():
            refused = msgspec.structs.replace(refused, peer=None)
        self._minutes.add(status, reason, refused.client, refused.peer)
        kind = self._kinds.get((status, reason))
        if kind is None:
            kind = self._kinds[status, reason] = _Kind(status, reason, lambda: self._kinds.pop((status, reason)))
        kind.add(refused, defect)

    def close(self) -> None:
        """Log and record what has not been yet."""
        self._minutes.end()
        for kind in list(self._kinds.values()):
            kind.close()


class _Kind:
    """The refusals of one kind, while they continue."""

    def __init__(self, status: int, reason: str, ended: Callable[[], object]) -> None:
        self._status = status
        self._reason = reason
        self._ended = ended
        self._unlogged = 0
        self._last = Refused(None)
        self._event = "request.refused"
        self._timer: asyncio.TimerHandle | None = None

    def add(self, refused: Refused, defect: BaseException | None) -> None:
        self._unlogged += 1
        self._last = refused
        if defect is not None:
            self._event = "request.crashed"
        if self._timer is None:
            self._log(defect)
            self._timer = asyncio.get_running_loop().call_later(LINE_S, self._go_on)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._unlogged:
            self._log()
        self._ended()

    def _go_on(self) -> None:
        """Log those since the last line; if there are none, remove this kind."""
        if not self._unlogged:
            self._ended()
            return
        self._log()
        self._timer = asyncio.get_running_loop().call_later(LINE_S, self._go_on)

    def _log(self, defect: BaseException | None = None) -> None:
        facts: dict[str, Any] = {name: fact for name, fact in msgspec.structs.asdict(self._last).items() if fact}
        log = structlog.get_logger()
        if defect is not None:
            log.error(self._event, count=self._unlogged, **facts, exc_info=defect)
        else:
            log.warning(self._event, status=self._status, reason=self._reason, count=self._unlogged, **facts)
        self._unlogged = 0
