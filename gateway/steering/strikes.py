"""Strikes across replicas: an outage that several replicas see affects all, before each has counted four failures."""

from collections.abc import Callable, Iterable
from math import inf
from typing import Annotated

import msgspec

from gateway.steering.constants import OPEN_MAX_S, REPORT_AGE_S, STRIKE_NEWS_S, STRIKES, UNPROBED_S, WELL_S


class Strike(msgspec.Struct, array_like=True, frozen=True):
    """The failures in a row at one deployment: their number, at most ``STRIKES``, and the Unix time of the last."""

    count: Annotated[int, msgspec.Meta(ge=1)]
    at_s: float


class Report(msgspec.Struct, frozen=True):
    """What one replica reports to the others once a second. Times are Unix seconds."""

    at_s: float
    strikes: dict[str, Strike] = {}  # by deployment; STRIKES while its breaker is open
    well: tuple[str, ...] = ()  # deployments with a first token in the last seconds, and no failure since


class _Own:
    """What this replica last saw of a deployment. A class with slots, as the hot path writes here."""

    __slots__ = ("answered_at_s", "count", "provider", "struck_at_s")

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self.count = 0
        self.struck_at_s = -inf
        self.answered_at_s = -inf  # the last first token


class Strikes:
    """The strikes of this replica, and the other replicas' reports.

    A deployment that fails elsewhere is opened here if, with this replica's own, at least ``STRIKES`` are known from at
    least two replicas, and no more replicas find it healthy than failing: of fifty replicas some have always just seen
    an error of a provider that fails one call in ten. A replica with a first token in the last seconds, and no failure
    since, ignores the others. Strikes older than the last first token are ignored everywhere.

    A replica that fails at most of its providers reports no strikes: its own network is at fault. It reports only what
    it saw itself, not what it did because of others.
    """

    def __init__(self, unix_clock: Callable[[], float]) -> None:
        self._unix_clock = unix_clock
        self._own: dict[str, _Own] = {}
        self._on_outage: Callable[[str], None] | None = None

    def listen(self, on_outage: Callable[[str], None]) -> None:
        """Set ``on_outage``, which is called with each deployment to be avoided because of other replicas' reports.

        ``learn`` calls it each time, as long as the outage lasts.
        """
        self._on_outage = on_outage

    def struck(self, deployment: str, provider: str, *, opened: bool, ago_s: float = 0.0) -> None:
        """Count a failure here, ``ago_s`` seconds ago; ``opened``: it opened the breaker, or was a failed probe."""
        own = self._of(deployment, provider)
        own.count = STRIKES if opened else min(STRIKES, own.count + 1)
        own.struck_at_s = self._unix_clock() - ago_s

    def answered(self, deployment: str, provider: str, ago_s: float = 0.0) -> None:
        """Record a first token that leaves the breaker closed, ``ago_s`` seconds ago."""
        own = self._of(deployment, provider)
        own.count = 0
        own.answered_at_s = self._unix_clock() - ago_s

    def keep(self, deployments: set[str]) -> None:
        """Forget all other deployments."""
        self._own = {name: own for name, own in self._own.items() if name in deployments}

    def report(self) -> Report:
        """Return the report for the other replicas."""
        now_s = self._unix_clock()
        strikes = {name: Strike(own.count, own.struck_at_s) for name, own in self._own.items() if _is_news(own, now_s)}
        well = tuple([name for name, own in self._own.items() if _is_well(own, now_s)])
        return Report(now_s, {} if self._is_cut_off(strikes, well) else strikes, well)

    def learn(self, others: Iterable[Report]) -> None:
        """Process the other replicas' reports. Those without a recent one are gone or disconnected."""
        mine = self.report()
        fresh = [other for other in others if abs(mine.at_s - other.at_s) <= REPORT_AGE_S]
        for name in {name for other in fresh for name in other.strikes}:
            if self._on_outage is not None and self._is_outage(name, mine, fresh):
                self._on_outage(name)

    def _is_outage(self, name: str, mine: Report, others: Iterable[Report]) -> bool:
        own = self._own.get(name)
        if own is not None and _is_well(own, mine.at_s):
            return False
        since_s = own.answered_at_s if own is not None else -inf
        counts = [mine.strikes[name].count] if name in mine.strikes else []
        n_well = 0
        for other in others:
            strike = other.strikes.get(name)
            if strike is not None and since_s < strike.at_s <= other.at_s:
                counts.append(min(STRIKES, strike.count))
            n_well += name in other.well
        return len(counts) >= max(2, n_well) and sum(counts) >= STRIKES

    def _is_cut_off(self, strikes: Iterable[str], well: Iterable[str]) -> bool:
        """Whether this replica fails at more than half of the providers it recently used."""
        answering = {self._own[name].provider for name in well}
        failing = {self._own[name].provider for name in strikes} - answering
        return len(failing) > len(answering)

    def _of(self, deployment: str, provider: str) -> _Own:
        own = self._own.get(deployment)
        if own is None:
            own = self._own[deployment] = _Own(provider)
        return own


def _is_news(own: _Own, now_s: float) -> bool:
    """Whether there are strikes to report: recent ones, or those of an open breaker."""
    age_s = now_s - own.struck_at_s
    return own.count > 0 and age_s <= (STRIKE_NEWS_S if own.count < STRIKES else OPEN_MAX_S + UNPROBED_S)


def _is_well(own: _Own, now_s: float) -> bool:
    return not own.count and now_s - own.answered_at_s <= WELL_S
