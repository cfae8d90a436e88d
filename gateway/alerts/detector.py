"""Detects that a deployment got slower, or fails more often, than expected from its past and its peers.

docs/monitoring.md#when-a-provider-gets-slower has the method. All deployments of one model are watched together, as
each is compared with the others. Pure: counts of windows go in, slowdowns come out. ``gateway.ledger.books`` reads and
stores both.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import exp, log
from typing import ClassVar, TypeVar

import msgspec

from gateway.alerts.levels import DAYS, FactorLevel, Hour, LevelProfile, PeerChanges, Yardstick, together
from gateway.alerts.slowdowns import (
    DAY_S,
    HOUR_S,
    SPEEDS,
    WINDOW_S,
    AttemptTally,
    AttemptWindow,
    DetectedSlowdown,
    Happened,
    Metric,
    SlowdownChange,
    SlowdownEnd,
)

# The error rate of a deployment, its dispersion, and the likelihood ratio of a window.

WORSE = 2.0  # times as many errors
LEAST = 0.02  # and at least so many more errors, as a share of attempts
MOST = 0.95
_RATES_FEW = 20.0  # attempts in all that a rate needs
_RATES_BOUND = 400.0  # an hour counts as at most 20 standard deviations off


class Rate(msgspec.Struct, frozen=True):
    """The share of attempts that fail, and its variance as a multiple of the variance by chance (1: equal)."""

    share: float
    dispersion: float

    @classmethod
    def of(cls, hours: Sequence[AttemptTally]) -> "Rate | None":
        """Return the rate of past hours; None if there are too few attempts."""
        n, errors = sum(one.n for one in hours), sum(one.errors for one in hours)
        if n < _RATES_FEW:
            return None
        share = min(MOST, (errors + 0.5) / (n + 1.0))
        known = [one for one in hours if one.n > 0]
        squares = [
            min(_RATES_BOUND, (one.errors - one.n * share) ** 2 / (one.n * share * (1 - share))) for one in known
        ]
        return cls(share, max(1.0, sum(squares) / len(squares) * (1.0 + 2.0 * (2.0 / len(squares)) ** 0.5)))

    def worse(self, beyond: float) -> tuple[float, float]:
        """Return the usual share and the worse share, while peers fail by ``beyond`` more than usual."""
        usual = min(MOST, self.share + max(0.0, beyond))
        return usual, min((1.0 + usual) / 2, max(WORSE * usual, usual + LEAST))

    def ratio(self, seen: AttemptTally, beyond: float) -> float:
        """Return the logarithm of the likelihood ratio of the worse share to the usual one."""
        usual, worse = self.worse(beyond)
        gained = seen.errors * log(worse / usual) + (seen.n - seen.errors) * log((1 - worse) / (1 - usual))
        return gained / self.dispersion


# Evidence that adds up over windows: Page's CUSUM (1954) of log-likelihood ratios.

FACTORS = (1.3, 1.6, 2.0)
# A false alarm needs evidence of e^h : 1, so on average a false alarm takes at least e^h windows. With four metrics,
# three factors and 8,640 windows a month, there is less than one false alarm a month in all.
ENOUGH = log(8640 * 4 * 3)
SHARE = 3  # no window adds more than a third of it, so events within two windows raise no alarm


class ShiftEvidence:
    """The evidence that values are about ``shift`` too large; all in natural logarithms."""

    __slots__ = ("limit", "n", "other", "shift", "since_s", "sum", "weight", "weighted")
    most: ClassVar[float] = 4 * ENOUGH  # bounds the time to notice the end

    def __init__(self, shift: float, limit: float = ENOUGH) -> None:
        self.shift = shift
        self.limit = limit
        self.forget()

    def forget(self) -> None:
        """Reset to zero."""
        self.sum = 0.0
        self.since_s: int | None = None  # when the first of the windows that made up the sum began
        self.weight = self.weighted = self.other = self.n = 0.0

    def copy(self) -> "ShiftEvidence":
        """Return an independent copy."""
        new = ShiftEvidence(self.shift, self.limit)
        new.sum, new.since_s = self.sum, self.since_s
        new.weight, new.weighted, new.other, new.n = self.weight, self.weighted, self.other, self.n
        return new

    def add(
        self, value: float, variance: float, n: float, start_s: int, other: tuple[float, float] | None = None
    ) -> None:
        """Add one window's value, with its variance if nothing has changed; ``other``: the other comparison's."""
        self.add_ratio(self._ratio(value, variance), value, 1.0 / variance, n, start_s)
        if self.weight:
            self.other += self._bounded(self._ratio(*(other or (value, variance))))

    def add_ratio(self, ratio: float, value: float, weight: float, n: float, start_s: int) -> None:
        """Add the logarithm of a likelihood ratio."""
        if self.since_s is None:
            self.since_s = start_s
        self.sum = min(self.most, self.sum + self._bounded(ratio))
        if self.sum <= 0.0:
            self.forget()
            return
        self.weight += weight
        self.weighted += weight * value
        self.n += n

    @property
    def is_enough(self) -> bool:
        """Whether the evidence suffices for an alarm."""
        return self.sum >= self.limit

    @property
    def mean(self) -> float:
        """The mean of the values that made up the sum."""
        return self.weighted / self.weight if self.weight else 0.0

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return float(self.weight**-0.5) if self.weight else 0.0

    def _ratio(self, value: float, variance: float) -> float:
        return self.shift * (value - self.shift / 2) / variance

    def _bounded(self, ratio: float) -> float:
        bound = self.limit / SHARE
        return min(bound, max(-bound, ratio))


# Watches one metric of one deployment: the begin and the end of its slowdowns.

SETTLED_S = 7 * DAY_S  # with less history, only a factor of two is reported; a slowdown that lasts so long is usual
SILENT_S = DAY_S  # without calls
BACK = 6.0  # evidence that the metric is as usual again: e^6 : 1
_OTHER = TypeVar("_OTHER", bound="MetricWatch")
_SURE = 1.96  # standard errors on each side: 95 %


class MetricWatch:
    """Collects evidence that a metric got worse, and then that the metric is as usual again.

    Subclasses add windows, and set ``_evidence`` to the evidence that they collect.
    """

    def __init__(self, model: str, deployment: str, metric: Metric) -> None:
        self._key = (model, deployment, metric)
        self._evidence: list[ShiftEvidence] = []
        self._back = ShiftEvidence(0.0, BACK)
        self._last_s = 0  # start of the newest window
        self._since_s = 0  # earlier windows do not count
        self.open: DetectedSlowdown | None = None

    def _copied(self, new: _OTHER) -> _OTHER:
        new._evidence = [one.copy() for one in self._evidence]  # noqa: SLF001 - the same class
        new._back = self._back.copy()  # noqa: SLF001 - likewise
        new._last_s, new._since_s, new.open = self._last_s, self._since_s, self.open  # noqa: SLF001 - likewise
        return new

    def began(self, slowdown: DetectedSlowdown) -> None:
        """Note a slowdown that was detected elsewhere, or before a restart."""
        self.open = slowdown
        self._forget()

    def ended(self, at_s: int) -> None:
        """Note the attempt's end."""
        self.open = None
        self._since_s = max(self._since_s, at_s)
        self._forget()

    def look_at(self, now_s: int) -> SlowdownChange | None:
        """Return the end of a slowdown whose deployment has no more calls, or that has become usual."""
        if self.open is None:
            return None
        last_s = max(self._last_s + WINDOW_S, self.open.noticed_s)
        if now_s - last_s >= SILENT_S:
            return self._end(last_s, SlowdownEnd.NO_CALLS)
        if now_s - self.open.began_s >= SETTLED_S:
            return self._end(now_s, SlowdownEnd.NEW_USUAL)
        return None

    def _counts(self, start_s: int) -> bool:
        """Return whether a window counts, and note it."""
        if start_s < self._since_s or (self.open is not None and start_s < self.open.noticed_s):
            return False
        self._last_s = max(self._last_s, start_s)
        return True

    def _begin(self, found: ShiftEvidence, noticed_s: int, log_ratio: float, error: float) -> SlowdownChange:
        model, deployment, metric = self._key
        slowdown = DetectedSlowdown(
            model=model,
            deployment=deployment,
            metric=metric,
            began_s=noticed_s - WINDOW_S if found.since_s is None else found.since_s,
            noticed_s=noticed_s,
            ratio=exp(log_ratio),
            low=exp(log_ratio - _SURE * error),
            high=exp(log_ratio + _SURE * error),
            n=round(found.n),
        )
        self.began(slowdown)
        return SlowdownChange(Happened.BEGAN, slowdown)

    def _is_back(self, start_s: int) -> SlowdownChange | None:
        if not self._back.is_enough:
            return None
        return self._end(start_s if self._back.since_s is None else self._back.since_s, SlowdownEnd.AS_USUAL)

    def _end(self, at_s: int, ending: SlowdownEnd) -> SlowdownChange | None:
        slowdown = self.open
        if slowdown is None:
            return None
        at_s = max(at_s, slowdown.noticed_s)
        self.ended(at_s)
        return SlowdownChange(Happened.ENDED, slowdown, at_s, ending)

    def _forget(self) -> None:
        for one in (*self._evidence, self._back):
            one.forget()


