"""Memory: what the board has forgotten, kept for hours, so that a quiet model is not new with each call.

The board keeps ten minutes. What it had before is kept here, for each model on each of the scales of
``MEMORY_HALF_LIVES_S``. Each replica folds in what the board knows of all of them.
"""

from collections.abc import Iterable, Mapping

import msgspec

from gateway.steering.constants import MEMORY_HALF_LIVES_S, MODELS_REMEMBERED, SLOT_S, SLOTS_KEPT
from gateway.steering.evidence import lasting
from gateway.steering.tally import Counts, add_weighted

_FORGOTTEN = 0.001  # of a sample
_FOLDED_AT_SLOTS = SLOTS_KEPT // 2  # old: longer answers are not remembered, and the board has it for as long again


class Memory:
    """What is remembered of each model, by scale."""

    def __init__(self) -> None:
        self._models: dict[str, _Remembered] = {}  # the last folded last

    def fold(self, model: str, slots: Mapping[int, Mapping[str, float]], now_slot: int) -> int:
        """Take those of the board's ``slots`` that are complete. Return the first that is not.

        To be called at least every four minutes while the model has calls, before the board drops what is older than
        ten. The returned slot and those after it are to be taken from the board, those before are in ``counts``.
        """
        known = self._models.pop(model, None) or _Remembered(tuple({} for _ in MEMORY_HALF_LIVES_S))
        self._models[model] = known
        oldest_left = now_slot - _FOLDED_AT_SLOTS
        if known.slot > now_slot:  # the clock was set back
            known.slot, known.folded_to = now_slot, min(known.folded_to, oldest_left)
        for slot in sorted(slots):
            if known.folded_to <= slot < oldest_left:
                self._turn(known, slot)
                counts, _ = lasting(slots[slot], {})
                for scale in known.scales:
                    add_weighted(scale, counts, 1.0)
        known.folded_to = max(known.folded_to, oldest_left)
        self._bound()
        return known.folded_to

    def learn(self, model: str, counts: Mapping[str, float], slot: int) -> None:
        """Take counts of before this process began, as of ``slot``."""
        known = self._models.setdefault(model, _Remembered(tuple({} for _ in MEMORY_HALF_LIVES_S)))
        self._turn(known, max(slot, known.slot))
        age_s = max(0, known.slot - slot) * SLOT_S
        self._bound()
        kept, _ = lasting(counts, {})
        for scale, half_life_s in zip(known.scales, MEMORY_HALF_LIVES_S, strict=True):
            add_weighted(scale, kept, 0.5 ** (age_s / half_life_s))

    def models(self) -> Iterable[str]:
        """Return the models that something is remembered of."""
        return self._models.keys()

    def _bound(self) -> None:
        """Forget the model that was taught least recently, if there are too many."""
        while len(self._models) > MODELS_REMEMBERED:
            del self._models[next(iter(self._models))]

    def counts(self, model: str, scale: int, now_slot: int) -> Counts:
        """Return what is remembered on a scale, weighted by its age."""
        known = self._models.get(model)
        if known is None:
            return {}
        weight = 0.5 ** (max(0, now_slot - known.slot) * SLOT_S / MEMORY_HALF_LIVES_S[scale])
        return {field: amount * weight for field, amount in known.scales[scale].items()}

    def _turn(self, known: "_Remembered", slot: int) -> None:
        """Let what is remembered fade until ``slot``."""
        passed_s = max(0, slot - known.slot) * SLOT_S
        known.slot = slot
        for counts, half_life_s in zip(known.scales, MEMORY_HALF_LIVES_S, strict=True):
            keep = 0.5 ** (passed_s / half_life_s)
            for field in [field for field, amount in counts.items() if amount * keep < _FORGOTTEN]:
                del counts[field]
            for field in counts:
                counts[field] *= keep


class _Remembered(msgspec.Struct):
    scales: tuple[Counts, ...]
    slot: int = 0  # that the weights are of
    folded_to: int = 0
