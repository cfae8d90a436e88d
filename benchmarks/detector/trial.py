"""One model for a month, watched by the gateway's own detector: false alarms, and delays after changes."""

import msgspec

from benchmarks.detector.worlds import Change, Model, World
from gateway.detecting.levels import Yardstick, added
from gateway.detecting.model import ModelWatch
from gateway.detecting.slowdowns import DAY_S, HOUR_S, SPEEDS, WINDOW_S, Happened, Metric, Window
from gateway.detecting.slowdowns import Change as Seen

CONCLUDE_S = 6 * HOUR_S
HISTORY_DAYS = 28
LATENCY_S = 60  # until the rows of a window are in the ledger and are read


class Trial:
    """A model with its watch, and the alarms so far."""

    def __init__(self, world: World, seed: int, history_days: int = HISTORY_DAYS) -> None:
        self.model = Model(world, seed)
        self.watch = ModelWatch("model")
        self.now_s = self.model.start_s
        self.alarms: list[tuple[int, str, Metric, float]] = []
        self._hour: dict[str, list[Window]] = {}
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

    def _learn(self, windows: dict[str, Window]) -> None:
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


def _together(windows: list[Window]) -> Window:
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
    return Window(windows[0].start_s, histograms, tally)
