"""The health of one deployment as this replica sees it: cool-down, breaker, scarcity price and attempts in flight."""

from enum import StrEnum
from math import exp2, inf

import msgspec

from gateway.prompt_classes import PromptClass
from gateway.steering.constants import (
    COOL_MAX_S,
    COOL_MIN_S,
    HEADROOM_WINDOW_S,
    LATE_MIN_S,
    LIMIT_GROWS,
    LIMIT_KEPT_S,
    OPEN_MAX_S,
    OPEN_S,
    OUT_PROBE_EVERY_S,
    PRICE_HALF_LIFE_S,
    PRICE_MAX_S,
    PRICE_MIN_S,
    PRICE_STEP_S,
    PROBE_EVERY_S,
    PROBE_FACTOR,
    PROBE_WATCH_S,
    REFILLED_S,
    STRIKES,
    TOLD_FROM,
    UNPROBED_S,
)
from gateway.steering.load import Launches, Load
from providers.availability import LONG_AGO_S, Availability, Readiness, Waits
from providers.errors import ErrorKind

_WAITS = Waits(cool_min_s=COOL_MIN_S, cool_max_s=COOL_MAX_S, try_every_s=OUT_PROBE_EVERY_S, refill_s=HEADROOM_WINDOW_S)
_NEARLY = 0.999  # of a time, to allow for differences between clocks
# Messages of other errors may quote the failed prompt, which other callers must not see.
_SAYS_NOTHING_OF_REQUESTS = frozenset({
    ErrorKind.PROVIDER_AUTH,
    ErrorKind.NOT_FOUND,
    ErrorKind.RATE_LIMITED,
    ErrorKind.CONNECT_ERROR,
    ErrorKind.CONNECT_TIMEOUT,
})  # fmt: skip


class State(StrEnum):
    """Whether a deployment may be used."""

    OK = "ok"
    COOLING = "cooling"  # rate-limited
    OPEN = "open"  # broken; not used
    HALF_OPEN = "half-open"  # broken; one probe at a time
    OUT = "out"  # it rejects the key or does not know the model; the operator has to correct that


class Condition(msgspec.Struct, eq=False):
    """The health of a deployment at one instant. The same object is reused while only ``in_flight`` changes."""

    state: State
    cooling_s: float  # seconds until the cool-down ends
    probe_due: bool  # half-open or out, and not tried recently
    in_flight: int
    price_s: float
    headroom: float = 1.0  # 0 to 1, the expected unused part of its rate limit
    crowding: float = 1.0  # the factor of the load there on the time to first token
    asked_at_s: float = LONG_AGO_S  # the last launch of this replica


class Trouble(msgspec.Struct, frozen=True):
    """The last error of a deployment."""

    kind: str
    status: int | None = None
    message: str | None = None  # the provider's message, without secrets

    def __str__(self) -> str:
        return f"{self._head}: {self.message}" if self.message else self._head

    @property
    def for_others(self) -> str:
        """Return what other callers may read: messages about key, model name or limits, but not about a request."""
        return str(self) if self.kind in _SAYS_NOTHING_OF_REQUESTS else self._head

    @property
    def _head(self) -> str:
        return self.kind if self.status is None else f"{self.kind} ({self.status})"


def late_s(q95_s: float) -> float:
    """Return the time to the first token beyond which a deployment with this q95 of TTFT is at fault."""
    return max(LATE_MIN_S, PROBE_FACTOR * q95_s)


def probe_limit_s(q95_s: float) -> float:
    """Return the age at which a probe without a first token has failed, for a deployment with this q95 of TTFT."""
    return min(late_s(q95_s), PROBE_WATCH_S)


