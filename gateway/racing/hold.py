"""Holding back a first token: a slower starter that decodes faster may still be the better answer.

What comes after the first token costs the reader of *i* a predicted after_i: under ``completion`` all of its decoding,
under ``reading`` what of it one has to wait for, under ``first_token`` its stalls (``Plan.decode_s``;
docs/policy.md#the-loss). When *i* delivers first while *j* with a smaller
one still runs, *i* is held for at most min(5 s, after_i - min_j after_j): longer, and even the best could not make up
for it; nor beyond the call's deadline, while that can be kept. An attempt is never held for a probe, which may hang,
nor for a deployment without such a prediction.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, Protocol, TypeVar

from gateway.attempt_records import AttemptStart, Role
from gateway.racing.timers import Timer, Timers

HOLD_MIN_S = 0.005  # less is worth no timer, and no prediction is so good
HOLD_MAX_S = 5.0  # a client waits no longer for what is only predicted
HOLD_MARGIN_S = 0.02  # before a deadline a held attempt is let go, so that its token is there in time


class Launched(Protocol):
    """An attempt, as far as its hold depends on it."""

    start: AttemptStart


_A = TypeVar("_A", bound=Launched)


class Hold(Generic[_A]):
    """At most one attempt, held. ``release`` is called with it when its time is up."""

    def __init__(
        self,
        decode_s: Mapping[str, float],
        release: Callable[[_A], None],
        loop: Timers,
        *,
        clock: Callable[[], float],
        deadline_at: float | None = None,
    ) -> None:
        """Make one for a call whose first token is wanted by ``deadline_at`` of ``clock``, if at a certain time."""
        self.leader: _A | None = None
        self._decode_s = decode_s  # seconds each should cost after its first token; empty: nobody is ever held
        self._release: Callable[[_A], None] | None = release
        self._loop = loop
        self._clock = clock
        self._deadline_at = deadline_at
        self._timer: Timer | None = None

    @property
    def possible(self) -> bool:
        """Whether any attempt is worth holding."""
        return bool(self._decode_s)

    def begin(self, attempt: _A, others: Iterable[_A]) -> bool:
        """Hold ``attempt`` if one of ``others`` may be worth waiting for; return whether it is held."""
        if not self._decode_s or self._release is None:
            return False
        hold_s = min(HOLD_MAX_S, self._gain_s(attempt, others))
        if hold_s > HOLD_MIN_S and self._deadline_at is not None and (left_s := self._deadline_at - self._clock()) > 0:
            hold_s = min(hold_s, left_s - HOLD_MARGIN_S)
        if hold_s <= HOLD_MIN_S:
            return False
        self.leader = attempt
        self._timer = self._loop.call_later(hold_s, self._release, attempt)
        return True

    def overtakes(self, attempt: _A) -> bool:
        """Tell whether ``attempt`` is a better answer than the one held."""
        return self.leader is not None and self._gain_s(self.leader, (attempt,)) > 0

    def failed(self, attempt: _A, running: Iterable[_A]) -> None:
        """Handle a failure of the held attempt, or of one it was held for."""
        if attempt is self.leader:
            self.end()
        elif self.leader is not None and self._release is not None and self._gain_s(self.leader, running) <= 0:
            self._release(self.leader)

    def end(self) -> None:
        """Hold nobody any more."""
        self.leader = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def forget(self) -> None:
        """Let go of whoever releases: the race is over."""
        self.end()
        self._release = None

    def _gain_s(self, attempt: _A, others: Iterable[_A]) -> float:
        """Return how much sooner, in seconds, the fastest decoder of ``others`` should be done; 0 where none counts."""
        known = self._decode_s
        own_s = known.get(attempt.start.deployment)
        awaited = (other.start.deployment for other in others if other.start.role is not Role.PROBE)
        sooner_s = [known[name] for name in awaited if name in known]
        return 0.0 if own_s is None or not sooner_s else own_s - min(sooner_s)
