"""Holds back a first token, where settings ask for it: a later but faster attempt may give the better answer.

After its first token, attempt *i* costs the reader a predicted time after_i (``Plan.decode_s``;
docs/policy.md#the-loss): all decoding under ``completion``, the part that a reader waits for under ``reading``, the
stalls under ``first_token``. If *i* has its first token while an attempt *j* with a smaller after_j still runs, *i* is
held for at most min(5 s, after_i - min_j after_j): later, even the best *j* could not make up for the wait.

A hold ends before the call's deadline, if the deadline can be met. No attempt is held for a probe, which may hang, nor
for a deployment without a prediction. Without ``RaceSettings.holds`` a plan has no predictions, and the first token
wins at once.

``Hold`` decides, without I/O, from the time and from which attempt fails. The entry of the model has the timer.

For example, under ``completion``, *i* needs 4 s after its first token, and *j*, still silent, would need 2.5 s. Then
*i* is held for at most 1.5 s, and *j* wins if its first token comes by then.
"""

from collections.abc import Iterable, Mapping
from typing import Generic, Protocol, TypeVar

import msgspec

from gateway.core.attempts import AttemptStart, Role
from gateway.racing.measurement import milliseconds

HOLD_MIN_S = 0.005  # a shorter hold is not worth a timer: predictions are less exact
HOLD_MAX_S = 5.0  # the maximum wait for an answer that is only predicted to be better
HOLD_MARGIN_S = 0.02  # a hold ends this long before the deadline, so that the token is sent in time


class HoldAttempt(Protocol):
    """The fields of an attempt on which its hold depends."""

    start: AttemptStart


class HoldResult(msgspec.Struct, frozen=True):
    """A hold that ended with a win: the held attempt won, or another one overtook it."""

    ms: float  # from the held token to the win
    awaited: str  # the deployment that was predicted to be better
    gain_ms: float  # how much sooner it should end after its first token, by the plan's prediction


_A = TypeVar("_A", bound=HoldAttempt)


class Hold(Generic[_A]):
    """Holds at most one attempt, as a value without a timer: ``now`` is a time of the race's clock, in seconds."""

    def __init__(self, decode_s: Mapping[str, float], *, deadline_at: float | None = None) -> None:
        """``deadline_at``: the client's deadline for the first token; None: no deadline."""
        self.leader: _A | None = None
        self.until = 0.0  # when the leader is to be released
        self._decode_s = decode_s  # deployment → predicted seconds after the first token; empty: no holds
        self._deadline_at = deadline_at
        self._since = 0.0  # when the leader had its token
        self._awaited = ""
        self._gained_s = 0.0

    @property
    def possible(self) -> bool:
        """Whether any attempt is worth holding."""
        return bool(self._decode_s)

    def begin(self, attempt: _A, others: Iterable[_A], now: float) -> bool:
        """Hold ``attempt`` if one of ``others`` may be worth the wait; return whether the attempt is held."""
        if not self._decode_s:
            return False
        gain_s, awaited = self._gain(attempt, others)
        hold_s = min(HOLD_MAX_S, gain_s)
        if hold_s > HOLD_MIN_S and self._deadline_at is not None and (left_s := self._deadline_at - now) > 0:
            hold_s = min(hold_s, left_s - HOLD_MARGIN_S)
        if hold_s <= HOLD_MIN_S:
            return False
        self.leader, self._since, self._awaited, self._gained_s = attempt, now, awaited, gain_s
        self.until = now + hold_s
        return True

    def overtakes(self, attempt: _A) -> bool:
        """Whether ``attempt`` is predicted to be better than the held attempt."""
        return self.leader is not None and self._gain(self.leader, (attempt,))[0] > 0

    def failed(self, attempt: _A, running: Iterable[_A]) -> _A | None:
        """Handle a failure of the held attempt, or of the awaited one; return the attempt to release, if any.

        ``running``: the attempts that may still bid.
        """
        if attempt is self.leader:
            self.end()
        elif self.leader is not None and self._gain(self.leader, running)[0] <= 0:
            return self.leader
        return None

    def held(self, now: float) -> HoldResult | None:
        """Return the hold that a win at ``now`` ends; None if no attempt is held."""
        if self.leader is None:
            return None
        return HoldResult(milliseconds(now - self._since), self._awaited, milliseconds(self._gained_s))

    def end(self) -> None:
        """End the hold, if there is one."""
        self.leader = None

    def _gain(self, attempt: _A, others: Iterable[_A]) -> tuple[float, str]:
        """Return how many seconds earlier the best of ``others`` should complete, and its name; 0 if none would."""
        speeds = self._decode_s
        own_s = speeds.get(attempt.start.deployment)
        starts = (other.start for other in others)
        awaited = (each.deployment for each in starts if (each.counts_as or each.role) is not Role.PROBE)
        best = min((name for name in awaited if name in speeds), key=speeds.__getitem__, default=None)
        return (0.0, "") if own_s is None or best is None else (own_s - speeds[best], best)
