"""This process's open outages: recorded when a deployment breaks or refuses the key, and again when it answers."""

from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Annotated

import msgspec

from gateway.core.attempts import AttemptRecord
from gateway.core.log import get_logger
from gateway.core.records import OutageRecord
from gateway.steering.constants import (
    OPEN_MAX_S,
    REPORT_AGE_S,
    STRIKE_NEWS_S,
    STRIKES,
    UNPROBED_S,
    WELL_S,
)


class Outages:
    """The deployments that are out for this process. ``record`` is called at the begin and the end of each outage."""

    def __init__(
        self,
        record: Callable[[OutageRecord], None],
        *,
        utc_now: Callable[[], datetime],
        new_id: Callable[[], str],
        replica: str,
    ) -> None:
        self._record = record
        self._utc_now = utc_now
        self._new_id = new_id
        self._replica = replica
        self._lasting: dict[str, OutageRecord] = {}  # by deployment

    @classmethod
    def unrecorded(cls) -> "Outages":
        """Return outages that are only logged."""
        return cls(lambda _: None, utc_now=lambda: datetime.fromtimestamp(0, UTC), new_id=str, replica="")

    def opened(self, deployment: str, reason: str | None, model: str | None, ago_s: float = 0.0) -> None:
        """Log that a breaker opened ``ago_s`` seconds ago; record it, unless it was open and a probe has failed."""
        where = {} if model is None else {"model": model}
        # Event steering.opened: A deployment failed several times in a row (its breaker is open). It gets no calls for
        # 5 to 20 s; then one call tries it.
        # Do: See [when a provider fails](../guides/failing-provider.md). If it goes on, an alert follows.
        get_logger().warning("steering.opened", **where, deployment=deployment, cause=reason)
        self.begin(deployment, reason, model, ago_s)

    def begin(self, deployment: str, reason: str | None, model: str | None, ago_s: float = 0.0) -> None:
        """Record that a deployment is out since ``ago_s`` seconds, unless that is known."""
        if deployment in self._lasting:
            return
        outage = OutageRecord(
            id=self._new_id(),
            deployment=deployment,
            model=model,
            began_at=self._utc_now() - timedelta(seconds=ago_s),
            reason=None if reason is None else str(reason),
            replica=self._replica,
        )
        self._lasting[deployment] = outage
        self._record(outage)

    def recovered(self, model: str, deployment: str, ago_s: float = 0.0) -> None:
        """Log that a deployment may be used again, since ``ago_s`` seconds; record the end if its breaker was open."""
        # Event steering.recovered: A deployment that was broken or out answers again.
        # Do: Nothing.
        get_logger().info("steering.recovered", model=model, deployment=deployment)
        self.end(deployment, ago_s)

    def keep(self, deployments: Collection[str]) -> None:
        """End the outages of all other deployments: they are no longer used."""
        for deployment in self._lasting.keys() - set(deployments):
            self.end(deployment)

    def close(self) -> None:
        """End all outages: the breakers end with the process."""
        self.keep(())

    def end(self, deployment: str, ago_s: float = 0.0) -> None:
        """Record that an outage ended ``ago_s`` seconds ago, if there was one."""
        outage = self._lasting.pop(deployment, None)
        if outage is not None:
            self._record(msgspec.structs.replace(outage, ended_at=self._utc_now() - timedelta(seconds=ago_s)))


# Strikes across replicas: an outage that several replicas see affects all, before each has counted four failures.


class Strike(msgspec.Struct, array_like=True, frozen=True):
    """The failures in a row at one deployment: their number, at most ``STRIKES``, and the Unix time of the last."""

    count: Annotated[int, msgspec.Meta(ge=1)]
    at_s: float


class OutageReport(msgspec.Struct, frozen=True):
    """A replica's report to the others, once a second. Times are Unix seconds."""

    at_s: float
    strikes: dict[str, Strike] = {}  # by deployment; STRIKES while its breaker is open
    well: tuple[str, ...] = ()  # deployments with a first token in the last seconds, and no failure since


class _Own:
    """This replica's own observations of a deployment. A class with slots, as the hot path writes here."""

    __slots__ = ("answered_at_s", "count", "provider", "struck_at_s")

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self.count = 0
        self.struck_at_s = -inf
        self.answered_at_s = -inf  # the last first token


