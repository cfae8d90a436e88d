"""The board in memory: counts of what happened at each model's deployments in the last ten minutes, in 30 s slots."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from gateway.steering.constants import SLOT_S, SLOTS_KEPT
from gateway.steering.counts import Counts, add_counts, add_weighted


class Board(Protocol):
    """Collects the samples from which standings are computed. No method blocks. ``unix_s`` is the current time."""

    def add(self, model: str, counts: Mapping[str, float], unix_s: float) -> None:
        """Add counts, by field, of an attempt launched at ``unix_s``, which may be minutes ago."""

    def version(self, model: str, unix_s: float) -> int:
        """Return a number that changes with the model's counts. A shared board is kept up to date for such models."""

    def counts(self, model: str, unix_s: float, *, half_life_s: float) -> Counts:
        """Return the sum of all slots, each halved for every ``half_life_s`` of its age (infinite: plain sums)."""

    def slots(self, model: str, unix_s: float) -> Mapping[int, Counts]:
        """Return the plain counts of each slot."""

    def forget(self, model: str) -> None:
        """Drop the counts of a model in this process."""

    def share(self, is_shared: Callable[[str], bool]) -> None:
        """Share only the counts of the models for which ``is_shared`` is true."""


class Slots:
    """The counts of one model by slot; slot number = floor(unix time / 30)."""

    __slots__ = ("_slots", "_sum", "version")

    def __init__(self) -> None:
        self._slots: dict[int, Counts] = {}
        self._sum: _Sum | None = None
        self.version = 0

    def __bool__(self) -> bool:
        return bool(self._slots)

    def add(self, slot: int, counts: Mapping[str, float]) -> None:
        """Add to one slot."""
        counts_before = self._slots.get(slot)
        if counts_before is None:
            counts_before = self._slots[slot] = {}
        add_counts(counts_before, counts)
        if self._sum is not None:
            self._sum.add(slot, counts)
        self.version += 1

    def replace(self, slot: int, counts: Counts) -> None:
        """Replace the counts of one slot."""
        before = self._slots.get(slot, {})
        if before == counts:
            return
        self._slots[slot] = counts
        if self._sum is not None:
            changes = {field: amount - before.get(field, 0.0) for field, amount in counts.items()}
            changes |= {field: -amount for field, amount in before.items() if field not in counts}
            self._sum.add(slot, {field: change for field, change in changes.items() if change})
        self.version += 1

    def drop(self, slot: int) -> None:
        """Remove one slot."""
        if self._slots.pop(slot, None) is not None:
            self._sum = None
            self.version += 1

    def expire(self, now_slot: int) -> None:
        """Drop slots that are too old, and those in the future, which were filled while the clock was wrong."""
        for slot in [slot for slot in self._slots if not now_slot - SLOTS_KEPT < slot <= now_slot + 1]:
            self.drop(slot)

    def move_future(self, now_slot: int) -> None:
        """Move the counts of future slots, filled while the clock was wrong, into the current one."""
        for slot in [slot for slot in self._slots if slot > now_slot]:
            counts = self._slots.pop(slot)
            self._sum = None
            self.add(now_slot, counts)

    def of(self, slot: int) -> Mapping[str, float]:
        """Return the counts of one slot."""
        return self._slots.get(slot, {})

    def items(self) -> list[tuple[int, Counts]]:
        """Return the slots with their counts."""
        return list(self._slots.items())

    def sum_into(self, total: Counts, now_slot: int, half_life_s: float) -> None:
        """Add all slots to ``total``, each weighted by its age: w_k = 0.5^(30 k / half-life)."""
        if not self._slots:
            return
        closed = self._sum
        if closed is None or closed.of != (now_slot, half_life_s):
            closed = self._sum = _Sum(now_slot, half_life_s)
            for slot, counts in self._slots.items():
                closed.add(slot, counts)
        if total:
            add_counts(total, closed.counts)
        else:
            total.update(closed.counts)
        for slot, counts in self._slots.items():
            if slot >= now_slot:
                add_counts(total, counts)

    def add_into(self, slots: dict[int, Counts], now_slot: int) -> None:
        """Add each slot to the same one in ``slots``."""
        for slot, counts in self._slots.items():
            if now_slot - SLOTS_KEPT < slot:
                add_counts(slots.setdefault(slot, {}), counts)


