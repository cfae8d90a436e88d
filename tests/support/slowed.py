"""Simulated deployments of a model: rhythms, shocks that all share, their own unexplained variation, races, gaps.

Counts are drawn, not calls: of calls that come at random (Poisson) the counts of the buckets are independent and
Poisson too, seen and cut ones alike, so that this is exact.
"""

import random
from functools import cache
from math import erfc, exp, log, pi, sin, sqrt

import msgspec

from gateway.alerts import DAY_S, HOUR_S, WINDOW_S, AttemptTally, AttemptWindow, Happened, Histogram, Metric
from gateway.alerts import SlowdownChange as Seen
from gateway.alerts.detector import ModelWatch
from gateway.alerts.levels import HIGHEST, LOWEST, STEP, Yardstick, added
from gateway.alerts.slowdowns import SPEEDS

_WEEK_S = 7 * DAY_S
_START_S = 1_790_000_000 // _WEEK_S * _WEEK_S
_LARGE = 15.0  # above it a Poisson number is drawn as a normal one
_EDGES = 5.0  # standard deviations
_USUAL = {Metric.TTFT: 400.0, Metric.TPS: 80.0, Metric.ITL: 14.0}
_GAPS = 30.0  # of an answer
_ANSWER_SD = 0.25  # of an answer's mean gap
CONCLUDE_S = 6 * HOUR_S
HISTORY_DAYS = 28
LATENCY_S = 60  # until the rows of a window are in the ledger and are read


class Noise(msgspec.Struct, frozen=True):
    """What is not explained by rhythm and peers: ``sd`` of five minutes' logarithm, and how it hangs together.

    ``persistence``: the correlation of two windows, one after the other. ``wild``: the share of windows whose value is
    five times as far off.
    """

    sd: float
    persistence: float = 0.0
    wild: float = 0.0


class World(msgspec.Struct, frozen=True):
    """A kind of model."""

    calls_s: float  # of each deployment
    noise: Noise
    deployments: int = 3
    rhythm: float = 0.25  # half the difference of day and night, and of the weekend: logarithm
    shared: float = 0.1  # sd of the shocks that all share
    shared_persistence: float = 0.9
    raced: float = 0.5  # share of calls that are raced by two
    nights: float = 0.15  # calls at night, as a share of those by day
    call_sd: float = 0.5
    slow_calls: float = 0.03  # share of calls that take three times as long
    error_rate: float = 0.005
    drift_month: float = 0.0  # of the level, within a month: logarithm


class Change(msgspec.Struct, frozen=True):
    """What is worse by a factor from an instant on."""

    metric: Metric
    factor: float
    at_s: float


