"""The backup of a race (``race.keep_rival``): a loser that runs on, and answers if the winner fails."""

from collections.abc import Iterable
from enum import Enum
from typing import Generic, Protocol, TypeVar

from gateway.core.attempts import AttemptStart
from gateway.racing.attempt import AttemptState
from gateway.racing.measurement import Measurement

#     NONE ──► STANDING_BY ──► CALLED         the winner has failed; the backup is an ordinary attempt again
#                   │
#                   └────────► DISMISSED      the winner's answer is complete, or the backup cannot answer any more
#
# Calls that do not stream may have a backup: the client has nothing of the winner's answer yet. The client of a stream
# has a part of it, so a stream has a backup only if the answer is spoken, while the backup's text is the same
# (``rescue``). The backup was launched like any extra attempt, under the same limits, which count a complete answer.

_MAY_ANSWER = frozenset({AttemptState.ASKED, AttemptState.HELD})


class BackupState(Enum):
    """The state of the backup."""

    NONE = "none"  # no attempt has won yet, or the winner ran alone
    STANDING_BY = "standing_by"
    CALLED = "called"
    DISMISSED = "dismissed"


class BackupCandidate(Protocol):
    """The fields of an attempt that decide whether it can be the backup."""

    start: AttemptStart
    state: AttemptState
    measurement: Measurement


_A = TypeVar("_A", bound=BackupCandidate)


class Backup(Generic[_A]):
    """The backup of one race: at most one attempt, chosen at the first win."""

    __slots__ = ("_attempt", "_kept", "state")

    def __init__(self) -> None:
        self.state = BackupState.NONE
        self._attempt: _A | None = None
        self._kept: str | None = None  # the id of the backup, which outlives the race

    def replace(self, refused: _A, by: _A) -> None:
        """Have ``by`` stand by if ``refused``, whose request it repeats, stood by."""
        if self._attempt is refused:
            self._attempt = by
            self._kept = by.start.id if self._kept == refused.start.id else self._kept

    def choose(self, losers: Iterable[_A]) -> _A | None:
        """Choose the loser that keeps running: one with a first token, else the loser that was launched first."""
        able = [loser for loser in losers if loser.state in _MAY_ANSWER]
        if self.state is not BackupState.NONE or not able:
            return None
        chosen = min(able, key=lambda each: (each.measurement.first_at is None, each.start.number))
        self.state, self._attempt, self._kept = BackupState.STANDING_BY, chosen, chosen.start.id
        return chosen

    def is_standing_by(self, attempt: _A) -> bool:
        """Whether ``attempt`` is the backup and runs."""
        return self.state is BackupState.STANDING_BY and attempt is self._attempt

    def was_kept(self, attempt: _A) -> bool:
        """Whether ``attempt`` was ever the backup."""
        return self._kept == attempt.start.id

    @property
    def running(self) -> _A | None:
        """The backup; None if there is none that can answer."""
        backup = self._attempt if self.state is BackupState.STANDING_BY else None
        return None if backup is None or backup.state not in _MAY_ANSWER else backup

    def call(self) -> _A | None:
        """Return the backup after the winner has failed; None if the backup cannot answer."""
        backup = self.running
        self._leave(BackupState.DISMISSED if backup is None else BackupState.CALLED)
        return backup

    def dismiss(self) -> _A | None:
        """End the standing by, as no backup is needed any more; return the backup if there is one."""
        backup = self._attempt if self.state is BackupState.STANDING_BY else None
        self._leave(BackupState.DISMISSED)
        return backup

    def _leave(self, state: BackupState) -> None:
        if self.state is BackupState.STANDING_BY:
            self.state = state
        self._attempt = None
