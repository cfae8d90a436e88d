"""Memory: keeps for hours what the board drops, so that a model with few calls is not unknown at each call.

The board keeps ten minutes. Earlier counts are kept here, for each model on each time scale of
``MEMORY_HALF_LIVES_S``. Each replica adds the board's counts, which include those of all replicas.
"""

from collections.abc import Iterable, Mapping

import msgspec

from gateway.steering.constants import MEMORY_HALF_LIVES_S, MODELS_REMEMBERED, SLOT_S, SLOTS_KEPT
from gateway.steering.evidence import lasting
from gateway.steering.tally import Counts, add_weighted

_FORGOTTEN = 0.001  # of a sample
_FOLDED_AT_SLOTS = SLOTS_KEPT // 2  # old: later answers are not remembered; the board keeps the slot for as long again


class Memory:
    """The counts remembered of each model, by scale."""

    def __init__(self) -> None:
        self._models: dict[str, _Remembered] = {}  # the last updated at the end

    def fold(self, model: str, slots: Mapping[int, Mapping[str, float]], now_slot: int) -> int:
        """Add those of the board's ``slots`` that are complete; return the first that is not.

        Must be called at least every four minutes while the model has calls, before the board drops slots after ten.
        The returned slot and later ones are read from the board; earlier ones are in ``counts``.
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
        """Add counts from before this process began, as of ``slot``."""
        known = self._models.setdefault(model, _Remembered(tuple({} for _ in MEMORY_HALF_LIVES_S)))
        self._turn(known, max(slot, known.slot))
        age_s = max(0, known.slot - slot) * SLOT_S
        self._bound()
        kept, _ = lasting(counts, {})
        for scale, half_life_s in zip(known.scales, MEMORY_HALF_LIVES_S, strict=True):
            add_weighted(scale, kept, 0.5 ** (age_s / half_life_s))

    def models(self) -> Iterable[str]:
        """Return the models in memory."""
        return self._models.keys()

    def _bound(self) -> None:
        """Drop the least recently updated model if there are too many."""
        while len(self._models) > MODELS_REMEMBERED:
            del self._models[next(iter(self._models))]

    def counts(self, model: str, scale: int, now_slot: int) -> Counts:
        """Return the counts on a scale, weighted by age."""
        known = self._models.get(model)
        if known is None:
            return {}
        weight = 0.5 ** (max(0, now_slot - known.slot) * SLOT_S / MEMORY_HALF_LIVES_S[scale])
        return {field: amount * weight for field, amount in known.scales[scale].items()}

    def _turn(self, known: "_Remembered", slot: int) -> None:
        """Decay the counts until ``slot``."""
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
    slot: int = 0  # for which the weights are valid
    folded_to: int = 0