class _Sum:
    """The weighted sum of the slots before ``now_slot``, kept up to date: summing ten minutes each second is expensive.

    Nearly all samples belong to the open slot, which has weight 1, and are simply added.
    """

    __slots__ = ("counts", "of")

    def __init__(self, now_slot: int, half_life_s: float) -> None:
        self.of = (now_slot, half_life_s)
        self.counts: Counts = {}

    def add(self, slot: int, counts: Mapping[str, float]) -> None:
        now_slot, half_life_s = self.of
        if now_slot - SLOTS_KEPT < slot < now_slot:
            add_weighted(self.counts, counts, 0.5 ** (SLOT_S * (now_slot - slot) / half_life_s))


class MemoryBoard:
    """A board of this process only."""

    def __init__(self) -> None:
        self._models: dict[str, Slots] = {}
        self._slot = 0

    def add(self, model: str, counts: Mapping[str, float], unix_s: float) -> None:
        """Add counts of what just happened."""
        slot = self._advance(unix_s)
        slots = self._models.get(model)
        if slots is None:
            slots = self._models[model] = Slots()
        slots.add(slot, counts)

    def version(self, model: str, unix_s: float) -> int:
        """Return a number that changes with the counts."""
        slot = self._advance(unix_s)
        if slot < self._slot:  # the clock was set back: future slots would have full weight until their time comes
            self._slot = slot
            for each in self._models.values():
                each.move_future(slot)
        slots = self._models.get(model)
        return slots.version if slots is not None else 0

    def counts(self, model: str, unix_s: float, *, half_life_s: float) -> Counts:
        """Return the weighted sum of all slots."""
        total: Counts = {}
        slots = self._models.get(model)
        if slots is not None:
            slots.sum_into(total, slot_of(unix_s), half_life_s)
        return total

    def slots(self, model: str, unix_s: float) -> Mapping[int, Counts]:
        """Return the plain counts of each slot."""
        counts_of: dict[int, Counts] = {}
        if (slots := self._models.get(model)) is not None:
            slots.add_into(counts_of, slot_of(unix_s))
        return counts_of

    def forget(self, model: str) -> None:
        """Drop the counts of a model."""
        self._models.pop(model, None)

    def share(self, is_shared: Callable[[str], bool]) -> None:
        """Do nothing: nothing is shared."""

    def _advance(self, unix_s: float) -> int:
        """Return the open slot. When a new one begins, drop old slots and models without recent calls."""
        slot = int(unix_s // SLOT_S)  # as ``slot_of``, without its call
        if slot <= self._slot:
            return slot
        self._slot = slot
        for model, slots in list(self._models.items()):
            slots.expire(slot)
            if not slots:
                del self._models[model]
        return slot


def slot_of(unix_s: float) -> int:
    """Return the number of the slot that contains an instant."""
    return int(unix_s // SLOT_S)


def key_of(model: str, suffix: object) -> str:
    """Return the key of a model's ``suffix``: a slot's number, or a day's dollars."""
    tag = model.replace("{", "%7B").replace("}", "%7D")  # its own braces would move the hash tag
    return f"holeshot:{{{tag}}}:{suffix}"


def slot_keys(model: str, slot: int) -> tuple[str, str]:
    """Return the keys of a slot's sums and of its parts."""
    key = key_of(model, slot)
    return f"{key}:sums", f"{key}:parts"


# Contributions: one model's counts as a replica knows them: its own, all replicas', and what Redis has confirmed.

NEVER_S = float("-inf")


class SlotPart(msgspec.Struct, frozen=True):
    """Counts on their way into a slot. Redis adds them only if this replica's last part in the slot is ``before``."""

    slot: int
    before: int  # 0: none so far
    number: int  # unique
    counts: Counts


def arguments(parts: Iterable[SlotPart]) -> Iterable[str | bytes]:
    """Yield the arguments of the script that adds ``parts``, after those common to all."""
    for part in parts:
        yield from (str(part.before), str(part.number), msgspec.json.encode(part.counts))


class Contributions:
    """The counts of one model. ``_shared`` is what Redis has; ``_own`` is this replica's part of that, to restore it.

    Unconfirmed counts wait in ``_unsent``. A part keeps its number until Redis has answered: if the answer is lost, the
    part is sent again, and counts once.
    """

    __slots__ = (
        "_confirmed",
        "_own",
        "_read",
        "_sealed",
        "_shared",
        "_unsent",
        "_version",
        "read_all_at_s",
        "read_at_s",
        "used_at_s",
    )

    def __init__(self) -> None:
        self._shared = Slots()
        self._unsent = Slots()
        self._own = Slots()
        self._sealed: tuple[SlotPart, ...] = ()
        self._confirmed: dict[int, int] = {}  # slot -> number of the last part that Redis has
        self._read: dict[int, str] = {}  # slot → its version when it was read
        self._version = 0
        self.used_at_s = NEVER_S
        self.read_at_s = NEVER_S
        self.read_all_at_s = NEVER_S

    @property
    def version(self) -> int:
        """A number that changes with the counts."""
        return self._version + self._shared.version

    def mark_used(self, unix_s: float) -> None:
        """Mark the model as used. Unused models are not read from Redis."""
        if self.used_at_s <= unix_s - SLOT_S:
            self.read_all_at_s = NEVER_S
        self.used_at_s = max(self.used_at_s, unix_s)

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

    def is_recent(self, unix_s: float, for_s: float) -> bool:
        """Whether the model was read from Redis less than ``for_s`` ago."""
        return 0.0 <= unix_s - self.read_at_s < for_s

    def seal(self, next_number: Callable[[], int], limit: int) -> tuple[SlotPart, ...]:
        """Return the parts to send: first the parts that may have arrived already, unchanged, then new ones.

        New parts begin with the latest slots and stop at ``limit`` fields: after a long absence of Redis the rest
        follows later.
        """
        if self._sealed:
            return self._sealed
        parts: list[SlotPart] = []
        for slot, counts in sorted(self._unsent.items(), reverse=True):
            if limit <= 0:
                break
            limit -= len(counts)
            parts.append(SlotPart(slot, self._confirmed.get(slot, 0), next_number(), counts))
            self._unsent.drop(slot)
        self._sealed = tuple(parts)
        return self._sealed

    def confirm(self, parts: Sequence[SlotPart], found: Sequence[int]) -> bool:
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
                self._requeue(part.slot)
                lost = True
        return lost

    def read_version(self, slot: int) -> str:
        """Return the slot's version when it was read; '' if it is to be read again."""
        return self._read.get(slot, "")

    def store(self, slot: int, counts: Counts, version: str, *, is_mine: bool) -> bool:
        """Store a slot as Redis has it; ``is_mine``: a part of this replica is in it.

        Returns whether Redis has lost confirmed counts. A slot that Redis has lost completely keeps its known counts.
        """
        lost = not is_mine and slot in self._confirmed
        if lost:
            self._requeue(slot)
        if counts:
            self._shared.replace(slot, counts)
            self._read[slot] = version
        return lost

    def expire(self, unix_s: float) -> None:
        """Drop slots that are too old, and those in the future: the clock was set back."""
        now_slot = slot_of(unix_s)
        for slots in (self._shared, self._unsent, self._own):
            slots.expire(now_slot)
        slots_kept = range(now_slot - SLOTS_KEPT + 1, now_slot + 2)
        self._sealed = tuple(part for part in self._sealed if part.slot in slots_kept)
        self._confirmed = {slot: number for slot, number in self._confirmed.items() if slot in slots_kept}
        self._read = {slot: version for slot, version in self._read.items() if self._shared.of(slot)}
        if self.used_at_s > unix_s:
            self.used_at_s, self.read_all_at_s = unix_s, NEVER_S

    def _requeue(self, slot: int) -> None:
        """Mark everything this replica contributed to ``slot`` as unsent."""
        self._confirmed.pop(slot, None)
        self._read.pop(slot, None)
        self._shared.drop(slot)
        self._unsent.add(slot, self._own.of(slot))
        self._own.drop(slot)
        self._version += 1