# Watches the errors of one deployment, window by window.

_MANY = 5.0  # errors that an alarm needs
_MUCH_WORSE = 3.0  # times as many errors, with less than a week of history


class ErrorWatch(MetricWatch):
    """Collects evidence that twice as many attempts fail, apart from an increase that the peers share."""

    def __init__(self, model: str, deployment: str) -> None:
        super().__init__(model, deployment, Metric.ERRORS)
        self._evidence = [ShiftEvidence(0.0)]
        self._back = ShiftEvidence(0.0, BACK)

    def copy(self) -> "ErrorWatch":
        """Return an independent copy."""
        return self._copied(ErrorWatch(*self._key[:2]))

    def add(
        self, start_s: int, seen: AttemptTally, rate: Rate, beyond: float, *, history_s: float
    ) -> SlowdownChange | None:
        """Add a window, in which peers failed by ``beyond`` more than usual; return the begin or end that it causes."""
        if seen.n <= 0.0 or not self._counts(start_s):
            return None
        usual, _ = rate.worse(beyond)
        ratio = rate.ratio(seen, beyond)
        expected = seen.n * usual
        if self.open is not None:
            self._back.add_ratio(-ratio, seen.errors / expected, expected, seen.n, start_s)
            return self._is_back(start_s)
        one = self._evidence[0]
        one.add_ratio(ratio, seen.errors / expected, expected, seen.n, start_s)
        errors = one.weighted
        if not one.is_enough or errors < _MANY or (history_s < SETTLED_S and one.mean < _MUCH_WORSE):
            return None
        return self._begin(one, start_s + WINDOW_S, log(one.mean), (rate.dispersion / errors) ** 0.5)


