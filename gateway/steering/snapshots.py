"""Snapshots: the standings as the hot path reads them, made again when the board changed, at most once a second."""

from collections.abc import Callable

import msgspec

from gateway.steering.board import Board, slot_of
from gateway.steering.constants import HALF_LIFE_S, SLOT_S, SLOTS_KEPT, STANDINGS_AGE_S
from gateway.steering.standings import Standings, answer_tokens, standings
from gateway.steering.tally import Tally, read_tallies


class _Snapshot(msgspec.Struct):
    checked_at_s: float
    key: tuple[int, int]  # board version and slot: what the standings were made of
    standings: Standings


class _Tallied(msgspec.Struct, frozen=True):
    key: tuple[int, int]
    tallies: dict[str, Tally]
    answer_tokens: float


class Snapshots:
    """The latest standings of each model and prompt class."""

    def __init__(self, board: Board, clock: Callable[[], float], unix_clock: Callable[[], float]) -> None:
        self._board = board
        self._clock = clock
        self._unix_clock = unix_clock
        self._snapshots: dict[tuple[str, int], _Snapshot] = {}
        self._tallies: dict[str, _Tallied] = {}  # read once for all prompt classes

    def of(self, model: str, prompt_class: int) -> Standings:
        """Return standings at most a second old."""
        now_s = self._clock()
        snapshot = self._snapshots.get((model, prompt_class))
        if snapshot is not None and now_s - snapshot.checked_at_s < STANDINGS_AGE_S:
            return snapshot.standings
        return self._look(model, prompt_class, snapshot, now_s).standings

    def fresh(self, model: str, prompt_class: int) -> Standings:
        """Return standings made of everything known now."""
        return self._look(model, prompt_class, self._snapshots.get((model, prompt_class)), self._clock()).standings

    def forget(self) -> set[str]:
        """Drop snapshots not asked for as long as a board keeps samples; return the models that remain."""
        oldest_s = self._clock() - SLOTS_KEPT * SLOT_S
        for key in [key for key, snapshot in self._snapshots.items() if snapshot.checked_at_s < oldest_s]:
            del self._snapshots[key]
        kept = {model for model, _ in self._snapshots}
        for model in [model for model in self._tallies if model not in kept]:
            del self._tallies[model]
        return kept

    def _look(self, model: str, prompt_class: int, snapshot: _Snapshot | None, now_s: float) -> _Snapshot:
        unix_s = self._unix_clock()
        key = (self._board.version(model, unix_s), slot_of(unix_s))
        if snapshot is None or snapshot.key != key:
            known = self._tallied(model, key, unix_s)
            made = standings(known.tallies, prompt_class, known.answer_tokens)
            snapshot = self._snapshots[model, prompt_class] = _Snapshot(now_s, key, made)
        snapshot.checked_at_s = now_s
        return snapshot

    def _tallied(self, model: str, key: tuple[int, int], unix_s: float) -> _Tallied:
        known = self._tallies.get(model)
        if known is None or known.key != key:
            counts = self._board.counts(model, unix_s, half_life_s=HALF_LIFE_S)
            known = self._tallies[model] = _Tallied(key, read_tallies(counts), answer_tokens(counts))
        return known
