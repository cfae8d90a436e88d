"""Contributions: the counts of one model as a replica knows them, its own and everybody's, and what Redis confirmed."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from gateway.steering.board import Slots
from gateway.steering.constants import SLOT_S, SLOTS_KEPT
from gateway.steering.tally import Counts

NEVER_S = float("-inf")


class Part(msgspec.Struct, frozen=True):
    """Counts on their way into a slot. Redis adds them only if the slot's last part of this replica was ``before``."""

    slot: int
    before: int  # 0: none yet
    number: int  # never used twice
    counts: Counts


class Contributions:
    """One model: ``_shared`` is what Redis has, ``_own`` what of it came from this replica, in case Redis loses it.

    What is not confirmed waits in ``_unsent``; sealed into parts it keeps its numbers until Redis has answered, so that
    a part sent again after a lost answer counts once.
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
        self._marks: dict[int, Mapping[str, str]] = {}  # slot -> by replica, the last part in it when it was read
        self._version = 0
        self.asked_at_s = NEVER_S
        self.read_all_at_s = NEVER_S

    @property
    def version(self) -> int:
        """A number that changes with the counts."""
        return self._version + self._shared.version

    def ask(self, unix_s: float) -> None:
        """Note that the model is in use. Unused models are not read: what is known of one that comes back is old."""
        if self.asked_at_s <= unix_s - SLOT_S:
            self.read_all_at_s = NEVER_S
        self.asked_at_s = max(self.asked_at_s, unix_s)

    def add(self, slot: int, counts: Mapping[str, float]) -> None:
        """Count something that happened here."""
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
        """Whether parts are to be sent again; what has been counted since can only follow them."""
        return bool(self._sealed)

    def seal(self, next_number: Callable[[], int], limit: int) -> tuple[Part, ...]:
        """Return what to send: what may have arrived already, unchanged, before anything new.

        Of the new the latest slots first, and no more once there are ``limit`` fields: after a long absence of Redis
        the rest follows in its turn.
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
        """Take the number that Redis has now for each part's slot; return whether it has lost any."""
        self._sealed = ()
        lost = False
        for part, number in zip(parts, found, strict=True):
            if number == part.number:
                self._confirmed[part.slot] = number
                self._own.add(part.slot, part.counts)
                self._shared.add(part.slot, part.counts)  # until the next read brings them back
                continue
            self._unsent.add(part.slot, part.counts)
            if number:  # an older copy of the slot: what came between is lost, this part is not
                self._confirmed[part.slot] = number
            else:
                self._give_back(part.slot)
                lost = True
        return lost

    def has_read(self, slot: int, marks: Mapping[str, str]) -> bool:
        """Return whether the slot was taken with these same parts in it: numbers are never used twice."""
        return self._marks.get(slot) == marks

    def take(self, slot: int, counts: Counts, marks: Mapping[str, str], *, mine: str) -> bool:
        """Take a slot as Redis has it, and with it the last part there of each replica; this one's is ``mine``.

        Return whether Redis has lost what was confirmed. A slot it has lost altogether is kept here as it was known.
        """
        lost = mine not in marks and slot in self._confirmed
        if lost:
            self._give_back(slot)
        if counts:
            self._shared.replace(slot, counts)
            self._marks[slot] = marks
        return lost

    def expire(self, now_slot: int) -> None:
        """Drop slots that are kept no longer."""
        for slots in (self._shared, self._unsent, self._own):
            slots.expire(now_slot)
        oldest = now_slot - SLOTS_KEPT + 1
        self._sealed = tuple(part for part in self._sealed if part.slot >= oldest)
        self._confirmed = {slot: number for slot, number in self._confirmed.items() if slot >= oldest}
        self._marks = {slot: marks for slot, marks in self._marks.items() if self._shared.of(slot)}

    def _give_back(self, slot: int) -> None:
        """Let all that this replica contributed to ``slot`` be sent again, as if none of it had been."""
        self._confirmed.pop(slot, None)
        self._marks.pop(slot, None)
        self._shared.drop(slot)
        self._unsent.add(slot, self._own.of(slot))
        self._own.drop(slot)
        self._version += 1
