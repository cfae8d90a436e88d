"""The board in memory: what happened to each model's deployments in the last ten minutes, by half-minute slots."""

from collections.abc import Mapping
from typing import Protocol

from gateway.steering.constants import SLOT_S, SLOTS_KEPT
from gateway.steering.tally import Counts, add_counts


class Board(Protocol):
    """Where samples go and standings come from. No method waits for anything. ``unix_s`` is the time now."""

    def add(self, model: str, counts: Mapping[str, float], unix_s: float) -> None:
        """Count what just happened, by field."""

    def version(self, model: str, unix_s: float) -> int:
        """Return a number that changes with the model's counts. A shared board keeps up with whom it is asked about."""

    def counts(self, model: str, unix_s: float, *, half_life_s: float) -> Counts:
        """Return the sum over all slots kept, each halved per ``half_life_s`` of its age (infinite: plain sums)."""

    def models(self) -> tuple[str, ...]:
        """Return the models that something is known of."""


class Slots:
    """The counts of one model by slot, slot number = floor(unix time / 30)."""

    __slots__ = ("_slots", "version")

    def __init__(self) -> None:
        self._slots: dict[int, Counts] = {}
        self.version = 0

    def __bool__(self) -> bool:
        return bool(self._slots)

    def add(self, slot: int, counts: Mapping[str, float]) -> None:
        """Add to one slot."""
        add_counts(self._slots.setdefault(slot, {}), counts)
        self.version += 1

    def replace(self, slot: int, counts: Counts) -> None:
        """Set one slot to what is known better elsewhere."""
        if self._slots.get(slot) != counts:
            self._slots[slot] = counts
            self.version += 1

    def expire(self, now_slot: int) -> None:
        """Drop slots that are kept no longer."""
        for slot in [slot for slot in self._slots if slot <= now_slot - SLOTS_KEPT]:
            del self._slots[slot]
            self.version += 1

    def items(self) -> list[tuple[int, Counts]]:
        """Return the slots with their counts."""
        return list(self._slots.items())

    def sum_into(self, total: Counts, now_slot: int, half_life_s: float) -> None:
        """Add all slots kept to ``total``, each weighted by its age: w_k = 0.5^(30 k / half-life)."""
        for slot, counts in self._slots.items():
            if now_slot - SLOTS_KEPT < slot:
                add_counts(total, counts, 0.5 ** (SLOT_S * max(0, now_slot - slot) / half_life_s))


class MemoryBoard:
    """A board of this process alone."""

    def __init__(self) -> None:
        self._models: dict[str, Slots] = {}
        self._slot = 0

    def add(self, model: str, counts: Mapping[str, float], unix_s: float) -> None:
        """Count what just happened."""
        slot = self._turn(unix_s)
        slots = self._models.get(model)
        if slots is None:
            slots = self._models[model] = Slots()
        slots.add(slot, counts)

    def version(self, model: str, unix_s: float) -> int:
        """Return a number that changes with the counts."""
        self._turn(unix_s)
        slots = self._models.get(model)
        return slots.version if slots is not None else 0

    def counts(self, model: str, unix_s: float, *, half_life_s: float) -> Counts:
        """Return the weighted sum over all slots kept."""
        total: Counts = {}
        slots = self._models.get(model)
        if slots is not None:
            slots.sum_into(total, slot_of(unix_s), half_life_s)
        return total

    def models(self) -> tuple[str, ...]:
        """Return the models with samples."""
        return tuple(self._models)

    def _turn(self, unix_s: float) -> int:
        """Return the open slot. As one begins, forget old ones, and models nobody has called since."""
        slot = slot_of(unix_s)
        if slot == self._slot:
            return slot
        self._slot = slot
        for model, slots in list(self._models.items()):
            slots.expire(slot)
            if not slots:
                del self._models[model]
        return slot


def slot_of(unix_s: float) -> int:
    """Return the number of the slot an instant belongs to."""
    return int(unix_s // SLOT_S)
