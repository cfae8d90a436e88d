"""The health of one deployment as this replica sees it: cool-down, breaker, scarcity price and attempts in flight."""

from collections.abc import Collection
from enum import StrEnum
from math import exp2, inf

import msgspec
from msgspec.structs import replace

from gateway.core.prompt_classes import PromptClass
from gateway.core.race_failures import CAUSES
from gateway.steering.clientele import Blame, Clientele
from gateway.steering.constants import (
    COOL_MAX_S,
    COOL_MIN_S,
    HEADROOM_WINDOW_S,
    LATE_MIN_S,
    LIMIT_GROWS,
    LIMIT_KEPT_S,
    LIMIT_USED,
    ON_TRIAL_S,
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
from providers import LONG_AGO_S, Availability, KeyReadiness, Waits, kinds, without_addresses

_WAITS = Waits(cool_min_s=COOL_MIN_S, cool_max_s=COOL_MAX_S, try_every_s=OUT_PROBE_EVERY_S, refill_s=HEADROOM_WINDOW_S)
_NEARLY = 0.999  # of a time, to allow for differences between clocks
# Messages of other errors are about the failed request; messages of connections name the operator's hosts.
_SAYS_NOTHING_OF_REQUESTS = kinds(lambda facts: facts.is_of_nobody)


class HealthState(StrEnum):
    """Whether a deployment may be asked."""

    OK = "ok"
    FAILING = "failing"  # for people only: asked as usual, but never answered; one more failure opens the breaker
    COOLING = "cooling"  # rate-limited
    OPEN = "open"  # broken; not used
    HALF_OPEN = "half-open"  # broken; one probe at a time
    OUT = "out"  # rejects the key or does not know the model, until the operator corrects that


class Condition(msgspec.Struct, eq=False):
    """The health of a deployment at one instant. The same object is reused while only ``in_flight`` changes."""

    state: HealthState
    cooling_s: float  # seconds until the cool-down ends
    probe_due: bool  # half-open or out, and not tried recently
    in_flight: int
    price_s: float
    headroom: float = 1.0  # 0 to 1, the expected unused part of the rate limit
    crowding: float = 1.0  # the factor of the load there on the time to first token
    launched_at_s: float = LONG_AGO_S  # the last launch of this replica
    probe_in_s: float | None = None  # seconds until a call may probe; None: neither broken nor out
    trial_in_s: float | None = (
        None  # seconds until a call uses it again, if no probe came before; None: not broken, or unknown
    )
    failing: bool = False  # one more failure opens its breaker
    hanging: int = 0  # primaries in flight that another model has overtaken, and that are still silent
    is_stated: bool = False  # whether the provider has said for how long

    @property
    def told(self) -> HealthState:
        """The state for people: on trial counts as broken, until an answer, or until the failures are forgotten."""
        if self.state is not HealthState.OK:
            return self.state
        if self.trial_in_s is not None:
            return HealthState.HALF_OPEN
        return HealthState.FAILING if self.failing else HealthState.OK

    def without_faults(self) -> "Condition":
        """Return the condition for clients for whom the failures do not count."""
        if self.state is HealthState.OK and self.trial_in_s is None:
            return self
        return replace(
            self, state=HealthState.OK, cooling_s=0.0, probe_due=False, probe_in_s=None, trial_in_s=None, failing=False
        )

    def with_faults(self, met: "Condition") -> "Condition":
        """Return the condition for the one client that has ``met`` faults there."""
        if met.state is HealthState.OK and met.trial_in_s is None:
            return self
        return replace(
            self,
            state=met.state,
            cooling_s=met.cooling_s,
            probe_due=met.probe_due,
            probe_in_s=met.probe_in_s,
            trial_in_s=met.trial_in_s,
            is_stated=met.is_stated,
        )


# Why a breaker opens without an error of the provider: as in the log, and in words.
_WITHOUT_ERROR = {
    "hangs": "no first token where others answered",
    "other replicas": "it failed at other replicas",
    "silent": "no first token in several calls",
    "slow": "first tokens came far later than usual",
}


class Trouble(msgspec.Struct, frozen=True):
    """The last error of a deployment, or why it is broken without one."""

    kind: str
    status: int | None = None
    message: str | None = None  # the provider's message, without secrets

    def __str__(self) -> str:
        said = self.message or _WITHOUT_ERROR.get(self.kind)
        return f"{self.head}: {said}" if said else self.head

    @property
    def for_others(self) -> str:
        """Return what other callers may read: messages about key, model name or limits, without addresses."""
        return self._without_requests(self.head)

    @property
    def in_words(self) -> str:
        """Return the error for operators: its kind as words."""
        words = CAUSES.get(self.kind) or _WITHOUT_ERROR.get(self.kind, self.kind)
        return self._without_requests(words if self.status is None else f"{words} ({self.status})")

    def _without_requests(self, head: str) -> str:
        if self.kind not in _SAYS_NOTHING_OF_REQUESTS or not self.message:
            return head
        return f"{head}: {without_addresses(self.message)}"

    @property
    def head(self) -> str:
        """The kind and the status, without the provider's words."""
        return self.kind if self.status is None else f"{self.kind} ({self.status})"


def late_s(q95_s: float) -> float:
    """Return the time to the first token beyond which a deployment with this q95 of TTFT is at fault."""
    return max(LATE_MIN_S, PROBE_FACTOR * q95_s)


def probe_limit_s(q95_s: float) -> float:
    """Return the age at which a probe without a first token has failed, for a deployment with this q95 of TTFT."""
    return min(late_s(q95_s), PROBE_WATCH_S)


class Health:
    """The state of one deployment in this replica. Times are seconds of any one monotonic clock.

    Failures are reported with the client that met them, or with None if no request can have caused them (no connection,
    a 401). What one client alone has met holds for all only if that client is nearly all traffic there. The state is
    then ``only_for`` that client: for clients who come later the state is no more than a supposition.
    """

    __slots__ = (
        "_answered",
        "_availability",
        "_is_believed",
        "_is_stated",
        "_limit",
        "_limited",
        "_open_until_s",
        "_opens",
        "_pause_s",
        "_price_at_s",
        "_price_s",
        "_probe_watch_s",
        "_probed_until_s",
        "_refused",
        "_reported_limit",
        "_strikes",
        "_window_from_s",
        "cached_condition",
        "clients",
        "elsewhere",
        "hanging",
        "in_flight",
        "is_probed",
        "launched_at_s",
        "launches",
        "load",
        "only_for",
        "trouble",
    )

    def __init__(self) -> None:
        self.in_flight = 0
        self.elsewhere = 0.0  # attempts of other processes, reported only with max_in_flight_fleet; else 0
        self.hanging = 0  # primaries that another model has overtaken, and that are still silent
        self.launched_at_s = LONG_AGO_S
        self.is_probed = False  # whether the last launch was the gateway's own probe
        self.load = Load()
        self.launches = Launches()  # without those that were answered with 429
        self._limit = 0.0  # requests a minute that were admitted before the last 429; 0: no limit is known
        self._is_believed = False  # whether another 429 came after the pause of the first: a lone one may be chance
        self._window_from_s = LONG_AGO_S  # when the limit's window begins, if the last 429 asked to wait for it
        self._pause_s = 0.0  # the last pause after a 429 without ``retry-after``; doubled while these go on
        # From answers' headers: the minute, and the lowest estimates of the limit in this minute and in the one before.
        self._reported_limit = (0, inf, inf)
        self.trouble: Trouble | None = None  # the last error, until the deployment answers again
        self.cached_condition: Condition | None = None  # the last condition, while it stays valid
        self._availability = Availability(_WAITS)  # its terms: refused = out, a try = a probe
        self._answered = False  # whether the deployment has ever answered
        self._is_stated = False  # how long the deployment cools down, as its provider has said
        self.clients = Clientele()  # requests that were sent there lately
        self.only_for: str | None = None  # the only client that has met the failures; None: they hold for all
        self._strikes = Blame()  # in a row
        self._refused = Blame()  # the clients that have met a refused key or an unknown model
        self._limited: dict[str | None, float] = {}  # when each client last met a 429
        self._opens = 0
        self._open_until_s: float | None = None  # None: the breaker is closed
        self._probed_until_s = LONG_AGO_S  # when the last probe counts as failed, unless it ends before
        self._probe_watch_s = inf  # the last probe's maximum duration
        self._price_s = 0.0
        self._price_at_s = 0.0

    @property
    def strikes(self) -> float:
        """The failures in a row, as far as they count for all clients."""
        return self._strikes.weight(self.clients.share(), STRIKES)

    @property
    def is_of_one(self) -> bool:
        """Whether one client alone, of several, has met the failures in a row."""
        return self._strikes.only is not None and self.clients.share() < 1.0

    @property
    def tripped(self) -> bool:
        """Whether the breaker is not closed."""
        return self._open_until_s is not None

    def condition(self, now_s: float) -> Condition:
        """Return the health at ``now_s``; ``cached_condition`` if that is still valid."""
        cached_condition = self.cached_condition
        if cached_condition is not None:
            return cached_condition
        state = self._state(now_s)
        condition = Condition(
            state,
            self._availability.cooling_s(now_s),
            self._probe_due(state, now_s),
            self.in_flight,
            self._price(now_s),
            self._availability.headroom(now_s),
            self.load.crowding(self.in_flight + self.elsewhere, now_s),
            self.launched_at_s,
            failing=not self._answered and self.strikes >= STRIKES - 1,
            hanging=self.hanging,
            is_stated=self._is_stated,
        )
        if self._availability.refused:
            condition.probe_in_s = max(0.0, self._next_probe_at_s - now_s)
        elif self._open_until_s is not None:
            condition.probe_in_s = max(0.0, self._next_probe_at_s - now_s)
            trial_in_s = self._trial_at_s - now_s
            condition.trial_in_s = max(0.0, trial_in_s) if trial_in_s > -ON_TRIAL_S else None
        quiet = self._open_until_s is None and not condition.price_s and condition.headroom == 1.0
        if state is HealthState.OK and quiet and not self.load.elastic:
            self.cached_condition = condition
        return condition

    def launched(self, now_s: float) -> float:
        """Count a launch; return how many other attempts were in flight, as far as known."""
        self.in_flight += 1
        self.launched_at_s = now_s
        self.launches.add(now_s)
        if self.cached_condition is not None:
            self.cached_condition.in_flight = self.in_flight
            self.cached_condition.launched_at_s = now_s
        return self.in_flight - 1 + self.elsewhere

    def ended(self, client: str | None = None) -> None:
        """Count the end of an attempt, as traffic of ``client``, if it is known."""
        if self.in_flight > 0:
            self.in_flight -= 1
        if client is not None:  # a call for it would cost each attempt
            clients = self.clients
            if self.launched_at_s >= clients.fades_at_s:  # nearly now; reading the clock would cost each attempt
                clients.fade(self.launched_at_s)
            clients.counts[client] += 1.0
            clients.total += 1.0
        if self.cached_condition is not None:
            self.cached_condition.in_flight = self.in_flight

    def hangs(self, more: int) -> None:
        """Count a primary that another model has overtaken; and, with -1, its first token or end."""
        self.hanging = max(0, self.hanging + more)
        if self.cached_condition is not None:
            self.cached_condition.hanging = self.hanging

    def answered(self, prompt_class: PromptClass, in_flight: float, ttft_s: float, now_s: float) -> None:
        """Learn from the first token of an attempt that was launched beside ``in_flight`` running others."""
        self.load.seen(prompt_class, in_flight, ttft_s, now_s)
        if self.cached_condition is not None and self.load.elastic:
            self.cached_condition = None

    def rate_limited(self, retry_after_s: float | None, now_s: float) -> bool:
        """Handle a 429: pause for as long as its ``retry-after`` asks; return whether it is the first in minutes.

        Without a ``retry-after`` each pause is twice the pause before (1, 2, 4 s), until the deployment answers again.
        A 429 after such a pause confirms a limit, and each later 429 raises the scarcity price in the score. A 429
        within a pause says nothing new: its attempt was launched before the pause.
        """
        self.launches.add(now_s, -1)
        resumed_s = now_s - self._availability.cooling_until_s  # ago; infinite if it never paused
        if resumed_s >= 0.0:
            self._is_believed = self.taken(now_s) < inf
            self._pause_s = min(COOL_MAX_S, max(COOL_MIN_S, 2.0 * self._pause_s))
        self.cool(retry_after_s or self._pause_s, now_s)  # this also ends ``cached_condition``
        self._is_stated = bool(retry_after_s)
        if resumed_s >= 0.0:
            is_of_window = REFILLED_S <= (retry_after_s or 0.0) < COOL_MAX_S
            self._window_from_s = self._availability.cooling_until_s if is_of_window else LONG_AGO_S
        limit = max(1.0, self._passed(now_s))
        self._limit = min(limit, LIMIT_GROWS * self._limit) if self._limit else limit
        if self._is_believed:
            self._price_s = min(PRICE_MAX_S, self._price(now_s) + PRICE_STEP_S)
            self._price_at_s = now_s
        return resumed_s > LIMIT_KEPT_S

    def taken(self, now_s: float) -> float:
        """Return the requests a minute that the deployment admitted before its last 429; infinite without a recent 429.

        The figure is forgotten when clearly more requests pass.
        """
        if not self._limit:
            return inf
        passed = self._passed(now_s)
        if now_s - self._availability.cooling_until_s > LIMIT_KEPT_S or passed > LIMIT_GROWS * self._limit:
            self._limit, self._is_believed = 0.0, False
            return inf
        return max(self._limit, passed)

    def _passed(self, now_s: float) -> int:
        """Return the requests admitted in the last minute, or in the current window: a minute may touch two windows."""
        if self._window_from_s == LONG_AGO_S:
            return self.launches.in_minute(now_s)
        return self.launches.in_seconds(int((now_s - self._window_from_s) % 60.0) + 1, now_s)

    def limit(self, now_s: float) -> float:
        """Return the requests a minute that the deployment admits; infinite if no limit is known.

        The limit is the number before the last of several 429s, or follows from the unused part that answers report.
        """
        minute, least, before = self._reported_limit
        ago = int(now_s // 60.0) - minute
        limit = min(least if ago <= 1 else inf, before if ago == 0 else inf)
        limit = max(limit, self.launches.in_minute(now_s) / 2)  # it may have been reset within these sixty seconds
        in_use = self.taken(now_s)
        return min(limit, in_use) if self._is_believed else limit

    def cooling_s(self, now_s: float) -> float:
        """Return the seconds until the deployment's pause ends; 0 without a pause."""
        return self._availability.cooling_s(now_s)

    def is_paused_once(self, now_s: float) -> bool:
        """Whether the deployment pauses after a single 429: no other has confirmed a limit yet."""
        return not self._is_believed and self.cooling_s(now_s) > 0.0

    @property
    def is_in_use(self) -> bool:
        """Whether the deployment is neither broken nor out; it may pause."""
        return self._open_until_s is None and not self._availability.refused

    def is_limited(self, now_s: float) -> bool:
        """Whether a limit is known, or one was shown by a single 429."""
        return min(self.limit(now_s), self.taken(now_s)) < inf

    def has_room(self, now_s: float) -> bool:
        """Whether a known rate limit has room for an extra attempt: the first attempts of calls need the rest."""
        limit = self.limit(now_s)
        return limit == inf or self.launches.expected(now_s) < LIMIT_USED * limit

    def cool(self, retry_after_s: float | None, now_s: float) -> None:
        """Pause the deployment for ``retry_after_s``, up to a maximum."""
        self.cached_condition = None
        self._is_stated = True
        self._availability.cool(retry_after_s, now_s)

    def strike(self, now_s: float, client: str | None = None) -> bool:
        """Count a failure before the first token, or a hang; return whether it opened the breaker for all."""
        is_supposed = self.only_for is not None and client != self.only_for
        if self._open_until_s is not None and not is_supposed and now_s < self._open_until_s:
            return False  # launched before the breaker opened
        if self._open_until_s is None or is_supposed:
            self._strikes.add(client, STRIKES)
            if self.strikes < STRIKES:
                if not self._answered:
                    self.cached_condition = None  # it may be failing now
                return False
        self._hold(self._strikes.only, now_s)
        self._open(now_s)
        return True

    def refuse(self, now_s: float, client: str | None = None) -> bool:
        """Note that the deployment rejects the key or does not know the model; return whether that takes it out now."""
        self._refused.add(client)
        if self._refused.weight(self.clients.share(), 1.0) < 1.0:
            return False
        self._hold(self._refused.only, now_s)
        self.cached_condition = None
        return self._availability.refuse(now_s)

    def counts_limit(self, client: str | None, now_s: float) -> bool:
        """Note a 429, or a 503 with a ``retry-after``; return whether the pause holds for more than ``client``."""
        if client is None:
            self._hold(None, now_s)
            return True
        limited = self._limited = {each: at_s for each, at_s in self._limited.items() if now_s - at_s <= COOL_MAX_S}
        limited[client] = now_s
        share = self.clients.share()
        if share * len(limited) < 1.0:
            return False
        self._hold(client if len(limited) == 1 else None, now_s)
        return True

    def _hold(self, client: str | None, now_s: float) -> None:
        """Note that the deployment is taken out, for all or by what ``client`` alone has met."""
        if client is None or self._state(now_s) is HealthState.OK:
            self.only_for = client

    def is_for(self, client: str | None) -> bool:
        """Whether the state holds for ``client``, and not only for another client."""
        return self.only_for is None or client is None or client == self.only_for

    def delivered(self, ttft_s: float, q95_s: float, now_s: float) -> bool:
        """Handle a first token; return whether the deployment has recovered."""
        if self._strikes.by_client or self._refused.by_client:
            self._strikes.clear()
            self._refused.clear()
        if not self._answered:
            self._answered, self.cached_condition = True, None
        self._pause_s = 0.0
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

        Returns whether this opened the breaker again.
        """
        limit_s = min(probe_limit_s(q95_s), self._probe_watch_s * _NEARLY)  # estimates may have changed since it began
        failed = self._open_until_s is not None and now_s >= self._open_until_s and age_s >= limit_s
        if failed:
            self._open(now_s)
        return failed

    def open_breaker(self, now_s: float, met: Blame | None = None) -> bool:
        """Open the breaker because of other replicas' reports, or a silence that clients have ``met``.

        Returns whether the breaker was closed before, and is open for all now.
        """
        if self.tripped:
            return False  # it has its own probes
        if met is not None and met.weight(self.clients.share(), 1.0) < 1.0:
            return False
        self._hold((met or self._strikes).only, now_s)
        self._open(now_s)
        return True

    def limit_left(self, headroom: float, now_s: float, in_minute: int = 0) -> None:
        """Store the unused part of the rate limit, 0 to 1, as the provider reports it.

        ``in_minute`` is the number of launches in the minute before the attempt whose answer reported it.
        """
        self._availability.told(headroom, now_s)
        if headroom >= 1.0:
            return
        self.cached_condition = None
        if in_minute >= TOLD_FROM:
            minute, least, before = self._reported_limit
            ago = int(now_s // 60.0) - minute
            if ago > 0:
                least, before = inf, least if ago == 1 else inf
            self._reported_limit = minute + max(0, ago), min(least, in_minute / (1.0 - headroom)), before

    def probed(self, now_s: float, watch_s: float | None = None) -> None:
        """Record the start of a probe, and its maximum duration."""
        self._availability.tried(now_s)
        self._probed_until_s = now_s + (watch_s or 0.0)
        self._probe_watch_s = watch_s or inf

    def probe_ended(self) -> None:
        """Record the end of a probe, so that the next one may start."""
        self._probed_until_s = LONG_AGO_S

    def reload(self) -> None:
        """Handle a new configuration: key or model name may be correct now, so a deployment that was out is tried."""
        self._availability.mended()
        self._refused.clear()

    def _open(self, now_s: float) -> None:
        self.cached_condition = None
        self._open_until_s = now_s + min(OPEN_MAX_S, OPEN_S * 2.0 ** min(self._opens, 10))
        self._opens += 1
        if self.only_for is None:
            self._strikes.clear()

    def _state(self, now_s: float) -> HealthState:
        readiness = self._availability.readiness(now_s)
        if readiness is not KeyReadiness.READY:
            return HealthState.COOLING if readiness is KeyReadiness.COOLING else HealthState.OUT
        if self._open_until_s is None:
            return HealthState.OK
        if now_s < self._open_until_s:
            return HealthState.OPEN
        return HealthState.HALF_OPEN if now_s < self._trial_at_s else HealthState.OK

    @property
    def _trial_at_s(self) -> float:
        return max(self._open_until_s or 0.0, self._availability.tried_at_s) + UNPROBED_S

    @property
    def _next_probe_at_s(self) -> float:
        availability = self._availability
        if availability.refused:
            return max(availability.cooling_until_s, availability.tried_at_s + OUT_PROBE_EVERY_S)
        opens_s = max(availability.cooling_until_s, self._open_until_s or 0.0)
        return max(opens_s, availability.tried_at_s + PROBE_EVERY_S, self._probed_until_s)

    def _probe_due(self, state: HealthState, now_s: float) -> bool:
        return (state is HealthState.HALF_OPEN or state is HealthState.OUT) and now_s >= self._next_probe_at_s

    def _price(self, now_s: float) -> float:
        if not self._price_s:
            return 0.0
        price_s = self._price_s * exp2((self._price_at_s - now_s) / PRICE_HALF_LIFE_S)
        if price_s < PRICE_MIN_S:
            self._price_s = 0.0
        return price_s


# Failures that only one client has met: its own calls avoid the deployment, for as long as all calls otherwise would.

MOST_CLIENTS = 1_000  # clients with such failures; the client whose first failure is the oldest is forgotten


class OwnHealths:
    """The health of deployments as single clients have met it."""

    def __init__(self) -> None:
        self.by_client: dict[str, dict[str, Health]] = {}  # by deployment; never empty

    def of(self, client: str, deployment: str) -> Health:
        """Return the health of a deployment as a client has met it; a new one if the client has met nothing there."""
        if client not in self.by_client and len(self.by_client) >= MOST_CLIENTS:
            del self.by_client[next(iter(self.by_client))]
        met = self.by_client.setdefault(client, {})
        return met.get(deployment) or met.setdefault(deployment, Health())

    def known(self, client: str | None, deployment: str) -> Health | None:
        """Return the health of a deployment as a client has met it; None: the client has met nothing there."""
        met = self.by_client.get(client) if client is not None else None
        return None if met is None else met.get(deployment)

    def at(self, deployment: str) -> dict[str, Health]:
        """Return the health of a deployment as each client has met it that has met failures there."""
        return {client: met[deployment] for client, met in self.by_client.items() if deployment in met}

    def has(self, deployment: str) -> bool:
        """Whether any client has met something there."""
        return any(deployment in met for met in self.by_client.values())

    def forget(self, client: str, deployment: str, now_s: float) -> None:
        """Forget a client's failures at a deployment, as it has answered the client now; a pause stays."""
        met = self.by_client[client]
        if met[deployment].is_in_use and not met[deployment].cooling_s(now_s):
            del met[deployment]
            if not met:
                del self.by_client[client]

    def keep(self, deployments: Collection[str]) -> None:
        """Forget all other deployments."""
        by_client = {
            client: {name: each for name, each in met.items() if name in deployments}
            for client, met in self.by_client.items()
        }
        self.by_client = {client: met for client, met in by_client.items() if met}

    def clear(self) -> None:
        """Forget all: keys and names of models may be correct now."""
        self.by_client.clear()
