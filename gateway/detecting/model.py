"""Watches all deployments of one model, each beside the others."""

from collections.abc import Iterable, Mapping

from gateway.detecting.deployment import Deployment, tamed
from gateway.detecting.levels import Level
from gateway.detecting.peers import Peers, together
from gateway.detecting.profile import DAYS
from gateway.detecting.slowdowns import Change, Happened, Slowdown
from gateway.detecting.speed_watch import Compared, SpeedWatch
from gateway.detecting.watch import SETTLED_S
from gateway.detecting.windows import DAY_S, SPEEDS, Metric, Window

LEAST_HISTORY_S = DAY_S  # before nothing is told


class ModelWatch:
    """Windows of a model's deployments go in, in the order of time; slowdowns come out."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.deployments: dict[str, Deployment] = {}
        self._past: list[Change] = []  # the ends of slowdowns

    def deployment(self, name: str) -> Deployment:
        """Return the deployment; a new one is added."""
        if name not in self.deployments:
            self.deployments[name] = Deployment(self.model, name)
        return self.deployments[name]

    def conclude(self, now_s: int) -> None:
        """Make expectations of the hours that were learnt, but those in which a deployment was slow."""
        apart = self._apart(now_s)
        for one in self.deployments.values():
            one.conclude(now_s, {metric: apart.get((one.name, metric), []) for metric in Metric})
        for metric in SPEEDS:
            self._compare(metric)

    def add(self, start_s: int, windows: Mapping[str, Window]) -> list[Change]:
        """Add the windows of five minutes that began at ``start_s``, by deployment; return what has happened."""
        for name in windows:
            self.deployment(name)
        return self._noted([*self._add_speeds(start_s, windows), *self._add_errors(start_s, windows)])

    def look_at(self, now_s: int) -> list[Change]:
        """Return the ends of slowdowns that need no more calls to be over."""
        changes = [watch.look_at(now_s) for one in self.deployments.values() for watch in one.watches.values()]
        return self._noted([change for change in changes if change is not None])

    def preview(self, windows: Iterable[tuple[int, Mapping[str, Window]]]) -> list[Change]:
        """Return what these windows, in the order of time, would change. They may be added later, with more in them."""
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

    def take(self, change: Change) -> None:
        """Take notice of what was seen by a preview, or before a restart."""
        slowdown = change.slowdown
        watch = self.deployment(slowdown.deployment).watches[slowdown.metric]
        if change.happened is Happened.BEGAN:
            watch.began(slowdown)
        elif change.ended_s is not None:
            watch.ended(change.ended_s)
            self._past.append(change)

    @property
    def open(self) -> list[Slowdown]:
        """The slowdowns that go on."""
        found = [watch.open for one in self.deployments.values() for watch in one.watches.values()]
        return [slowdown for slowdown in found if slowdown is not None]

    def _noted(self, changes: list[Change]) -> list[Change]:
        self._past += [change for change in changes if change.happened is Happened.ENDED]
        return changes

    def _apart(self, now_s: int) -> dict[tuple[str, Metric], list[tuple[int, int]]]:
        """Return, by deployment and metric, from when to when it was slow: not what is usual.

        What has lasted for a week, and is not over, is usual now.
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
        """Learn how much deployments move with their peers."""
        left = {name: one.profiles[metric].left for name, one in self.deployments.items() if metric in one.profiles}
        for name, one in self.deployments.items():
            others = [hours for peer, hours in left.items() if peer != name]
            peers = {}
            for start_s in left.get(name, ()):
                level = together(hours[start_s] for hours in others if start_s in hours)
                if level is not None:
                    peers[start_s] = level
            found = Peers.of(left[name], peers) if peers else None
            if found is None:
                one.peers.pop(metric, None)
            else:
                one.peers[metric] = found

    def _add_speeds(self, start_s: int, windows: Mapping[str, Window]) -> list[Change]:
        beyond: dict[Metric, dict[str, Level]] = {metric: {} for metric in SPEEDS}
        for name, window in windows.items():
            one = self.deployments[name]
            for metric, level in one.levels(window).items():
                profile = one.profiles.get(metric)
                if profile is not None:
                    value = tamed(level.log_ratio - profile.expected(start_s + 150), level.n)
                    beyond[metric][name] = Level(value, level.variance, level.n)
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

    def _add_errors(self, start_s: int, windows: Mapping[str, Window]) -> list[Change]:
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

    def _beyond(self, name: str, windows: Mapping[str, Window]) -> float:
        """Return by how much more of its peers' attempts fail than usual."""
        n = errors = expected = 0.0
        for peer, window in windows.items():
            other = self.deployments[peer]
            if peer != name and other.rate is not None and other.error_watch.open is None:
                n += window.tally.n
                errors += window.tally.errors
                expected += window.tally.n * other.rate.share
        return (errors - expected) / n if n else 0.0


def _compared(start_s: int, one: Deployment, metric: Metric, own: Level, peers: Level | None) -> Compared:
    """Return a window's level beside the peers' and beside its own past."""
    known = one.peers.get(metric)
    if peers is None or known is None:
        return Compared(start_s, own.log_ratio, own.variance + one.profiles[metric].variance, own.n)
    itself = known.without(own, peers)
    beside = (own.log_ratio - peers.log_ratio, own.variance + peers.variance + known.beside)
    return Compared(start_s, itself.log_ratio, itself.variance + known.itself, own.n, beside)
