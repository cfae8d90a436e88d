"""The rival that runs on behind the winner (``race.keep_rival``): it answers if the winner breaks.

    NOBODY ──► BEHIND ──► CALLED         the winner has broken; it is an attempt like any other again
                 │
                 └──────► DISMISSED      the winner's answer is whole, or the rival cannot answer any more

Only whole answers have one: of a stream the client has a part already. It began as any extra attempt did, under the
same limits, which count a whole answer for each.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Generic, Protocol, TypeVar

from gateway.attempt_records import AttemptStart
from gateway.racing.attempt_state import State
from gateway.racing.measurement import Measurement

_MAY_ANSWER = frozenset({State.ASKED, State.HELD})


class Place(Enum):
    """Where the rival is."""

    NOBODY = "nobody"  # no attempt has won yet, or the winner ran alone
    BEHIND = "behind"
    CALLED = "called"
    DISMISSED = "dismissed"


class Runner(Protocol):
    """The fields of an attempt on which its place depends."""

    start: AttemptStart
    state: State
    measurement: Measurement


_A = TypeVar("_A", bound=Runner)


class Rival(Generic[_A]):
    """At most one attempt of a race, chosen at the first claim."""

    __slots__ = ("_attempt", "_kept", "place")

    def __init__(self) -> None:
        self.place = Place.NOBODY
        self._attempt: _A | None = None
        self._kept: str | None = None  # its attempt's id, known also when the race is over

    def choose(self, losers: Iterable[_A]) -> _A | None:
        """Choose who runs on, at the first claim: who has a first token, else who was launched first."""
        able = [loser for loser in losers if loser.state in _MAY_ANSWER]
        if self.place is not Place.NOBODY or not able:
            return None
        chosen = min(able, key=lambda each: (each.measurement.first_at is None, each.start.number))
        self.place, self._attempt, self._kept = Place.BEHIND, chosen, chosen.start.id
        return chosen

    def is_behind(self, attempt: _A) -> bool:
        """Whether ``attempt`` runs on behind the winner."""
        return self.place is Place.BEHIND and attempt is self._attempt

    def was_kept(self, attempt: _A) -> bool:
        """Whether ``attempt`` has run on, whatever came of it."""
        return self._kept == attempt.start.id

    def call(self) -> _A | None:
        """Return the rival, as the winner has broken; None if it cannot answer."""
        found = self._attempt if self.place is Place.BEHIND else None
        if found is not None and found.state not in _MAY_ANSWER:
            found = None
        self._leave(Place.DISMISSED if found is None else Place.CALLED)
        return found

    def dismiss(self) -> _A | None:
        """Return the rival if it still runs behind the winner, which does not need it any more."""
        found = self._attempt if self.place is Place.BEHIND else None
        self._leave(Place.DISMISSED)
        return found

    def _leave(self, place: Place) -> None:
        if self.place is Place.BEHIND:
            self.place = place
        self._attempt = None
