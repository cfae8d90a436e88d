"""Snapshots: the standings as the hot path reads them, computed in the background if possible.

``refreshed`` recomputes snapshots whose counts have changed, the oldest first, in small steps. A model without a
snapshot gets one at once. If nothing refreshes, a call also recomputes a snapshot that is a second old.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from functools import partial
from math import inf

import msgspec

from gateway.core.calls import HourlySum
from gateway.core.prompt_classes import Measured, MeasuredApi, PromptClass, spoken_class
from gateway.steering.board import Board, slot_of
from gateway.steering.constants import (
    HALF_LIFE_S,
    MEMORY_HALF_LIVES_S,
    MODELS_REMEMBERED,
    REFRESHED_AT_LEAST_S,
    SLOT_S,
    SLOTS_KEPT,
    STANDINGS_AGE_S,
)
from gateway.steering.counts import (
    Counts,
    Evidences,
    Histograms,
    Tally,
    add_weighted,
    cut,
    event,
    lasting,
    mid_s,
    read_in_steps,
    read_tallies,
    unspoken,
)
from gateway.steering.estimates import Standings, Usuals, answer_tokens, finished, standings_in_steps, usuals_in_steps
from gateway.steering.prediction import PromptSizeEffect, size_of

# Memory: counts of the last hours, so that a model with few calls is not unknown at each call. The board keeps ten
# minutes. Earlier counts are kept here, for each model on each time scale of ``MEMORY_HALF_LIVES_S``. Each replica adds
# the board's counts, which include those of all replicas.

_FORGOTTEN = 0.001  # the weight of a sample below which it is dropped
# Age at which a slot enters the memory; later answers are not added. The board keeps the slot for as long again.
_FOLDED_AT_SLOTS = SLOTS_KEPT // 2


class Memory:
    """The counts remembered of each model, by scale."""

    def __init__(self) -> None:
        self._models: dict[str, _Remembered] = {}  # the last updated at the end

    def fold(self, model: str, slots: Mapping[int, Mapping[str, float]], now_slot: int) -> int:
        """Add the complete ones of the board's ``slots``; return the first incomplete one.

        Must be called at least every four minutes while the model has calls, before the board drops slots after ten.
        The returned slot and later ones are read from the board; earlier ones are in ``counts``.
        """
        remembered = self._models.pop(model, None) or _Remembered(tuple({} for _ in MEMORY_HALF_LIVES_S))
        self._models[model] = remembered
        oldest_left = now_slot - _FOLDED_AT_SLOTS
        if remembered.slot > now_slot:  # the clock was set back
            remembered.slot, remembered.folded_to = now_slot, min(remembered.folded_to, oldest_left)
        for slot in sorted(slots):
            if remembered.folded_to <= slot < oldest_left:
                self._decay(remembered, slot)
                counts = lasting(slots[slot])
                for scale in remembered.scales:
                    add_weighted(scale, counts, 1.0)
        remembered.folded_to = max(remembered.folded_to, oldest_left)
        self._bound()
        return remembered.folded_to

    def learn(self, model: str, counts: Mapping[str, float], slot: int) -> None:
        """Add counts from before this process began, as of ``slot``."""
        remembered = self._models.setdefault(model, _Remembered(tuple({} for _ in MEMORY_HALF_LIVES_S)))
        self._decay(remembered, max(slot, remembered.slot))
        age_s = max(0, remembered.slot - slot) * SLOT_S
        self._bound()
        lasting_counts = lasting(counts)
        for scale, half_life_s in zip(remembered.scales, MEMORY_HALF_LIVES_S, strict=True):
            add_weighted(scale, lasting_counts, 0.5 ** (age_s / half_life_s))

    def drop(self, model: str) -> None:
        """Forget a model."""
        self._models.pop(model, None)

    def models(self) -> Iterable[str]:
        """Return the models in memory."""
        return self._models.keys()

    def _bound(self) -> None:
        """Drop the least recently updated model if there are too many."""
        while len(self._models) > MODELS_REMEMBERED:
            del self._models[next(iter(self._models))]

    def counts(self, model: str, scale: int, now_slot: int) -> Counts:
        """Return the counts on a scale, weighted by age."""
        remembered = self._models.get(model)
        if remembered is None:
            return {}
        weight = 0.5 ** (max(0, now_slot - remembered.slot) * SLOT_S / MEMORY_HALF_LIVES_S[scale])
        return {field: amount * weight for field, amount in remembered.scales[scale].items()}

    def _decay(self, remembered: "_Remembered", slot: int) -> None:
        """Decay the counts until ``slot``."""
        passed_s = max(0, slot - remembered.slot) * SLOT_S
        remembered.slot = slot
        for counts, half_life_s in zip(remembered.scales, MEMORY_HALF_LIVES_S, strict=True):
            keep = 0.5 ** (passed_s / half_life_s)
            for field in [field for field, amount in counts.items() if amount * keep < _FORGOTTEN]:
                del counts[field]
            for field in counts:
                counts[field] *= keep


class _Remembered(msgspec.Struct):
    scales: tuple[Counts, ...]
    slot: int = 0  # for which the weights are valid
    folded_to: int = 0


class Snapshots:
    """The latest standings of each model, API, effort and size of prompt."""

    def __init__(self, board: Board, clock: Callable[[], float], unix_clock: Callable[[], float]) -> None:
        self._memory = Memory()
        self._board = board
        self._clock = clock
        self._unix_clock = unix_clock
        self._models: dict[str, _Known] = {}
        self._sizings: dict[str, dict[tuple[Measured, str], PromptSizeEffect]] = {}  # by model
        self._refreshed_at_s = -inf

    def of(
        self, model: str, prompt_class: PromptClass, prompt_tokens: int | None = None, whole: Collection[str] = ()
    ) -> Standings:
        """Return the standings for such a prompt, at most a second old if time allows.

        Deployments that answer such prompts ``whole`` are compared by the times of their answers with the others' first
        tokens.
        """
        size = size_of(prompt_tokens, prompt_class.size)
        standings = self.at(model, prompt_class.measured, size)
        return standings.with_those_of(self.at(model, MeasuredApi.WHOLE, size), whole) if whole else standings

    def at(self, model: str, measured: Measured, size: int) -> Standings:
        """Return the standings for an API or effort, and a size of prompt."""
        snapshot = self._models.get(model)
        now_s = self._clock()
        if snapshot is None or (
            now_s - snapshot.checked_at_s >= STANDINGS_AGE_S and now_s - self._refreshed_at_s > REFRESHED_AT_LEAST_S
        ):
            snapshot = self._check(model, now_s)
        snapshot.used_at_s = now_s
        return snapshot.standings(measured, size)

    def fresh(self, model: str, prompt_class: PromptClass) -> Standings:
        """Return standings computed now from all counts."""
        snapshot = self._check(model, self._clock())
        return snapshot.standings(prompt_class.measured, size_of(None, prompt_class.size))

    def sizing(self, model: str, measured: Measured, deployment: str) -> PromptSizeEffect:
        """Return how the size of a prompt affects a deployment."""
        sizings = self._sizings_of(model)
        sizing = sizings.get((measured, deployment))
        if sizing is None:
            sizing = sizings[measured, deployment] = PromptSizeEffect()
        return sizing

    def _sizings_of(self, model: str) -> dict[tuple[Measured, str], PromptSizeEffect]:
        """Return a model's sizings, which are kept while the model is remembered, even without calls."""
        sizings = self._sizings.get(model)
        if sizings is None:
            sizings = self._sizings[model] = {}
        return sizings

    def remember(self, model: str, counts: Mapping[str, float], slot: int) -> None:
        """Add counts from before this process began, as of ``slot``."""
        self._memory.learn(model, counts, min(slot, slot_of(self._unix_clock())))
        snapshot = self._models.get(model)
        if snapshot is not None:
            snapshot.outdate()

    def refreshed(self) -> Iterator[str | None]:
        """Recompute changed standings in steps of less than a millisecond; yield None, or a finished model's name."""
        now_s = self._clock()
        due = [(snapshot.checked_at_s, model) for model, snapshot in self._models.items() if snapshot.is_due(now_s)]
        for _, model in sorted(due):
            snapshot = self._models.get(model)
            if snapshot is None or not snapshot.is_due(now_s):
                continue  # the model was forgotten, or recomputed for a call in the meantime
            if snapshot.used_at_s < snapshot.checked_at_s:
                self._fold(model, snapshot, now_s)
                yield None
                continue
            before = snapshot.made_at_s
            for _ in self._steps(model, snapshot, now_s):
                yield None
            if snapshot.made_at_s != before:
                yield model

    def refreshing(self) -> None:
        """Record that a task refreshes snapshots, so that calls do not."""
        self._refreshed_at_s = self._clock()

    def drop(self, model: str) -> None:
        """Forget a model at once."""
        self._models.pop(model, None)
        self._sizings.pop(model, None)
        self._memory.drop(model)

    def forget(self) -> set[str]:
        """Drop snapshots that were not used for as long as a board keeps samples; return the remaining models."""
        oldest_s = self._clock() - SLOTS_KEPT * SLOT_S
        for model in [model for model, snapshot in self._models.items() if snapshot.used_at_s < oldest_s]:
            del self._models[model]
        models = {*self._models, *self._memory.models()}
        self._sizings = {model: sizings for model, sizings in self._sizings.items() if model in models}
        return set(self._models)

    def _check(self, model: str, now_s: float) -> "_Known":
        """Check for new counts of a model."""
        snapshot = self._models.get(model)
        if snapshot is None:
            snapshot = self._models[model] = _Known(self._sizings_of(model))
            snapshot.used_at_s = now_s
        for _ in self._steps(model, snapshot, now_s):
            pass
        return snapshot

    def _steps(self, model: str, snapshot: "_Known", now_s: float) -> Iterator[None]:
        """Check for new counts; the former standings are used until the last step."""
        unix_s = self._unix_clock()
        slot = slot_of(unix_s)
        key, outdated = (self._board.version(model, unix_s), slot), snapshot.outdated
        snapshot.checked_at_s = now_s
        if snapshot.key == key:
            return
        if snapshot.slot != slot:
            scales = yield from self._remembered(model, snapshot, slot, unix_s)
            for sizing in list(snapshot.sizings.values()):
                sizing.fit(now_s)
                yield
            snapshot.scales = scales
            snapshot.forget_usual()
        counts = self._board.counts(model, unix_s, half_life_s=HALF_LIFE_S)
        yield
        evidence = yield from read_in_steps(counts)
        yield from snapshot.update(evidence, answer_tokens(counts))
        snapshot.made_at_s = now_s
        if snapshot.outdated == outdated:
            snapshot.key, snapshot.slot = key, slot

    def _fold(self, model: str, snapshot: "_Known", now_s: float) -> None:
        """Add the counts that the board will soon drop to memory, for a model without calls at the moment."""
        snapshot.checked_at_s = now_s
        unix_s = self._unix_clock()
        self._memory.fold(model, self._board.slots(model, unix_s), slot_of(unix_s))

    def _remembered(
        self, model: str, snapshot: "_Known", slot: int, unix_s: float
    ) -> Generator[None, None, tuple[Evidences, ...]]:
        """Return the evidence on the longer scales, the longest first: memory plus the board.

        A sample counts once: on each scale it has the weight that is left over from the shorter scales.
        """
        slots = self._board.slots(model, unix_s)
        yield
        since = self._memory.fold(model, slots, slot)
        yield
        hours, minutes = (self._memory.counts(model, scale, slot) for scale in range(len(MEMORY_HALF_LIVES_S)))
        yield
        add_weighted(hours, minutes, -1.0)
        for each, counts in slots.items():
            yield
            age_s = max(0, slot - each) * SLOT_S
            lasting_counts = snapshot.lasting(each, counts)
            if each >= since:
                in_hours, in_minutes = (0.5 ** (age_s / half_life_s) for half_life_s in MEMORY_HALF_LIVES_S)
                add_weighted(hours, lasting_counts, in_hours - in_minutes)
                add_weighted(minutes, lasting_counts, in_minutes)
            add_weighted(minutes, lasting_counts, -(0.5 ** (age_s / HALF_LIFE_S)))
        of_hours = yield from read_in_steps(hours)
        of_minutes = yield from read_in_steps(minutes)
        return of_hours, of_minutes