class Health:
    """The state of one deployment in this replica. Times are seconds of any one monotonic clock."""

    __slots__ = (
        "_availability",
        "_limit",
        "_limited_at_s",
        "_open_until_s",
        "_opens",
        "_price_at_s",
        "_price_s",
        "_probe_watch_s",
        "_probed_until_s",
        "_refills",
        "_strikes",
        "_told",
        "asked_at_s",
        "calm",
        "in_flight",
        "is_probed",
        "launches",
        "load",
        "trouble",
    )

    def __init__(self) -> None:
        self.in_flight = 0
        self.asked_at_s = LONG_AGO_S
        self.is_probed = False  # whether the last launch was a probe of the gateway's own
        self.load = Load()
        self.launches = Launches()  # without those that were refused with a 429
        self._limit = 0.0  # requests a minute that it admitted before its last 429
        self._limited_at_s = LONG_AGO_S
        self._refills = False  # steadily, as its last 429 asked to wait for a moment only
        # The minute, and the least estimate of the limit in it and in the minute before, by what answers said of it.
        self._told = (0, inf, inf)
        self.trouble: Trouble | None = None  # the last error, until it answers again
        self.calm: Condition | None = None  # the last condition, as long as it stays valid
        self._availability = Availability(_WAITS)  # there, out is called refused, and a probe a try
        self._strikes = 0
        self._opens = 0
        self._open_until_s: float | None = None  # None: the breaker is closed
        self._probed_until_s = LONG_AGO_S  # when the last probe has failed, unless it ends before
        self._probe_watch_s = inf  # how long it is watched
        self._price_s = 0.0
        self._price_at_s = 0.0

    @property
    def tripped(self) -> bool:
        """Whether the breaker is not closed."""
        return self._open_until_s is not None

    def condition(self, now_s: float) -> Condition:
        """Return the health at ``now_s``; ``calm`` if that is still valid."""
        calm = self.calm
        if calm is not None:
            return calm
        state = self._state(now_s)
        condition = Condition(
            state,
            self._availability.cooling_s(now_s),
            self._probe_due(state, now_s),
            self.in_flight,
            self._price(now_s),
            self._availability.headroom(now_s),
            self.load.crowding(self.in_flight, now_s),
            self.asked_at_s,
        )
        quiet = self._open_until_s is None and not condition.price_s and condition.headroom == 1.0
        if state is State.OK and quiet and not self.load.elastic:
            self.calm = condition
        return condition

    def launched(self, now_s: float) -> int:
        """Count a launch; return how many other attempts were in flight."""
        self.in_flight += 1
        self.asked_at_s = now_s
        self.launches.add(now_s)
        if self.calm is not None:
            self.calm.in_flight = self.in_flight
            self.calm.asked_at_s = now_s
        return self.in_flight - 1

    def ended(self) -> None:
        """Count the end of an attempt."""
        self.in_flight = max(0, self.in_flight - 1)
        if self.calm is not None:
            self.calm.in_flight = self.in_flight

    def answered(self, prompt_class: PromptClass, in_flight: int, ttft_s: float, now_s: float) -> None:
        """Learn from the first token of an attempt that was launched with ``in_flight`` others running."""
        self.load.seen(prompt_class, in_flight, ttft_s, now_s)
        if self.calm is not None and self.load.elastic:
            self.calm = None

    def rate_limited(self, retry_after_s: float | None, now_s: float) -> None:
        """Handle a 429: cool down for the time it asks for, and raise the scarcity price in the score."""
        self.cool(retry_after_s, now_s)  # which also ends ``calm``
        self.launches.add(now_s, -1)
        limit = max(1.0, self.launches.in_minute(now_s))
        if now_s - self._limited_at_s <= LIMIT_KEPT_S:
            limit = min(limit, LIMIT_GROWS * self._limit)
        self._limit, self._limited_at_s, self._refills = limit, now_s, (retry_after_s or 0.0) < REFILLED_S
        self._price_s = min(PRICE_MAX_S, self._price(now_s) + PRICE_STEP_S)
        self._price_at_s = now_s

    def limit(self, now_s: float) -> float | None:
        """Return how many requests a minute it should admit; None if nothing says that there is a limit.

        That is what it admitted in the minute before a 429, or what its answers tell of the unused part. Where limits
        start again each minute, any sixty seconds may have twice as many.
        """
        seen, limit = self.launches.in_minute(now_s), inf
        if now_s - self._limited_at_s <= LIMIT_KEPT_S:
            limit = self._limit
            if self._refills:
                return max(limit, seen)
        minute, least, before = self._told
        ago = int(now_s // 60.0) - minute
        limit = min(limit, least if ago <= 1 else inf, before if ago == 0 else inf)
        return None if limit == inf else max(limit, seen / 2)

    def cool(self, retry_after_s: float | None, now_s: float) -> None:
        """Do not use it for ``retry_after_s``, up to a maximum."""
        self.calm = None
        self._availability.cool(retry_after_s, now_s)

    def strike(self, now_s: float) -> bool:
        """Count a failure before the first token, or a hang; return whether it opened the breaker."""
        if self._open_until_s is None:
            self._strikes += 1
            if self._strikes < STRIKES:
                return False
        elif now_s < self._open_until_s:
            return False  # launched before the breaker opened
        self._open(now_s)
        return True

    def refuse(self, now_s: float) -> bool:
        """Mark the deployment as out: key rejected or model unknown. Returns whether it was not out before."""
        self.calm = None
        return self._availability.refuse(now_s)

    def delivered(self, ttft_s: float, q95_s: float, now_s: float) -> bool:
        """Handle a first token; return whether the deployment has recovered."""
        self._strikes = 0
        self.trouble = None
        recovered = self._availability.answered()
        if self._open_until_s is not None:
            if ttft_s <= late_s(q95_s):
                self._open_until_s, self._opens = None, 0
                return True
            if now_s >= self._open_until_s:
                self._open(now_s)
        return recovered

    def cut(self, age_s: float, q95_s: float, now_s: float) -> bool:
        """Handle an attempt that was cancelled without a first token: only a probe beyond its limit has failed.

        Returns whether it opened the breaker again.
        """
        limit_s = min(probe_limit_s(q95_s), self._probe_watch_s * _NEARLY)  # estimates may have changed since it began
        failed = self._open_until_s is not None and now_s >= self._open_until_s and age_s >= limit_s
        if failed:
            self._open(now_s)
        return failed

    def leave_alone(self, now_s: float) -> bool:
        """Open the breaker because of other replicas' reports, or a long silence; return whether it was closed."""
        if self.tripped:
            return False  # it has its own probes
        self._open(now_s)
        return True

    def limit_left(self, headroom: float, now_s: float, in_minute: int = 0) -> None:
        """Store the unused part of the rate limit, 0 to 1, as the provider reports it.

        ``in_minute`` is what was launched in the minute before the attempt that was told so.
        """
        self._availability.told(headroom, now_s)
        if headroom >= 1.0:
            return
        self.calm = None
        if in_minute >= TOLD_FROM:
            minute, least, before = self._told
            ago = int(now_s // 60.0) - minute
            if ago > 0:
                least, before = inf, least if ago == 1 else inf
            self._told = minute + max(0, ago), min(least, in_minute / (1.0 - headroom)), before

    def probed(self, now_s: float, watch_s: float | None = None) -> None:
        """Record the start of a probe, and its maximum duration."""
        self._availability.tried(now_s)
        self._probed_until_s = now_s + (watch_s or 0.0)
        self._probe_watch_s = watch_s or inf

    def probe_ended(self) -> None:
        """Record the end of a probe, so that the next one may start."""
        self._probed_until_s = LONG_AGO_S

    def reload(self) -> None:
        """Handle a new configuration: key or model name may be correct now, so it is not out any more."""
        self._availability.mended()

    def _open(self, now_s: float) -> None:
        self.calm = None
        self._open_until_s = now_s + min(OPEN_MAX_S, OPEN_S * 2.0 ** min(self._opens, 10))
        self._opens += 1
        self._strikes = 0

    def _state(self, now_s: float) -> State:
        readiness = self._availability.readiness(now_s)
        if readiness is not Readiness.READY:
            return State.COOLING if readiness is Readiness.COOLING else State.OUT
        if self._open_until_s is None:
            return State.OK
        if now_s < self._open_until_s:
            return State.OPEN
        unprobed_s = now_s - max(self._open_until_s, self._availability.tried_at_s)
        return State.HALF_OPEN if unprobed_s < UNPROBED_S else State.OK

    def _probe_due(self, state: State, now_s: float) -> bool:
        if state is State.HALF_OPEN:
            return now_s >= max(self._availability.tried_at_s + PROBE_EVERY_S, self._probed_until_s)
        return state is State.OUT and self._availability.is_due(now_s)

    def _price(self, now_s: float) -> float:
        if not self._price_s:
            return 0.0
        price_s = self._price_s * exp2((self._price_at_s - now_s) / PRICE_HALF_LIFE_S)
        if price_s < PRICE_MIN_S:
            self._price_s = 0.0
        return price_s
