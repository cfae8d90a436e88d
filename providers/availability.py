"""Whether something may be asked that has rate limits and can refuse: a key for a model, or a whole deployment.

    state     meaning
    READY     may be asked
    COOLING   rate-limited: left alone until an instant
    REFUSED   it refuses whoever asks, until somebody mends it: left alone, but for a try now and then

    event                  in which state   what follows
    cool(retry_after_s)    any              COOLING, for as long as it asks, within bounds; a longer wait stands
    (that time passes)     COOLING          REFUSED if it is refused, else READY
    refuse()               any              refused, and just tried; shows as COOLING while that lasts
    tried()                any              the next try is due after ``try_every_s``
    answered(), mended()   any              not refused any more; a wait that it asked for still stands

Beside the state stands the headroom, what its rate limit leaves: as it was told last, refilled steadily since. Instants
are seconds of any one monotonic clock.
"""

from enum import Enum, auto

import msgspec

LONG_AGO_S = float("-inf")


class Readiness(Enum):
    """Whether it may be asked."""

    READY = auto()
    COOLING = auto()
    REFUSED = auto()


class Waits(msgspec.Struct, frozen=True):
    """How long is waited for what. Seconds."""

    cool_min_s: float  # after a rate limit that does not say how long
    cool_max_s: float  # at most, whatever it says
    try_every_s: float  # between tries of what is refused
    refill_s: float  # until a limit that was used up has come back whole


class Availability:
    """The state of one of them."""

    __slots__ = ("_headroom", "_told_at_s", "_waits", "cooling_until_s", "refused", "tried_at_s")

    def __init__(self, waits: Waits) -> None:
        self.cooling_until_s = LONG_AGO_S
        self.refused = False
        self.tried_at_s = LONG_AGO_S  # when it was last refused, or tried
        self._waits = waits
        self._headroom: float | None = None  # None: it was never told
        self._told_at_s = LONG_AGO_S

    def readiness(self, now_s: float) -> Readiness:
        """Return the state at ``now_s``."""
        if now_s < self.cooling_until_s:
            return Readiness.COOLING
        return Readiness.REFUSED if self.refused else Readiness.READY

    def cooling_s(self, now_s: float) -> float:
        """Return for how long it is still left alone for its rate limit; 0 if it is not."""
        return max(0.0, self.cooling_until_s - now_s)

    def is_due(self, now_s: float) -> bool:
        """Tell whether it is refused, and to be tried again."""
        return self.refused and now_s >= self.cooling_until_s and now_s - self.tried_at_s >= self._waits.try_every_s

    @property
    def has_told(self) -> bool:
        """Whether the headroom was ever told."""
        return self._headroom is not None

    def headroom(self, now_s: float) -> float:
        """Return what its rate limit should leave by now, 0 to 1; 1 where it was never told."""
        if self._headroom is None or self._headroom >= 1.0:
            return 1.0
        left = self._headroom + (now_s - self._told_at_s) / self._waits.refill_s
        if left >= 1.0:
            self._headroom = 1.0
        return min(1.0, left)

    def cool(self, retry_after_s: float | None, now_s: float) -> None:
        """Handle a rate limit that asks to be left alone for ``retry_after_s``."""
        cool_s = min(self._waits.cool_max_s, max(self._waits.cool_min_s, retry_after_s or 0.0))
        self.cooling_until_s = max(self.cooling_until_s, now_s + cool_s)

    def refuse(self, now_s: float) -> bool:
        """Handle a refusal; return whether that is news."""
        news = not self.refused
        self.refused = True
        self.tried_at_s = now_s
        return news

    def tried(self, now_s: float) -> None:
        """Note that it is being tried, so that only one request does."""
        self.tried_at_s = now_s

    def answered(self) -> bool:
        """Handle an answer; return whether it was refused before."""
        refused, self.refused = self.refused, False
        return refused

    def mended(self) -> None:
        """Handle a new configuration: what was refused may be accepted now."""
        self.refused = False

    def told(self, headroom: float, now_s: float) -> None:
        """Store what is left of its rate limit, 0 to 1."""
        self._headroom, self._told_at_s = headroom, now_s