# Watches a time, a speed or gaps of one deployment, window by window.

_ALMOST_TWICE = log(1.8)  # a factor of two may be estimated a little lower
_SPEED_WATCH_OTHER = 4.0  # evidence that the other comparison needs; chance alone ever gives so much in 2 % of cases
_BLURRED = 6.0  # times the variance: with such imprecise peers, a deployment is compared only with its own past


class Deviation(msgspec.Struct, frozen=True):
    """A window's value minus the expected one, in natural logarithms, and its variance if nothing has changed.

    ``beside``: the value minus that of the peers at that time, and its variance; None: the peers' value is unknown.
    """

    start_s: int
    value: float
    variance: float
    n: float
    beside: tuple[float, float] | None = None

    @property
    def views(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """The two comparisons, each with its variance, the more precise one first. Imprecise peers are left out."""
        itself = self.value, self.variance
        if self.beside is None or self.beside[1] > _BLURRED * self.variance:
            return itself, itself
        return (itself, self.beside) if self.variance < self.beside[1] else (self.beside, itself)


class SpeedWatch(MetricWatch):
    """Watches a time, a speed or gaps.

    An alarm needs enough evidence by the more precise comparison, and some by the other. So neither longer prompts
    everywhere nor a faster peer is an alarm.
    """

    def __init__(self, model: str, deployment: str, metric: Metric) -> None:
        super().__init__(model, deployment, metric)
        self._evidence = [ShiftEvidence(log(factor)) for factor in FACTORS]
        self._back = ShiftEvidence(log(FACTORS[0]), BACK)

    def copy(self) -> "SpeedWatch":
        """Return an independent copy."""
        return self._copied(SpeedWatch(*self._key))

    def add(self, seen: Deviation, *, history_s: float) -> SlowdownChange | None:
        """Add a window; return the begin or end that it causes."""
        if not self._counts(seen.start_s):
            return None
        (value, variance), other = seen.views
        if self.open is not None:
            # Either is enough: the deployment is as usual, or its peers are equally slow.
            self._back.add(self._back.shift - min(value, other[0]), variance, seen.n, seen.start_s)
            return self._is_back(seen.start_s)
        for one in self._evidence:
            one.add(value, variance, seen.n, seen.start_s, other)
        enough = [one for one in self._evidence if one.is_enough and one.other >= _SPEED_WATCH_OTHER]
        if history_s < SETTLED_S:
            enough = [one for one in enough if one is self._evidence[-1] and one.mean >= _ALMOST_TWICE]
        if not enough:
            return None
        found = max(enough, key=lambda one: one.sum)
        return self._begin(found, seen.start_s + WINDOW_S, found.mean, found.error)


# The state of one deployment: its usual levels by the hour, and its watches.

_SLOWER_IS = {Metric.TTFT: 1.0, Metric.TPS: -1.0, Metric.ITL: 1.0}  # a speed gets worse as it gets smaller
_FEW = 5.0  # values; with fewer, a level is imprecise, and kept within a factor of e
_BOUND = 1.0


class WatchedDeployment:
    """One deployment of a model. Levels are logarithms, larger is worse."""

    def __init__(self, model: str, name: str) -> None:
        self.name = name
        self.yardsticks: dict[Metric, Yardstick] = {}
        self.hours: dict[Metric, dict[int, FactorLevel]] = {metric: {} for metric in SPEEDS}
        self.tallies: dict[int, AttemptTally] = {}
        self.profiles: dict[Metric, LevelProfile] = {}
        self.peers: dict[Metric, PeerChanges] = {}
        self.rate: Rate | None = None
        self.speed_watches = {metric: SpeedWatch(model, name, metric) for metric in SPEEDS}
        self.error_watch = ErrorWatch(model, name)

    @property
    def watches(self) -> Mapping[Metric, SpeedWatch | ErrorWatch]:
        """The deployment's watches, by metric."""
        return {**self.speed_watches, Metric.ERRORS: self.error_watch}

    def levels(self, window: AttemptWindow) -> dict[Metric, FactorLevel]:
        """Return the known levels of a window."""
        found = {}
        for metric, histogram in window.histograms.items():
            yardstick = self.yardsticks.get(metric)
            level = None if yardstick is None else yardstick.level(histogram)
            if level is not None:
                sign = _SLOWER_IS[metric]
                found[metric] = level if sign > 0 else FactorLevel(-level.log_ratio, level.variance, level.n)
        return found

    def learn(self, hour: AttemptWindow) -> None:
        """Store the levels of an hour."""
        for metric, level in self.levels(hour).items():
            self.hours[metric][hour.start_s] = level
        if hour.tally.n:
            self.tallies[hour.start_s] = hour.tally

    def conclude(self, now_s: int, apart: Mapping[Metric, list[tuple[int, int]]]) -> None:
        """Compute expectations from the stored hours, without the spans ``apart`` (from, to), when calls were slow."""
        oldest = now_s - DAYS * DAY_S
        for metric in SPEEDS:
            levels = self.hours[metric]
            for start_s in [start_s for start_s in levels if start_s < oldest]:
                del levels[start_s]
            usual = [
                Hour(start_s, levels[start_s])
                for start_s in sorted(levels)
                if not _is_within(start_s, apart.get(metric, ()))
            ]
            profile = LevelProfile.of(usual, now_s)
            if profile is None:
                self.profiles.pop(metric, None)
            else:
                self.profiles[metric] = profile
        for start_s in [start_s for start_s in self.tallies if start_s < oldest]:
            del self.tallies[start_s]
        spans = apart.get(Metric.ERRORS, ())
        self.rate = Rate.of([one for start_s, one in self.tallies.items() if not _is_within(start_s, spans)])

    def history_s(self, metric: Metric) -> float:
        """Return the length of the history, in seconds."""
        if metric is Metric.ERRORS:
            return float(max(self.tallies, default=0) - min(self.tallies, default=0))
        profile = self.profiles.get(metric)
        return 0.0 if profile is None else profile.history_s


def tamed(value: float, n: float) -> float:
    """Return a window's deviation from the expected value, within bounds if it has only a few calls."""
    return value if n >= _FEW else min(_BOUND, max(-_BOUND, value))


def _is_within(start_s: int, spans: Sequence[tuple[int, int]]) -> bool:
    return any(began < start_s + HOUR_S and start_s < ended for began, ended in spans)


LEAST_HISTORY_S = DAY_S  # with less history, nothing is reported


class ModelWatch:
    """Takes windows of a model's deployments in the order of time, and returns slowdowns."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.deployments: dict[str, WatchedDeployment] = {}
        self._past: list[SlowdownChange] = []  # the ends of slowdowns

    def deployment(self, name: str) -> WatchedDeployment:
        """Return the deployment; a new one is added."""
        if name not in self.deployments:
            self.deployments[name] = WatchedDeployment(self.model, name)
        return self.deployments[name]

    def conclude(self, now_s: int) -> None:
        """Compute expectations from the stored hours, without those in which a deployment was slow."""
        apart = self._apart(now_s)
        for one in self.deployments.values():
            one.conclude(now_s, {metric: apart.get((one.name, metric), []) for metric in Metric})
        for metric in SPEEDS:
            self._compare(metric)

    def add(self, start_s: int, windows: Mapping[str, AttemptWindow]) -> list[SlowdownChange]:
        """Add the five-minute windows that began at ``start_s``, by deployment; return the changes."""
        for name in windows:
            self.deployment(name)
        return self._noted([*self._add_speeds(start_s, windows), *self._add_errors(start_s, windows)])

    def look_at(self, now_s: int) -> list[SlowdownChange]:
        """Return the ends of slowdowns that are over without further calls."""
        changes = [watch.look_at(now_s) for one in self.deployments.values() for watch in one.watches.values()]
        return self._noted([change for change in changes if change is not None])

    def preview(self, windows: Iterable[tuple[int, Mapping[str, AttemptWindow]]]) -> list[SlowdownChange]:
        """Return the changes that these windows, in order of time, would cause. They may be added later, completed."""
        kept = [(one, one.speed_watches, one.error_watch) for one in self.deployments.values()]
        past = list(self._past)
        for one in self.deployments.values():
            one.speed_watches = {metric: watch.copy() for metric, watch in one.speed_watches.items()}
            one.error_watch = one.error_watch.copy()
        changes = [change for start_s, some in windows for change in self.add(start_s, some)]
        for one, speed_watches, error_watch in kept:
            one.speed_watches, one.error_watch = speed_watches, error_watch
        self._past = past
        return changes

    def take(self, change: SlowdownChange) -> None:
        """Apply a change that was detected by a preview, or before a restart."""
        slowdown = change.slowdown
        watch = self.deployment(slowdown.deployment).watches[slowdown.metric]
        if change.happened is Happened.BEGAN:
            watch.began(slowdown)
        elif change.ended_s is not None:
            watch.ended(change.ended_s)
            self._past.append(change)

    @property
    def open(self) -> list[DetectedSlowdown]:
        """The open slowdowns."""
        found = [watch.open for one in self.deployments.values() for watch in one.watches.values()]
        return [slowdown for slowdown in found if slowdown is not None]

    def _noted(self, changes: list[SlowdownChange]) -> list[SlowdownChange]:
        self._past += [change for change in changes if change.happened is Happened.ENDED]
        return changes

    def _apart(self, now_s: int) -> dict[tuple[str, Metric], list[tuple[int, int]]]:
        """Return the spans in which a deployment was slow, by deployment and metric; such spans do not count as usual.

        A slowdown that has lasted for a week is usual.
        """
        self._past = [change for change in self._past if (change.ended_s or 0) > now_s - DAYS * DAY_S]
        found: dict[tuple[str, Metric], list[tuple[int, int]]] = {}
        spans = [(change.slowdown, change.ended_s or now_s) for change in self._past]
        for slowdown, until_s in [*spans, *((slowdown, now_s) for slowdown in self.open)]:
            if until_s - slowdown.began_s < SETTLED_S:
                key = slowdown.deployment, slowdown.metric
                found.setdefault(key, []).append((slowdown.began_s, until_s))
        return found

    def _compare(self, metric: Metric) -> None:
        """Estimate how much deployments change together with their peers."""
        left = {name: one.profiles[metric].left for name, one in self.deployments.items() if metric in one.profiles}
        for name, one in self.deployments.items():
            others = [hours for peer, hours in left.items() if peer != name]
            peers = {}
            for start_s in left.get(name, ()):
                level = together(hours[start_s] for hours in others if start_s in hours)
                if level is not None:
                    peers[start_s] = level
            found = PeerChanges.of(left[name], peers) if peers else None
            if found is None:
                one.peers.pop(metric, None)
            else:
                one.peers[metric] = found

    def _add_speeds(self, start_s: int, windows: Mapping[str, AttemptWindow]) -> list[SlowdownChange]:
        beyond: dict[Metric, dict[str, FactorLevel]] = {metric: {} for metric in SPEEDS}
        for name, window in windows.items():
            one = self.deployments[name]
            for metric, level in one.levels(window).items():
                profile = one.profiles.get(metric)
                if profile is not None:
                    value = tamed(level.log_ratio - profile.expected(start_s + 150), level.n)
                    beyond[metric][name] = FactorLevel(value, level.variance, level.n)
        changes = []
        for metric, found in beyond.items():
            usual = {name: level for name, level in found.items() if self._watch(name, metric).open is None}
            for name, level in found.items():
                one = self.deployments[name]
                history_s = one.history_s(metric)
                if history_s < LEAST_HISTORY_S:
                    continue
                seen = _compared(
                    start_s, one, metric, level, together(other for peer, other in usual.items() if peer != name)
                )
                change = self._watch(name, metric).add(seen, history_s=history_s)
                if change is not None:
                    changes.append(change)
        return changes

    def _watch(self, name: str, metric: Metric) -> SpeedWatch:
        return self.deployments[name].speed_watches[metric]

    def _add_errors(self, start_s: int, windows: Mapping[str, AttemptWindow]) -> list[SlowdownChange]:
        changes = []
        for name, window in windows.items():
            one = self.deployments[name]
            history_s = one.history_s(Metric.ERRORS)
            if one.rate is None or history_s < LEAST_HISTORY_S:
                continue
            change = one.error_watch.add(
                start_s, window.tally, one.rate, self._beyond(name, windows), history_s=history_s
            )
            if change is not None:
                changes.append(change)
        return changes

    def _beyond(self, name: str, windows: Mapping[str, AttemptWindow]) -> float:
        """Return by how much the share of the peers' failed attempts exceeds the usual share."""
        n = errors = expected = 0.0
        for peer, window in windows.items():
            other = self.deployments[peer]
            if peer != name and other.rate is not None and other.error_watch.open is None:
                n += window.tally.n
                errors += window.tally.errors
                expected += window.tally.n * other.rate.share
        return (errors - expected) / n if n else 0.0


def _compared(
    start_s: int, one: WatchedDeployment, metric: Metric, own: FactorLevel, peers: FactorLevel | None
) -> Deviation:
    """Return a window's level compared with the peers' and with its own past."""
    known = one.peers.get(metric)
    if peers is None or known is None:
        return Deviation(start_s, own.log_ratio, own.variance + one.profiles[metric].variance, own.n)
    itself = known.without(own, peers)
    beside = (own.log_ratio - peers.log_ratio, own.variance + peers.variance + known.beside)
    return Deviation(start_s, itself.log_ratio, itself.variance + known.itself, own.n, beside)
