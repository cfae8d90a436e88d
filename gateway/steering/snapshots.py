"""Snapshots: the standings as the hot path reads them, computed in the background if possible.

``refresh`` recomputes those whose counts have changed, the oldest first, with a maximum of curves per second. A model
without a snapshot gets one at once. If nothing calls ``refresh``, as in simulations, a snapshot is also recomputed when
it is a second old.
"""

from collections.abc import Callable, Mapping
from math import inf
from time import perf_counter

from gateway.prompt_classes import MeasuredApi, PromptClass
from gateway.steering.board import Board, slot_of
from gateway.steering.constants import (
    CURVES_PER_S,
    HALF_LIFE_S,
    MEMORY_HALF_LIVES_S,
    REFRESH_MOST_S,
    REFRESHED_AT_LEAST_S,
    SLOT_S,
    SLOTS_KEPT,
    STANDINGS_AGE_S,
)
from gateway.steering.evidence import Evidences, lasting, read_evidence
from gateway.steering.memory import Memory
from gateway.steering.sizing import Sizing, size_of
from gateway.steering.standings import Standings, Usuals, answer_tokens, standings, usuals
from gateway.steering.tally import Counts, add_weighted


class Snapshots:
    """The latest standings of each model, API and size of prompt."""

    def __init__(self, board: Board, clock: Callable[[], float], unix_clock: Callable[[], float]) -> None:
        self._memory = Memory()
        self._board = board
        self._clock = clock
        self._unix_clock = unix_clock
        self._models: dict[str, _Known] = {}
        self._sizings: dict[str, dict[tuple[MeasuredApi, str], Sizing]] = {}  # by model
        self._refreshed_at_s = -inf

    def of(self, model: str, prompt_class: PromptClass, prompt_tokens: int | None = None) -> Standings:
        """Return the standings for such a prompt, at most a second old if time allows."""
        return self.at(model, prompt_class.api, size_of(prompt_tokens, prompt_class.size))

    def at(self, model: str, api: MeasuredApi, size: int) -> Standings:
        """Return the same for an API and a size of prompt."""
        known = self._models.get(model)
        now_s = self._clock()
        if known is None or (
            now_s - known.checked_at_s >= STANDINGS_AGE_S and now_s - self._refreshed_at_s > REFRESHED_AT_LEAST_S
        ):
            known = self._look(model, now_s)
        known.asked_at_s = now_s
        return known.standings(api, size)

    def fresh(self, model: str, prompt_class: PromptClass) -> Standings:
        """Return standings computed from everything known now."""
        known = self._look(model, self._clock())
        return known.standings(prompt_class.api, size_of(None, prompt_class.size))

    def sizing(self, model: str, api: MeasuredApi, deployment: str) -> Sizing:
        """Return how the size of a prompt affects a deployment."""
        sizings = self._sizings_of(model)
        sizing = sizings.get((api, deployment))
        if sizing is None:
            sizing = sizings[api, deployment] = Sizing()
        return sizing

    def _sizings_of(self, model: str) -> dict[tuple[MeasuredApi, str], Sizing]:
        """Return those of a model; they are kept as long as its memory, even if it is not called."""
        sizings = self._sizings.get(model)
        if sizings is None:
            sizings = self._sizings[model] = {}
        return sizings

    def epoch(self, model: str, deployment: str) -> int:
        """Return the epoch in which a deployment's samples count."""
        known = self._models.get(model)
        return 0 if known is None else known.epochs.get(deployment, 0)

    def begin_epoch(self, model: str, deployment: str) -> None:
        """Forget the recent past of a deployment: it is back at its usual speed."""
        known = self._models.get(model)
        if known is not None:
            known.epochs[deployment] = max(known.epochs.get(deployment, 0) + 1, int(self._unix_clock()))
            known.outdate()  # ``lately`` has become the past

    def remember(self, model: str, counts: Mapping[str, float], slot: int) -> None:
        """Add counts from before this process began, as of ``slot``."""
        self._memory.learn(model, counts, min(slot, slot_of(self._unix_clock())))
        known = self._models.get(model)
        if known is not None:
            known.outdate()

    def refresh(self, passed_s: float) -> list[str]:
        """Recompute what has changed, as far as ``passed_s`` seconds allow, at least one; return the models."""
        now_s = self._refreshed_at_s = self._clock()
        left, done, began_s = CURVES_PER_S * passed_s, list[str](), perf_counter()
        due = [(known.checked_at_s, model) for model, known in self._models.items() if known.is_due(now_s)]
        for number, (_, model) in enumerate(sorted(due)):
            known = self._models[model]
            if left <= 0 or (number and perf_counter() - began_s > REFRESH_MOST_S):
                break
            if known.asked_at_s < known.checked_at_s:
                self._fold(model, known, now_s)
                continue
            before = known.made_at_s
            if self._look(model, now_s).made_at_s != before:
                left -= known.curves
                done.append(model)
        return done

    def forget(self) -> set[str]:
        """Drop snapshots that were not used for as long as a board keeps samples; return the remaining models."""
        oldest_s = self._clock() - SLOTS_KEPT * SLOT_S
        for model in [model for model, known in self._models.items() if known.asked_at_s < oldest_s]:
            del self._models[model]
        kept = {*self._models, *self._memory.models()}
        self._sizings = {model: sizings for model, sizings in self._sizings.items() if model in kept}
        return set(self._models)

    def _look(self, model: str, now_s: float) -> "_Known":
        """Check for new counts of a model."""
        known = self._models.get(model)
        if known is None:
            known = self._models[model] = _Known(self._sizings_of(model))
            known.asked_at_s = now_s
        unix_s = self._unix_clock()
        slot = slot_of(unix_s)
        key = (self._board.version(model, unix_s), slot)
        known.checked_at_s = now_s
        if known.key == key:
            return known
        known.made_at_s = now_s
        if known.slot != slot:
            known.slot = slot
            known.forget_usual()
            known.scales = self._remembered(model, slot, unix_s)
            for sizing in known.sizings.values():
                sizing.fit(now_s)
        counts = self._board.counts(model, unix_s, half_life_s=HALF_LIFE_S)
        known.take(read_evidence(counts, known.epochs, newest=int(unix_s) + _A_DAY_S), answer_tokens(counts))
        known.key = key
        return known

    def _fold(self, model: str, known: "_Known", now_s: float) -> None:
        """Move what the board will soon drop to memory, for a model that is not called at the moment."""
        known.checked_at_s = now_s
        unix_s = self._unix_clock()
        self._memory.fold(model, self._board.slots(model, unix_s), slot_of(unix_s))

    def _remembered(self, model: str, slot: int, unix_s: float) -> tuple[Evidences, ...]:
        """Return what is known on the longer scales, the longest first.

        That is memory plus the board. On each scale a sample has only the weight that it lacks on the shorter ones,
        so that it counts once.
        """
        slots = self._board.slots(model, unix_s)
        known = self._models[model]
        since = self._memory.fold(model, slots, slot)
        hours, minutes = (self._memory.counts(model, scale, slot) for scale in range(len(MEMORY_HALF_LIVES_S)))
        add_weighted(hours, minutes, -1.0)
        for each, counts in slots.items():
            age_s = max(0, slot - each) * SLOT_S
            current, before = known.lasting(each, counts)
            if each >= since:
                in_hours, in_minutes = (0.5 ** (age_s / half_life_s) for half_life_s in MEMORY_HALF_LIVES_S)
                for part in (current, before):
                    add_weighted(hours, part, in_hours - in_minutes)
                    add_weighted(minutes, part, in_minutes)
            add_weighted(minutes, current, -(0.5 ** (age_s / HALF_LIFE_S)))
        return read_evidence(hours), read_evidence(minutes)


