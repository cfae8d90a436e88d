"""Requests that the gateway itself rejects, counted in the metrics and, by the minute, in the ledger.

The log has at most one line a second per kind.

A refusal is not a call: the client was not admitted, or no deployment could be asked. A call has its own ledger row and
log line, however the call ends. Errors of providers are not refusals.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
import structlog

from gateway.access import grouped
from gateway.core.errors import ApiError, ClientDisconnected, NotSignedIn
from gateway.core.race_failures import RaceFailed
from gateway.core.records import RefusalRecord
from providers import redact

# Refusals by the minute, for the ledger: a flood costs a few rows, however many requests it has.

MINUTE_S = 60.0
ADDRESSES = 100  # different addresses a minute
MODELS = 100  # different names of models a minute: a client may write any name
ROWS = 500  # a minute, with an address or a model: reasons and clients are few, their combinations many
OTHER = "other"  # stands for all further addresses and models

Record = Callable[[tuple[RefusalRecord, ...]], None]


class _RefusalMinutesKind(msgspec.Struct, frozen=True, gc=False):
    """The key of one row of refusals."""

    status: int
    reason: str
    client: str | None
    address: str | None
    model: str | None


class RefusalMinutes:
    """Counts the refusals of the current minute, and records the counts when the minute is over.

    The current minute is in memory only, so a crash loses its counts. With a row for each refusal, unknown clients
    could write to the disk without limit; the counts in the metrics are up to date.
    """

    def __init__(
        self, record: Record, *, utc_now: Callable[[], datetime], new_id: Callable[[], str], replica: str
    ) -> None:
        self._record = record
        self._utc_now = utc_now
        self._new_id = new_id
        self._replica = replica
        self._started_at: datetime | None = None
        self._counts: dict[_RefusalMinutesKind, int] = {}
        self._addresses: set[str] = set()
        self._models: set[str] = set()
        self._end: asyncio.TimerHandle | None = None

    def add(self, status: int, reason: str, client: str | None, peer: str | None, model: str | None = None) -> None:
        """Count a refusal; ``peer`` is the address to store, as a socket or a proxy writes it.

        ``model``: the requested name, of a bounded length, if the refusal is due to the name.
        """
        if self._started_at is None:
            self._begin()
        address = _bounded(None if peer is None else grouped(peer), self._addresses, ADDRESSES)
        kind = _RefusalMinutesKind(status, reason, client, address, _bounded(model, self._models, MODELS))
        if len(self._counts) >= ROWS and kind not in self._counts:
            address, model = (None if each is None else OTHER for each in (kind.address, kind.model))
            kind = _RefusalMinutesKind(status, reason, client, address, model)
        self._counts[kind] = self._counts.get(kind, 0) + 1

    def end(self) -> None:
        """End the current minute, and record its counts."""
        if self._end is not None:
            self._end.cancel()
        if self._started_at is None:
            return
        started_at, self._started_at = self._started_at, None
        counts, self._counts = self._counts, {}
        self._addresses, self._models = set(), set()
        self._record(
            tuple(
                RefusalRecord(
                    id=self._new_id(),
                    started_at=started_at,
                    status_code=kind.status,
                    reason=kind.reason,
                    client=kind.client,
                    address=kind.address,
                    n=n,
                    replica=self._replica,
                    model=kind.model,
                )
                for kind, n in counts.items()
            )
        )

    def _begin(self) -> None:
        now = self._utc_now()
        self._started_at = now.replace(second=0, microsecond=0)
        left_s = MINUTE_S - now.second - now.microsecond / 1e6
        self._end = asyncio.get_running_loop().call_later(left_s, self.end)


def _bounded(name: str | None, names: set[str], most: int) -> str | None:
    """Return ``name`` if among the first ``most`` names, which ``names`` keeps; else ``OTHER``."""
    if name is None or name in names:
        return name
    if len(names) >= most:
        return OTHER
    names.add(name)
    return name


LINE_S = 1.0  # between two lines of the same kind
CALL_ID = "x-holeshot-call-id"
_NO_REFUSALS = (RaceFailed, ClientDisconnected, NotSignedIn)


class RefusedRequest(msgspec.Struct, frozen=True):
    """The origin and target of a refused request. Of the client's own text only a model's name is here, bounded."""

    peer: str | None  # the address of the client if a trusted proxy names it, else of the peer
    method: str | None = None
    endpoint: str | None = None  # a pattern from the list of routes; None: no route
    client: str | None = None  # the configured name, if the key is known
    model: str | None = None  # the requested one, if there is no model of this name or the client may not use the model


LONGEST_MODEL = 100  # characters of a requested model's name in the log and the ledger


class Refusals:
    """Counts refusals. The first of a kind is logged at once, later ones in one line per second."""

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

    def add_error(self, error: ApiError, refused: Callable[[], RefusedRequest]) -> None:
        """Record the error in a response, unless it belongs to a call or is not a refusal."""
        if CALL_ID not in error.headers and not isinstance(error, _NO_REFUSALS):
            refusal = refused()
            if error.asked_model is not None:
                refusal = msgspec.structs.replace(refusal, model=redact(error.asked_model[:LONGEST_MODEL]))
            self.add(error.status_code, error.kind, refusal)

    def add(self, status: int, reason: str, refused: RefusedRequest, *, defect: BaseException | None = None) -> None:
        """Record a refusal. ``defect``: the bug behind it, if any; the first of a kind is logged with traceback."""
        self._count(status, reason, refused.client)
        if refused.peer is not None and not self._keeps_addresses():
            refused = msgspec.structs.replace(refused, peer=None)
        self._minutes.add(status, reason, refused.client, refused.peer, refused.model)
        kind = self._kinds.get((status, reason))
        if kind is None:
            kind = self._kinds[status, reason] = _Kind(status, reason, lambda: self._kinds.pop((status, reason)))
        kind.add(refused, defect)

    def close(self) -> None:
        """Log and record the pending refusals."""
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
        self._last = RefusedRequest(None)
        # Event request.refused: The gateway itself refused requests with this `status` and `reason`: `count` of them
        # since the last such line, at most one a second. The other fields are the last request's.
        # If the model that was asked for is the reason, `model` is its name.
        # Do: Look the `reason` up in [errors](errors.md). The table `refusals` counts all.
        self._event = "request.refused"
        self._timer: asyncio.TimerHandle | None = None

    def add(self, refused: RefusedRequest, defect: BaseException | None) -> None:
        self._unlogged += 1
        self._last = refused
        if defect is not None:
            # Event request.crashed: A request failed by a bug in the gateway, with 500 `internal_error`.
            # Do: It is a bug: report it with the trace.
            self._event = "request.crashed"
        if self._timer is None:
            self._log(defect)
            self._timer = asyncio.get_running_loop().call_later(LINE_S, self._log_more)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._unlogged:
            self._log()
        self._ended()

    def _log_more(self) -> None:
        """Log the refusals since the last line; without any, remove this kind."""
        if not self._unlogged:
            self._ended()
            return
        self._log()
        self._timer = asyncio.get_running_loop().call_later(LINE_S, self._log_more)

    def _log(self, defect: BaseException | None = None) -> None:
        facts: dict[str, Any] = {name: fact for name, fact in msgspec.structs.asdict(self._last).items() if fact}
        log = structlog.get_logger()
        if defect is not None:
            log.error(self._event, count=self._unlogged, **facts, exc_info=defect)
        else:
            log.warning(self._event, status=self._status, reason=self._reason, count=self._unlogged, **facts)
        self._unlogged = 0
