"""Outages that last: what a spool notes of them, so that they have an end if their process is killed."""

from collections.abc import Iterable
from datetime import datetime

from msgspec.structs import replace

from gateway.ledger.entries import Lasting
from gateway.outage_records import OutageRecord

NOTED_EVERY_S = 5.0  # while an outage lasts: by so much at most an end is too early


class LastingOutages:
    """The outages without an end, and when each was last known to last."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[OutageRecord, datetime]] = {}
        self._noted_at_s = 0.0

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._seen)

    def note(self, outage: OutageRecord) -> None:
        """Process the begin or the end of an outage."""
        if outage.ended_at is None:
            self._seen.setdefault(outage.id, (outage, outage.began_at))
        else:
            self._seen.pop(outage.id, None)

    def see(self, entry: Lasting) -> None:
        """Process an instant at which outages lasted. An end that is known stays: it is in a later entry."""
        for outage in entry.outages:
            seen = self._seen.get(outage.id, (outage, outage.began_at))
            self._seen[outage.id] = (outage, max(seen[1], entry.at))

    def now(self, at: datetime) -> Lasting:
        """Return an entry which says that all of them last at this instant; they are taken to have been seen then."""
        entry = Lasting(tuple(outage for outage, _ in self._seen.values()), at)
        self.see(entry)
        return entry

    def is_due(self, now_s: float) -> bool:
        """Whether it is time for the next entry, by the monotonic clock; it then counts as written."""
        if not self._seen or now_s - self._noted_at_s < NOTED_EVERY_S:
            return False
        self._noted_at_s = now_s
        return True

    def carried(self) -> Iterable[Lasting]:
        """Return what a new segment begins with: the present state."""
        return [Lasting((outage,), seen_at) for outage, seen_at in self._seen.values()]

    def ended(self) -> list[OutageRecord]:
        """Return all of them, each with the instant at which it was last known to last as its end."""
        return [replace(outage, ended_at=seen_at) for outage, seen_at in self._seen.values()]
