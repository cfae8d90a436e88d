"""What is known of one deployment: what is usual for it, by the hour, and what is watched."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gateway.detecting.error_watch import ErrorWatch
from gateway.detecting.levels import Level, Yardstick
from gateway.detecting.profile import DAYS, Hour, Profile
from gateway.detecting.rates import Rate
from gateway.detecting.speed_watch import SpeedWatch
from gateway.detecting.windows import DAY_S, HOUR_S, SPEEDS, Metric, Tally, Window

if TYPE_CHECKING:
    from gateway.detecting.peers import Peers

_SLOWER_IS = {Metric.TTFT: 1.0, Metric.TPS: -1.0, Metric.ITL: 1.0}  # a speed gets worse as it gets smaller
_FEW = 5.0  # values, of which a level is not known well: it is kept within a factor of e
_BOUND = 1.0


class Deployment:
    """One deployment of a model. Levels are logarithms, larger is worse."""

    def __init__(self, model: str, name: str) -> None:
        self.name = name
        self.yardsticks: dict[Metric, Yardstick] = {}
        self.hours: dict[Metric, dict[int, Level]] = {metric: {} for metric in SPEEDS}
        self.tallies: dict[int, Tally] = {}
        self.profiles: dict[Metric, Profile] = {}
        self.peers: dict[Metric, Peers] = {}
        self.rate: Rate | None = None
        self.speed_watches = {metric: SpeedWatch(model, name, metric) for metric in SPEEDS}
        self.error_watch = ErrorWatch(model, name)

    @property
    def watches(self) -> Mapping[Metric, SpeedWatch | ErrorWatch]:
        """All that watch it, by metric."""
        return {**self.speed_watches, Metric.ERRORS: self.error_watch}

    def levels(self, window: Window) -> dict[Metric, Level]:
        """Return the levels of a window, as far as they are known."""
        found = {}
        for metric, histogram in window.histograms.items():
            yardstick = self.yardsticks.get(metric)
            level = None if yardstick is None else yardstick.level(histogram)
            if level is not None:
                sign = _SLOWER_IS[metric]
                found[metric] = level if sign > 0 else Level(-level.log_ratio, level.variance, level.n)
        return found

    def learn(self, hour: Window) -> None:
        """Remember an hour."""
        for metric, level in self.levels(hour).items():
            self.hours[metric][hour.start_s] = level
        if hour.tally.n:
            self.tallies[hour.start_s] = hour.tally

    def conclude(self, now_s: int, apart: Mapping[Metric, list[tuple[int, int]]]) -> None:
        """Make expectations of the remembered hours, but those ``apart`` (from, to), in which it was slow."""
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
            profile = Profile.of(usual, now_s)
            if profile is None:
                self.profiles.pop(metric, None)
            else:
                self.profiles[metric] = profile
        for start_s in [start_s for start_s in self.tallies if start_s < oldest]:
            del self.tallies[start_s]
        spans = apart.get(Metric.ERRORS, ())
        self.rate = Rate.of([one for start_s, one in self.tallies.items() if not _is_within(start_s, spans)])

    def history_s(self, metric: Metric) -> float:
        """Return how far back is known what is usual."""
        if metric is Metric.ERRORS:
            return float(max(self.tallies, default=0) - min(self.tallies, default=0))
        profile = self.profiles.get(metric)
        return 0.0 if profile is None else profile.history_s


def tamed(value: float, n: float) -> float:
    """Return a window's value beyond what is expected: of a few calls within bounds."""
    return value if n >= _FEW else min(_BOUND, max(-_BOUND, value))


def _is_within(start_s: int, spans: Sequence[tuple[int, int]]) -> bool:
    return any(began < start_s + HOUR_S and start_s < ended for began, ended in spans)
