"""The board that simulated replicas share: counts and strikes leave and come back once a second, as with Redis.

Mirrors ``gateway/steering/redis_board.py`` without its socket: each replica knows what it counted itself at once, and
what others counted after their flush and its own next read.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gateway.steering import Strikes, slot_of
from gateway.steering.board import Slots
from gateway.steering.constants import FLUSH_S
from gateway.steering.counts import Counts

if TYPE_CHECKING:
    from gateway.steering.outages import OutageReport


class Store:
    """What Redis would hold of the one model there is."""

    def __init__(self) -> None:
        self.slots = Slots()
        self.reports: dict[Strikes, OutageReport] = {}


class SharedBoard:
    """One replica's board. Call ``sync`` once a second."""

    def __init__(self, store: Store, strikes: Strikes | None = None) -> None:
        self._store = store
        self._strikes = strikes
        self._shared = Slots()
        self._pending = Slots()
        self._model: str | None = None
        self._version = 0

    period_s = FLUSH_S

    def add(self, model: str, counts: Mapping[str, float], unix_s: float) -> None:
        """Count what just happened: known here at once."""
        self._model = model
        self._pending.add(slot_of(unix_s), counts)
        self._version += 1

    def forget(self, model: str) -> None:
        """Do nothing: no client makes up a name here."""

    def share(self, is_shared: Callable[[str], bool]) -> None:
        """Do nothing: all models are shared."""

    def version(self, model: str, unix_s: float) -> int:  # noqa: ARG002 - the Board's signature
        """Return a number that changes with the counts."""
        return self._version

    def counts(self, model: str, unix_s: float, *, half_life_s: float) -> Counts:  # noqa: ARG002 - likewise
        """Return the weighted sum over all slots kept, of all replicas."""
        total: Counts = {}
        for slots in (self._shared, self._pending):
            slots.sum_into(total, slot_of(unix_s), half_life_s)
        return total

    def slots(self, model: str, unix_s: float) -> Mapping[int, Counts]:  # noqa: ARG002 - likewise
        """Return the plain counts of each slot kept."""
        kept: dict[int, Counts] = {}
        for slots in (self._shared, self._pending):
            slots.add_into(kept, slot_of(unix_s))
        return kept

    def models(self) -> tuple[str, ...]:
        """Return the one model, once there are samples."""
        return () if self._model is None else (self._model,)

    def sync(self, unix_s: float) -> None:
        """Flush what is pending, then read whatever others have changed."""
        now_slot = slot_of(unix_s)
        stored = self._store.slots
        for slot, counts in self._pending.items():
            stored.add(slot, counts)
        self._pending = Slots()
        before = self._shared.version
        for slot, counts in stored.items():
            if self._shared.of(slot) != counts:
                self._shared.replace(slot, dict(counts))
        for slots in (stored, self._shared):
            slots.expire(now_slot)
        self._version += self._shared.version != before
        if self._strikes is not None:
            reports = self._store.reports
            reports[self._strikes] = self._strikes.report()
            self._strikes.learn([report for replica, report in reports.items() if replica is not self._strikes])
