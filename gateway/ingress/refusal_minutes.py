"""Refusals by the minute, for the ledger: a flood costs a few rows, however many requests it has."""

import asyncio
from collections.abc import Callable
from datetime import datetime

import msgspec

from gateway.ingress.addresses import grouped, read_address
from gateway.refusal_records import RefusalRecord

MINUTE_S = 60.0
ADDRESSES = 100  # different ones a minute
ROWS = 500  # a minute, with an address; reasons and clients are few, but not their products with addresses
OTHER = "other"  # the addresses beyond

Record = Callable[[tuple[RefusalRecord, ...]], None]


class _Kind(msgspec.Struct, frozen=True, gc=False):
    """What the refusals of one row have in common."""

    status: int
    reason: str
    client: str | None
    address: str | None


class RefusalMinutes:
    """Counts the refusals of the open minute, and passes them on when it is over.

    The open minute is in memory only, so a crash loses it. A row for each refusal would let strangers write to the
    disk as often as they like, and the counts in the metrics are up to date.
    """

    def __init__(
        self, record: Record, *, utc_now: Callable[[], datetime], new_id: Callable[[], str], replica: str
    ) -> None:
        self._record = record
        self._utc_now = utc_now
        self._new_id = new_id
        self._replica = replica
        self._started_at: datetime | None = None
        self._counts: dict[_Kind, int] = {}
        self._addresses: set[str] = set()
        self._end: asyncio.TimerHandle | None = None

    def add(self, status: int, reason: str, client: str | None, peer: str | None) -> None:
        """Count a refusal; ``peer`` is the address to store, as a socket or a proxy writes it."""
        if self._started_at is None:
            self._begin()
        kind = _Kind(status, reason, client, self._address(peer))
        if len(self._counts) >= ROWS and kind not in self._counts and kind.address is not None:
            kind = _Kind(status, reason, client, OTHER)
        self._counts[kind] = self._counts.get(kind, 0) + 1

    def end(self) -> None:
        """End the open minute, and record it."""
        if self._end is not None:
            self._end.cancel()
        if self._started_at is None:
            return
        started_at, self._started_at = self._started_at, None
        counts, self._counts, self._addresses = self._counts, {}, set()
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
                )
                for kind, n in counts.items()
            )
        )

    def _begin(self) -> None:
        now = self._utc_now()
        self._started_at = now.replace(second=0, microsecond=0)
        left_s = MINUTE_S - now.second - now.microsecond / 1e6
        self._end = asyncio.get_running_loop().call_later(left_s, self.end)

    def _address(self, peer: str | None) -> str | None:
        address = None if peer is None else read_address(peer)
        if address is None:
            return None
        name = grouped(address)
        if name not in self._addresses:
            if len(self._addresses) >= ADDRESSES:
                return OTHER
            self._addresses.add(name)
        return name