class Simulated:
    """One deployment, five minutes (or an hour) after the other."""

    def __init__(self, world: World, dice: random.Random, number: int) -> None:
        self._world = world
        self._dice = dice
        self._own = {metric: Wander(world.noise, dice) for metric in _USUAL}
        self._phase = dice.uniform(0, 2) + number
        self._rhythm = {metric: world.rhythm * dice.uniform(0.5, 1.5) for metric in _USUAL}
        self._fast = dice.gauss(0.0, 0.2)

    def window(
        self, start_s: int, length_s: int, shared: dict[Metric, float], change: Change | None = None
    ) -> AttemptWindow:
        """Return what is counted. ``change`` is applied for the part of the window after it."""
        world = self._world
        calls = world.calls_s * length_s * traffic(world, start_s)
        histograms = {}
        for metric, usual in _USUAL.items():
            level = log(usual) + self._fast + self._rhythm[metric] * rhythm(start_s, self._phase)
            level += world.drift_month * (start_s - _START_S) / (30 * DAY_S)
            noise = self._own[metric].next(length_s // WINDOW_S) + shared[metric]
            sign = -1.0 if metric is Metric.TPS else 1.0
            level += sign * noise
            if change is not None and change.metric is metric:
                part = min(1.0, max(0.0, (start_s + length_s - change.at_s) / length_s))
                moved = level + sign * log(change.factor)
                histograms[metric] = _merged(
                    self._histogram(metric, level, calls * (1 - part)), self._histogram(metric, moved, calls * part)
                )
            else:
                histograms[metric] = self._histogram(metric, level, calls)
        n = poisson(calls, self._dice)
        errors = poisson(calls * world.error_rate, self._dice)
        return AttemptWindow(start_s, histograms, AttemptTally(n, min(n, errors)))

    def _histogram(self, metric: Metric, level: float, calls: float) -> Histogram:
        world, dice = self._world, self._dice
        if calls <= 0:
            return Histogram()
        if metric is Metric.TTFT:
            shares = _shares(level, world.call_sd, world.slow_calls)
            rival = _of_rivals(world.call_sd, world.slow_calls)
            seen, cut = {}, {}
            above, rival_above = 1.0, 1.0
            keys = sorted(set(shares) | set(rival))
            for bucket in keys:
                mine, theirs = shares.get(bucket, 0.0), rival.get(bucket, 0.0)
                first = (1 - world.raced) + world.raced * max(0.0, rival_above - theirs / 2)
                if n := poisson(calls * mine * first, dice):
                    seen[bucket] = float(n)
                lost = world.raced * theirs * max(0.0, above - mine / 2)
                if n := poisson(calls * lost, dice):
                    cut[bucket] = float(n)
                above -= mine
                rival_above -= theirs
            return Histogram(seen, cut)
        won = calls * (1 - world.raced / 2)
        if metric is Metric.TPS:
            return Histogram(_drawn(_shares(level, 0.3, 0.0), won, dice))
        answers = poisson(won, dice)
        if not answers:
            return Histogram()
        level += dice.gauss(0.0, _ANSWER_SD / sqrt(answers))
        return Histogram(_drawn(_shares(level, 0.6, 0.02), answers * _GAPS, dice), {}, float(answers))


class Model:
    """All deployments of one model."""

    def __init__(self, world: World, seed: int) -> None:
        self.dice = random.Random(seed)
        self.world = world
        self.names = [f"d{number}" for number in range(world.deployments)]
        self._deployments = {name: Simulated(world, self.dice, at) for at, name in enumerate(self.names)}
        self._shared = {metric: Wander(Noise(world.shared, world.shared_persistence), self.dice) for metric in _USUAL}
        self.start_s = _START_S

    def windows(
        self, start_s: int, length_s: int = WINDOW_S, changes: dict[str, Change] | None = None
    ) -> dict[str, AttemptWindow]:
        """Return the windows of all deployments that begin at ``start_s``."""
        shared = {metric: one.next(length_s // WINDOW_S) for metric, one in self._shared.items()}
        return {
            name: one.window(start_s, length_s, shared, (changes or {}).get(name))
            for name, one in self._deployments.items()
        }


class Wander:
    """A value around zero: each time the mean of so many windows."""

    def __init__(self, noise: Noise, dice: random.Random) -> None:
        self._noise = noise
        self._dice = dice
        self._now = dice.gauss(0.0, noise.sd)

    def next(self, windows: int) -> float:
        """Return the mean of the next windows."""
        noise, dice = self._noise, self._dice
        total = 0.0
        if noise.persistence == 0.0 and noise.wild == 0.0:
            return dice.gauss(0.0, noise.sd / sqrt(windows))
        innovation = noise.sd * sqrt(1 - noise.persistence**2)
        for _ in range(windows):
            self._now = noise.persistence * self._now + dice.gauss(0.0, innovation)
            total += self._now
            if noise.wild and dice.random() < noise.wild:
                total += dice.choice((-5, 5)) * noise.sd * dice.random()
        return total / windows


def rhythm(at_s: float, phase: float) -> float:
    """Return how busy a provider is: by the hour, less on weekends; about between -1 and 1."""
    day = sin(2 * pi * (at_s % DAY_S) / DAY_S - phase)
    weekend = -0.5 if (at_s // DAY_S + 3) % 7 >= 5 else 0.2
    return day + weekend


def traffic(world: World, at_s: float) -> float:
    """Return calls as a share of those by day."""
    hour = at_s % DAY_S / HOUR_S
    return world.nights if hour < 6 else 1.0


@cache
def _of_rivals(sd: float, slow: float) -> dict[int, float]:
    return _shares(log(_USUAL[Metric.TTFT]), sd, slow)


def _shares(level: float, sd: float, slow: float) -> dict[int, float]:
    """Return the shares of a log-normal's values in the buckets, some of which are three times as large."""
    found: dict[int, float] = {}
    for share, middle in ((1 - slow, level), (slow, level + log(3))):
        if share <= 0:
            continue
        low = max(LOWEST, int((middle - _EDGES * sd - log(10)) / STEP) - 1)
        high = min(HIGHEST, int((middle + _EDGES * sd - log(10)) / STEP) + 1)
        scale = 1 / (sd * sqrt(2))
        before = 0.0
        for bucket in range(low, high + 1):
            below = 0.5 * erfc((middle - log(10) - (bucket + 1) * STEP) * scale)
            found[bucket] = found.get(bucket, 0.0) + share * (below - before)
            before = below
    return found


def _drawn(shares: dict[int, float], number: float, dice: random.Random) -> dict[int, float]:
    found = {}
    for bucket, share in shares.items():
        if n := poisson(number * share, dice):
            found[bucket] = float(n)
    return found


def poisson(mean: float, dice: random.Random) -> int:
    """Return a Poisson number; a normal one if it is large."""
    if mean <= 0:
        return 0
    if mean > _LARGE:
        return max(0, round(dice.gauss(mean, sqrt(mean))))
    limit, product, number = exp(-mean), dice.random(), 0
    while product > limit:
        product *= dice.random()
        number += 1
    return number


def _merged(one: Histogram, other: Histogram) -> Histogram:
    def both(first: dict[int, float], second: dict[int, float]) -> dict[int, float]:
        return {key: first.get(key, 0.0) + second.get(key, 0.0) for key in first.keys() | second.keys()}

    answers = None if one.answers is None and other.answers is None else (one.answers or 0) + (other.answers or 0)
    return Histogram(both(dict(one.seen), dict(other.seen)), both(dict(one.cut), dict(other.cut)), answers)


class Trial:
    """A model with its watch, and the alarms so far."""

    def __init__(self, world: World, seed: int, history_days: int = HISTORY_DAYS) -> None:
        self.model = Model(world, seed)
        self.watch = ModelWatch("model")
        self.now_s = self.model.start_s
        self.alarms: list[tuple[int, str, Metric, float]] = []
        self._hour: dict[str, list[AttemptWindow]] = {}
        hours = [self.model.windows(self.now_s + hour * HOUR_S, HOUR_S) for hour in range(history_days * 24)]
        for name in self.model.names:
            one = self.watch.deployment(name)
            for metric in SPEEDS:
                seen: dict[int, float] = {}
                cut: dict[int, float] = {}
                for windows in hours:
                    added(seen, windows[name].histograms[metric].seen)
                    added(cut, windows[name].histograms[metric].cut)
                yardstick = Yardstick.of(seen, cut)
                if yardstick is not None:
                    one.yardsticks[metric] = yardstick
            for windows in hours:
                one.learn(windows[name])
        self.now_s += history_days * DAY_S
        self.watch.conclude(self.now_s)

    def run(self, days: float) -> None:
        """Go on for some days."""
        for _ in range(int(days * DAY_S) // WINDOW_S):
            windows = self.model.windows(self.now_s)
            for change in self.watch.add(self.now_s, windows):
                self._note(change)
            self.now_s += WINDOW_S
            self._learn(windows)

    def _note(self, change: Seen) -> None:
        slowdown = change.slowdown
        if change.happened is Happened.BEGAN:
            self.alarms.append((self.now_s, slowdown.deployment, slowdown.metric, slowdown.ratio))

    def _learn(self, windows: dict[str, AttemptWindow]) -> None:
        for name, window in windows.items():
            self._hour.setdefault(name, []).append(window)
        if self.now_s % HOUR_S == 0:
            for name, some in self._hour.items():
                self.watch.deployment(name).learn(_together(some))
            self._hour.clear()
        if self.now_s % CONCLUDE_S == 0:
            for change in self.watch.look_at(self.now_s):
                self._note(change)
            self.watch.conclude(self.now_s)

    def delay_s(self, metric: Metric, factor: float, at_s: float, name: str, most_s: float) -> float | None:
        """Return how long it takes until a change of now is noticed; the trial stays as it was."""
        one = self.watch.deployments[name]
        watch = one.speed_watches[metric]
        if watch.open is not None:
            return None
        kept = {each: dict(other.speed_watches) for each, other in self.watch.deployments.items()}
        errors = {each: other.error_watch for each, other in self.watch.deployments.items()}
        for other in self.watch.deployments.values():
            other.speed_watches = {each: one.copy() for each, one in other.speed_watches.items()}
            other.error_watch = other.error_watch.copy()
        change = Change(metric, factor, at_s)
        start_s = self.now_s
        found = None
        while start_s - at_s < most_s and found is None:
            windows = self.model.windows(start_s, changes={name: change})
            for seen in self.watch.add(start_s, windows):
                if (
                    seen.happened is Happened.BEGAN
                    and seen.slowdown.deployment == name
                    and seen.slowdown.metric is metric
                ):
                    found = start_s + WINDOW_S + LATENCY_S - at_s
            start_s += WINDOW_S
        for each, other in self.watch.deployments.items():
            other.speed_watches = kept[each]
            other.error_watch = errors[each]
        return most_s if found is None else found


def _together(windows: list[AttemptWindow]) -> AttemptWindow:
    histograms = {}
    for metric in SPEEDS:
        seen: dict[int, float] = {}
        cut: dict[int, float] = {}
        answers = None
        for window in windows:
            one = window.histograms[metric]
            added(seen, one.seen)
            added(cut, one.cut)
            if one.answers is not None:
                answers = (answers or 0.0) + one.answers
        histograms[metric] = msgspec.structs.replace(windows[0].histograms[metric], seen=seen, cut=cut, answers=answers)
    tally = msgspec.structs.replace(
        windows[0].tally,
        n=sum(window.tally.n for window in windows),
        errors=sum(window.tally.errors for window in windows),
    )
    return AttemptWindow(windows[0].start_s, histograms, tally)
