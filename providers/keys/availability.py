"""The availability of something with rate limits that may refuse requests: a key for a model, or a deployment.

    state     meaning
    READY     requests may be sent
    COOLING   rate-limited: no requests until an instant
    REFUSED   it refuses all requests until its configuration is corrected: no requests, except for a periodic try

    event                  in which state   what follows
    cool(retry_after_s)    any              COOLING for that time, within limits, or until an earlier, longer wait ends
    (that time passes)     COOLING          REFUSED if it has refused, else READY
    refuse()               any              REFUSED, and just tried; after the wait if it is COOLING
    tried()                any              the next try is due after ``try_every_s``
    answered(), mended()   any              not REFUSED any more; a wait for a rate limit continues

Besides, it keeps the headroom of the rate limit: the last reported value, refilled steadily since. Instants are seconds
of one monotonic clock.
"""

from enum import Enum, auto

import msgspec

LONG_AGO_S = float("-inf")


class KeyReadiness(Enum):
    """Whether requests may be sent."""

    READY = auto()
    COOLING = auto()
    REFUSED = auto()


class Waits(msgspec.Struct, frozen=True):
    """The waiting times, in seconds."""

    cool_min_s: float  # after a rate limit without a time
    cool_max_s: float  # the maximum after any rate limit
    try_every_s: float  # between tries of something that refuses
    refill_s: float  # until an exhausted limit has refilled completely


class Availability:
    """The state of one key or deployment."""

    __slots__ = ("_headroom", "_told_at_s", "_waits", "cooling_until_s", "refused", "tried_at_s")

    def __init__(self, waits: Waits) -> None:
        self.cooling_until_s = LONG_AGO_S
        self.refused = False
        self.tried_at_s = LONG_AGO_S  # when it was last refused, or tried
        self._waits = waits
        self._headroom: float | None = None  # None: it was never reported
        self._told_at_s = LONG_AGO_S

    def readiness(self, now_s: float) -> KeyReadiness:
        """Return the state at ``now_s``."""
        if now_s < self.cooling_until_s:
            return KeyReadiness.COOLING
        return KeyReadiness.REFUSED if self.refused else KeyReadiness.READY

    def cooling_s(self, now_s: float) -> float:
        """Return the remaining wait for the key's rate limit, in seconds; 0 without one."""
        return max(0.0, self.cooling_until_s - now_s)

    def is_due(self, now_s: float) -> bool:
        """Whether the key is refused, and due for a try."""
        return self.refused and now_s >= self.cooling_until_s and now_s - self.tried_at_s >= self._waits.try_every_s

    @property
    def has_told(self) -> bool:
        """Whether a headroom was ever reported."""
        return self._headroom is not None

    def headroom(self, now_s: float) -> float:
        """Return the estimated headroom of the key's rate limit, 0 to 1; 1 if none was ever reported."""
        if self._headroom is None or self._headroom >= 1.0:
            return 1.0
        left = self._headroom + (now_s - self._told_at_s) / self._waits.refill_s
        if left >= 1.0:
            self._headroom = 1.0
        return min(1.0, left)

    def cool(self, retry_after_s: float | None, now_s: float) -> None:
        """Handle a rate limit; ``retry_after_s`` is the time to wait, if the provider sent one."""
        cool_s = min(self._waits.cool_max_s, max(self._waits.cool_min_s, retry_after_s or 0.0))
        self.cooling_until_s = max(self.cooling_until_s, now_s + cool_s)

    def refuse(self, now_s: float) -> bool:
        """Handle a refusal; return False if the key was refused already."""
        news = not self.refused
        self.refused = True
        self.tried_at_s = now_s
        return news

    def tried(self, now_s: float) -> None:
        """Note that a request tries the key, so that no other one does."""
        self.tried_at_s = now_s

    def answered(self) -> bool:
        """Handle an answer; return whether the key was refused before."""
        refused, self.refused = self.refused, False
        return refused

    def mended(self) -> None:
        """Handle a new configuration: requests may be accepted now."""
        self.refused = False

    def told(self, headroom: float, now_s: float) -> None:
        """Store the reported headroom of the key's rate limit, 0 to 1."""
        self._headroom, self._told_at_s = headroom, now_s
