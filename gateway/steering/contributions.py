"""Contributions: one model's counts as known to a replica: its own, those of all replicas, and what Redis confirmed."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from gateway.steering.board import Slots, slot_of
from gateway.steering.constants import SLOT_S, SLOTS_KEPT
from gateway.steering.tally import Counts

NEVER_S = float("-inf")


class Part(msgspec.Struct, frozen=True):
    """Counts on their way into a slot. Redis adds them only if this replica's last part in the slot is ``before``."""

    slot: int
    before: int  # 0: none so far
    number: int  # unique
    counts: Counts


class Contributions:
    """The counts of one model. ``_shared`` is what Redis has; ``_own`` is this replica's part of it, if Redis loses it.

    Unconfirmed counts wait in ``_unsent``. Sealed into parts they keep their numbers until Redis has answered, so that
    a part that is sent again after a lost answer counts once.
    """

    __slots__ = (
        "_confirmed",
        "_marks",
        "_own",
        "_sealed",
        "_shared",
        "_unsent",
        "_version",
        "asked_at_s",
        "read_all_at_s",
    )

    def __init__(self) -> None:
        self._shared = Slots()
        self._unsent = Slots()
        self._own = Slots()
        self._sealed: tuple[Part, ...] = ()
        self._confirmed: dict[int, int] = {}  # slot -> number of the last part that Redis has
        self._marks: dict[int, Mapping[str, str]] = {}  # slot → replica → the last part in it when it was read
        self._version = 0
        self.asked_at_s = NEVER_S
        self.read_all_at_s = NEVER_S

    @property
    def version(self) -> int:
        """A number that changes with the counts."""
        return self._version + self._shared.version

    def ask(self, unix_s: float) -> None:
        """Mark the model as used. Unused models are not read from Redis."""
        if self.asked_at_s <= unix_s - SLOT_S:
            self.read_all_at_s = NEVER_S
        self.asked_at_s = max(self.asked_at_s, unix_s)

    def add(self, slot: int, counts: Mapping[str, float]) -> None:
        """Count something that happened in this replica."""
        self._unsent.add(slot, counts)
        self._version += 1

    def parts(self) -> tuple[Slots, ...]:
        """Return slots whose sum is everything known."""
        if not self._sealed:
            return (self._shared, self._unsent)
        sealed = Slots()
        for part in self._sealed:
            sealed.add(part.slot, part.counts)
        return (self._shared, self._unsent, sealed)

    @property
    def resends(self) -> bool:
        """Whether parts have to be sent again; new counts can only follow them."""
        return bool(self._sealed)

    def seal(self, next_number: Callable[[], int], limit: int) -> tuple[Part, ...]:
        """Return the parts to send: first those that may have arrived already, unchanged, then new ones.

        New parts begin with the latest slots and stop at ``limit`` fields: after a long absence of Redis the rest
        follows later.
        """
        if self._sealed:
            return self._sealed
        parts: list[Part] = []
        for slot, counts in sorted(self._unsent.items(), reverse=True):
            if limit <= 0:
                break
            limit -= len(counts)
            parts.append(Part(slot, self._confirmed.get(slot, 0), next_number(), counts))
            self._unsent.drop(slot)
        self._sealed = tuple(parts)
        return self._sealed

    def confirm(self, parts: Sequence[Part], found: Sequence[int]) -> bool:
        """Process the number that Redis now has for each part's slot; return whether Redis has lost counts."""
        self._sealed = ()
        lost = False
        for part, number in zip(parts, found, strict=True):
            if number == part.number:
                self._confirmed[part.slot] = number
                self._own.add(part.slot, part.counts)
                self._shared.add(part.slot, part.counts)  # until the next read brings them back
                continue
            self._unsent.add(part.slot, part.counts)
            if number:  # an older copy of the slot: parts in between are lost, this one is not
                self._confirmed[part.slot] = number
            else:
                self._give_back(part.slot)
                lost = True
        return lost

    def has_read(self, slot: int, marks: Mapping[str, str]) -> bool:
        """Whether the slot was read with the same parts in it: numbers are unique."""
        return self._marks.get(slot) == marks

    def take(self, slot: int, counts: Counts, marks: Mapping[str, str], *, mine: str) -> bool:
        """Store a slot as Redis has it, with the last part of each replica; ``mine`` is this replica's field.

        Returns whether Redis has lost confirmed counts. A slot that Redis has lost completely keeps its known counts.
        """
        lost = mine not in marks and slot in self._confirmed
        if lost:
            self._give_back(slot)
        if counts:
            self._shared.replace(slot, counts)
            self._marks[slot] = marks
        return lost

    def expire(self, unix_s: float) -> None:
        """Drop slots that are too old, and those to come: the clock was set back."""
        now_slot = slot_of(unix_s)
        for slots in (self._shared, self._unsent, self._own):
            slots.expire(now_slot)
        kept = range(now_slot - SLOTS_KEPT + 1, now_slot + 2)
        self._sealed = tuple(part for part in self._sealed if part.slot in kept)
        self._confirmed = {slot: number for slot, number in self._confirmed.items() if slot in kept}
        self._marks = {slot: marks for slot, marks in self._marks.items() if self._shared.of(slot)}
        if self.asked_at_s > unix_s:
            self.asked_at_s, self.read_all_at_s = unix_s, NEVER_S

    def _give_back(self, slot: int) -> None:
        """Mark everything this replica contributed to ``slot`` as unsent."""
        self._confirmed.pop(slot, None)
        self._marks.pop(slot, None)
        self._shared.drop(slot)
        self._unsent.add(slot, self._own.of(slot))
        self._own.drop(slot)
        self._version += 1