class _Known:
    """The counts, evidence and standings of one model."""

    __slots__ = (
        "_answer_tokens",
        "_lasting",
        "_lately",
        "_made",
        "_sized",
        "_used",
        "_usuals",
        "checked_at_s",
        "key",
        "made_at_s",
        "outdated",
        "scales",
        "sizings",
        "slot",
        "used_at_s",
    )

    def __init__(self, sizings: dict[tuple[Measured, str], PromptSizeEffect]) -> None:
        self.used_at_s = self.made_at_s = -inf
        self.outdated = 0
        self.outdate()
        self.scales: tuple[Evidences, ...] = ({},)
        self.sizings = sizings  # by API or effort, and deployment
        self._lately: Evidences = {}
        self._answer_tokens = 0.0
        self._lasting: dict[int, tuple[tuple[float, ...], Counts]] = {}  # by slot: its fingerprint, and the result
        self._usuals: dict[Measured, tuple[float, Usuals]] = {}  # by API, with the number of recent attempts
        self._made: dict[Measured, Standings] = {}  # by API, for the reference size
        self._sized: dict[tuple[Measured, int], Standings] = {}  # by API and size
        self._used: set[tuple[Measured, int]] = set()  # standings that were used since they were last computed

    def is_due(self, now_s: float) -> bool:
        """Whether to check again: it was used since, or the board may drop something."""
        is_used = self.used_at_s >= self.checked_at_s
        return now_s - self.checked_at_s >= (STANDINGS_AGE_S if is_used else SLOT_S)

    def lasting(self, slot: int, counts: Mapping[str, float]) -> Counts:
        """Return ``evidence.lasting`` of a slot; reused if nothing was counted since, as most slots are closed."""
        state = (len(counts), sum(counts.values()))
        counts_before = self._lasting.get(slot)
        if counts_before is None or counts_before[0] != state:
            if len(self._lasting) > SLOTS_KEPT:
                self._lasting = {
                    each: lasting_counts for each, lasting_counts in self._lasting.items() if each > slot - SLOTS_KEPT
                }
            counts_before = self._lasting[slot] = (state, lasting(counts))
        return counts_before[1]

    def outdate(self) -> None:
        """Recompute everything at the next check."""
        self.outdated += 1
        self.checked_at_s = -inf
        self.key = _NEVER  # board version and slot from which the standings were computed
        self.slot = -1

    def forget_usual(self) -> None:
        """Recompute the usual figures at the next check."""
        self._usuals.clear()

    def update(self, lately: Evidences, answer_tokens: float) -> Iterator[None]:
        """Set the recent evidence, and compute the standings that were used before."""
        standings: dict[Measured, Standings] = {}
        for measured in list(self._made):
            standings[measured] = yield from self._steps(measured, lately, answer_tokens)
        sized: dict[tuple[Measured, int], Standings] = {}
        for measured, size in list(self._used):
            if measured in standings:  # else it was first used in the meantime
                sized[measured, size] = self._at_size(standings[measured], measured, size)
                yield
        self._lately, self._answer_tokens, self._made, self._sized = lately, answer_tokens, standings, sized
        self._used.clear()

    def standings(self, measured: Measured, size: int) -> Standings:
        """Return the standings for prompts of a size."""
        sized = self._sized.get((measured, size))
        self._used.add((measured, size))
        if sized is None:
            standings = self._made.get(measured)
            if standings is None:
                standings = self._made[measured] = finished(self._steps(measured, self._lately, self._answer_tokens))
            sized = self._sized[measured, size] = self._at_size(standings, measured, size)
        return sized

    def _at_size(self, standings: Standings, measured: Measured, size: int) -> Standings:
        scales = {name: sizing.factor(size) for (of, name), sizing in self.sizings.items() if of is measured}
        return standings.sized(scales, _UNSEEN.factor(size))

    def _steps(self, measured: Measured, lately: Evidences, answer_tokens: float) -> Generator[None, None, Standings]:
        n_before, usual = self._usuals.get(measured, (0.0, None))
        n = sum(each.n for each in lately.values())
        if usual is None or n > _MUCH_MORE * n_before:
            usual = yield from usuals_in_steps(self.scales, lately, measured)
            self._usuals[measured] = (n, usual)
        return (yield from standings_in_steps(lately, usual, measured, answer_tokens))