class _Known:
    """What is known about one model."""

    __slots__ = (
        "_answer_tokens",
        "_asked",
        "_lasting",
        "_lately",
        "_made",
        "_sized",
        "_usuals",
        "asked_at_s",
        "checked_at_s",
        "epochs",
        "key",
        "made_at_s",
        "scales",
        "sizings",
        "slot",
    )

    def __init__(self, sizings: dict[tuple[MeasuredApi, str], Sizing]) -> None:
        self.asked_at_s = self.made_at_s = -inf
        self.outdate()
        self.scales: tuple[Evidences, ...] = ({},)
        self.epochs: dict[str, int] = {}
        self.sizings = sizings  # by API and deployment
        self._lately: Evidences = {}
        self._answer_tokens = 0.0
        self._lasting: dict[int, tuple[tuple[float, ...], tuple[Counts, Counts]]] = {}  # by slot: for which state
        self._usuals: dict[MeasuredApi, tuple[float, Usuals]] = {}  # by API, with the number of recent attempts
        self._made: dict[MeasuredApi, Standings] = {}  # by API, for the reference size
        self._sized: dict[tuple[MeasuredApi, int], Standings] = {}  # by API and size
        self._asked: set[tuple[MeasuredApi, int]] = set()  # those used since they were last computed

    @property
    def curves(self) -> int:
        """The number of curves computed by the last check."""
        return len(self._lately) * max(1, len(self._made))

    def is_due(self, now_s: float) -> bool:
        """Whether to check again: it was used since, or the board may drop something."""
        asked = self.asked_at_s >= self.checked_at_s
        return now_s - self.checked_at_s >= (STANDINGS_AGE_S if asked else SLOT_S)

    def lasting(self, slot: int, counts: Mapping[str, float]) -> tuple[Counts, Counts]:
        """Return ``evidence.lasting`` of a slot; reused if nothing was counted since, as most slots are closed."""
        state = (len(counts), sum(counts.values()), len(self.epochs), sum(self.epochs.values()))
        known = self._lasting.get(slot)
        if known is None or known[0] != state:
            if len(self._lasting) > SLOTS_KEPT:
                self._lasting = {each: kept for each, kept in self._lasting.items() if each > slot - SLOTS_KEPT}
            known = self._lasting[slot] = (state, lasting(counts, self.epochs))
        return known[1]

    def outdate(self) -> None:
        """Recompute everything at the next check."""
        self.checked_at_s = -inf
        self.key = _NEVER  # board version and slot from which the standings were computed
        self.slot = -1

    def forget_usual(self) -> None:
        """Recompute what is usual at the next check."""
        self._usuals.clear()

    def take(self, lately: Evidences, answer_tokens: float) -> None:
        """Set the recent evidence, and compute the standings that were used before."""
        self._lately, self._answer_tokens = lately, answer_tokens
        for name, evidence in lately.items():
            if evidence.epoch > self.epochs.get(name, 0):
                self.epochs[name] = evidence.epoch
        apis, sizes = list(self._made), list(self._asked)
        self._made, self._sized, self._asked = {}, {}, set()
        for api in apis:
            self._standings(api)
        for api, size in sizes:
            self.standings(api, size)
        self._asked.clear()

    def standings(self, api: MeasuredApi, size: int) -> Standings:
        """Return the standings for prompts of a size."""
        sized = self._sized.get((api, size))
        self._asked.add((api, size))
        if sized is None:
            made = self._standings(api)
            scales = {name: sizing.factor(size) for (of, name), sizing in self.sizings.items() if of is api}
            sized = self._sized[api, size] = made.sized(scales, _UNSEEN.factor(size))
        return sized

    def _standings(self, api: MeasuredApi) -> Standings:
        made = self._made.get(api)
        if made is None:
            seen, usual = self._usuals.get(api, (0.0, None))
            n = sum(each.n for each in self._lately.values())
            if usual is None or n > _MUCH_MORE * seen:
                usual = usuals(self.scales, self._lately, api)
                self._usuals[api] = (n, usual)
            made = self._made[api] = standings(self._lately, usual, api, self._answer_tokens)
        return made


_MUCH_MORE = 1.25  # factor of attempts since the usual was last computed: at the start that is every other second
_NEVER = (-1, -1)
_A_DAY_S = 86_400  # no replica's clock is so far ahead
_UNSEEN = Sizing()