class Strikes:
    """The strikes of this replica, and the other replicas' reports.

    The breaker of a deployment that fails elsewhere opens here if at least ``STRIKES`` strikes are known from at least
    two replicas (this replica's own among them), and if at least as many replicas find the deployment failing as
    healthy: of fifty replicas some have always just seen an error of a provider that fails one call in ten. A replica
    with a first token in the last seconds, and no failure since, ignores the others. Strikes older than the last first
    token are ignored everywhere.

    For example, two replicas with two strikes each open the breaker at themselves and at a third one, unless three
    others have just had a first token there.

    A replica that fails at most of its providers reports no strikes: its own network is at fault. A replica reports
    only its own observations, not breakers that opened because of others.
    """

    def __init__(self, unix_clock: Callable[[], float]) -> None:
        self._unix_clock = unix_clock
        self._own: dict[str, _Own] = {}
        self._on_outage: Callable[[str], None] | None = None

    def listen(self, on_outage: Callable[[str], None]) -> None:
        """Set ``on_outage``, which ``learn`` calls with each deployment that is down by the other replicas' reports.

        ``on_outage`` is called at every report, as long as the outage lasts.
        """
        self._on_outage = on_outage

    def struck(self, deployment: str, provider: str, *, opened: bool, ago_s: float = 0.0, strikes: int = 0) -> None:
        """Count this replica's failure, ``ago_s`` seconds ago; ``opened``: it opened the breaker, or failed a probe.

        ``strikes``: how many failures count here, if this failure has made earlier ones count.
        """
        own = self._of(deployment, provider)
        own.count = STRIKES if opened else min(STRIKES, max(own.count + 1, strikes))
        own.struck_at_s = self._unix_clock() - ago_s

    def answered(self, deployment: str, provider: str, ago_s: float = 0.0) -> None:
        """Record a first token that leaves the breaker closed, ``ago_s`` seconds ago."""
        own = self._of(deployment, provider)
        own.count = 0
        own.answered_at_s = self._unix_clock() - ago_s

    def keep(self, deployments: set[str]) -> None:
        """Forget all other deployments."""
        self._own = {name: own for name, own in self._own.items() if name in deployments}

    def report(self) -> OutageReport:
        """Return the report for the other replicas."""
        now_s = self._unix_clock()
        strikes = {name: Strike(own.count, own.struck_at_s) for name, own in self._own.items() if _is_news(own, now_s)}
        well = tuple([name for name, own in self._own.items() if _is_well(own, now_s)])
        return OutageReport(now_s, {} if self._is_cut_off(strikes, well) else strikes, well)

    def learn(self, others: Iterable[OutageReport]) -> None:
        """Process the other replicas' reports. Those without a recent one are gone or disconnected."""
        mine = self.report()
        fresh = [other for other in others if abs(mine.at_s - other.at_s) <= REPORT_AGE_S]
        for name in {name for other in fresh for name in other.strikes}:
            if self._on_outage is not None and self._is_outage(name, mine, fresh):
                self._on_outage(name)

    def _is_outage(self, name: str, mine: OutageReport, others: Iterable[OutageReport]) -> bool:
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


# A lack of local resources (descriptors, ports, memory) is no provider's fault: it is logged, not counted.

LOG_EVERY_S = 10.0  # a line for each attempt would be too many


class Shortage:
    """Counts the attempts that failed for lack of local resources, and logs them together."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._attempts = 0  # since the last line
        self._logged_at_s = -inf

    def hit(self, attempt: AttemptRecord) -> None:
        """Count an attempt that ended with ``local_resources``; log it unless that was done recently."""
        self._attempts += 1
        now_s = self._clock()
        if now_s < self._logged_at_s + LOG_EVERY_S:
            return
        # Event gateway.out_of_resources: Attempts failed because this machine has no more file descriptors, ports or
        # memory. No provider is blamed.
        # Do: Raise the limit of open files (`ulimit -n`, `LimitNOFILE=`), or send this machine fewer calls.
        get_logger().error(
            "gateway.out_of_resources",
            error=attempt.error_message,
            attempts=self._attempts,
            hint="raise the limit on open files (ulimit -n, LimitNOFILE=), or send this machine fewer calls",
        )
        self._logged_at_s, self._attempts = now_s, 0