_MUCH_MORE = 1.25  # factor of attempts since the usual was last computed: at the start that is every other second
_NEVER = (-1, -1)
_UNSEEN = PromptSizeEffect()


# Warm start: converts the ledger's sums from before the start into counts of the board, for the memory.


def recollect(snapshots: Snapshots, sums: Iterable[HourlySum]) -> int:
    """Add ``sums`` to the memory; return the number of models.

    The prompt sizes are no longer known: each class is assumed to have its typical one. Each speed counts as one second
    of decoding.
    """
    usual = PromptSizeEffect()
    by_hour: dict[tuple[str, int], Counts] = {}
    for each in sums:
        counts = by_hour.setdefault((each.model, slot_of(each.unix_s)), {})
        if each.metric == "ttft":
            reference_s = mid_s(each.bucket) / usual.factor(size_of(None, max(0, each.size_class)))
            _add(counts, event(each.deployment, MeasuredApi.ANSWERS, reference_s), each.n)
        elif each.metric == "tps":
            tok_s = 1000 * mid_s(each.bucket)  # buckets are of milliseconds, or of tok/s
            _add(counts, f"{each.deployment}|tok", tok_s * each.n)
            _add(counts, f"{each.deployment}|sec", each.n)
        else:
            _add(counts, f"{each.deployment}|{each.metric}", each.n)
    for (model, slot), counts in sorted(by_hour.items(), key=lambda item: item[0][1]):
        snapshots.remember(model, counts, slot)
    return len({model for model, _ in by_hour})


def recall(board: Board, lately: Mapping[str, Mapping[int, Mapping[str, float]]]) -> float:
    """Add counts of the ledger, by model and slot, to a board that no other replica shares; return the attempts.

    The policy's own figures are made of the published ones: sizes of prompts are assumed as in ``recollect``.
    """
    n = 0.0
    for model, slots in lately.items():
        for slot in sorted(slots):
            counts = dict(slots[slot])
            for name, tally in read_tallies(slots[slot]).items():
                n += tally.n
                spoken_tally = tally.spoken or Tally()
                for field, every, of_spoken in (
                    (event, tally.events, spoken_tally.events),
                    (cut, tally.censored, spoken_tally.censored),
                ):
                    _add_own(counts, partial(field, name), unspoken(every, of_spoken))
                    _add_own(counts, partial(field, name), {spoken_class(each): of_spoken[each] for each in of_spoken})
            board.add(model, counts, slot * SLOT_S)
    return n


def _add_own(counts: Counts, field: Callable[[Measured, float], str], histograms: Histograms) -> None:
    """Add published histograms to the policy's own."""
    for prompt_class, histogram in histograms.items():
        factor = _UNSEEN.factor(size_of(None, prompt_class.size))
        for index, amount in histogram.items():
            _add(counts, field(prompt_class.measured, mid_s(index) / factor), amount)


def _add(counts: Counts, field: str, amount: float) -> None:
    counts[field] = counts.get(field, 0.0) + amount
