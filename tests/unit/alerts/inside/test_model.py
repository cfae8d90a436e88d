"""The detector over simulated weeks: what it notices, and what it does not."""

import copy
from collections.abc import Callable
from functools import cache

from gateway.alerts import DAY_S, WINDOW_S, AttemptTally, AttemptWindow, Happened, Histogram, Metric, SlowdownChange
from gateway.alerts.slowdowns import SPEEDS, SlowdownEnd
from tests.support.slowed import HISTORY_DAYS, Noise, Trial, World
from tests.support.slowed import Change as Made

WORLD = World(calls_s=0.2, noise=Noise(0.05), nights=1.0)


def a_trial(seed: int, history_days: int = HISTORY_DAYS) -> Trial:
    """Return a model after some weeks with nothing amiss, to watch from there on."""
    return copy.deepcopy(_a_history(seed, history_days))


@cache
def _a_history(seed: int, history_days: int) -> Trial:
    return Trial(WORLD, seed, history_days)


def watched(
    trial: Trial,
    windows: int,
    *,
    changes: dict[str, Made] | None = None,
    seen: Callable[[dict[str, AttemptWindow]], dict[str, AttemptWindow]] = lambda some: some,
) -> list[SlowdownChange]:
    """Watch so many windows; return what has happened."""
    found: list[SlowdownChange] = []
    for _ in range(windows):
        found += trial.watch.add(trial.now_s, seen(trial.model.windows(trial.now_s, changes=changes)))
        trial.now_s += WINDOW_S
    return found


def test_what_gets_twice_as_slow_is_noticed_with_its_factor_and_its_end() -> None:
    trial = a_trial(1)
    began_s = trial.now_s
    [change] = watched(trial, 12, changes={"d0": Made(Metric.TTFT, 2.0, began_s)})
    slowdown = change.slowdown
    assert (slowdown.deployment, slowdown.metric) == ("d0", Metric.TTFT)
    assert slowdown.began_s - began_s <= WINDOW_S
    assert slowdown.noticed_s - began_s <= 4 * WINDOW_S
    assert slowdown.low < 2.0 < slowdown.high
    [end] = watched(trial, 12)
    assert (end.happened, end.ending) == (Happened.ENDED, SlowdownEnd.AS_USUAL)
    assert trial.watch.open == []


def test_each_metric_is_watched() -> None:
    for metric in SPEEDS:
        trial = a_trial(2)
        found = watched(trial, 24, changes={"d1": Made(metric, 2.0, trial.now_s)})
        assert [(change.slowdown.deployment, change.slowdown.metric) for change in found] == [("d1", metric)]


def test_errors_that_double_are_noticed_unless_the_peers_have_them_too() -> None:
    def failing(*names: str) -> Callable[[dict[str, AttemptWindow]], dict[str, AttemptWindow]]:
        return lambda some: {
            name: AttemptWindow(one.start_s, one.histograms, AttemptTally(one.tally.n, one.tally.n // 10))
            if name in names
            else one
            for name, one in some.items()
        }

    trial = a_trial(3)
    found = watched(trial, 12, seen=failing("d0"))
    assert [(change.slowdown.deployment, change.slowdown.metric) for change in found] == [("d0", Metric.ERRORS)]
    assert found[0].slowdown.ratio > 5
    trial = a_trial(3)
    assert watched(trial, 24, seen=failing("d0", "d1", "d2")) == []


def test_what_happens_to_all_deployments_is_no_slowdown() -> None:
    trial = a_trial(1)
    longer = {name: Made(Metric.TTFT, 1.8, trial.now_s) for name in trial.model.names}
    assert watched(trial, 60, changes=longer) == []


def test_a_peer_that_gets_faster_makes_nobody_slow() -> None:
    trial = a_trial(2)
    assert watched(trial, 60, changes={"d2": Made(Metric.TTFT, 0.5, trial.now_s)}) == []


def test_ten_minutes_are_no_slowdown() -> None:
    trial = a_trial(3)
    assert watched(trial, 2, changes={"d0": Made(Metric.TTFT, 5.0, trial.now_s)}) == []
    assert watched(trial, 12) == []


def test_below_a_week_only_what_is_twice_as_slow_is_told() -> None:
    trial = a_trial(7, history_days=4)
    assert watched(trial, 36, changes={"d0": Made(Metric.TTFT, 1.4, trial.now_s)}) == []
    trial = a_trial(7, history_days=4)
    found = watched(trial, 36, changes={"d0": Made(Metric.TTFT, 2.2, trial.now_s)})
    assert [change.slowdown.deployment for change in found] == ["d0"]


def test_a_slowdown_without_calls_or_that_lasts_a_week_is_over() -> None:
    trial = a_trial(2)
    slow = {"d0": Made(Metric.TTFT, 2.0, trial.now_s)}
    watched(trial, 12, changes=slow)
    last_s = trial.now_s
    watched(trial, 1, seen=lambda some: {name: one for name, one in some.items() if name != "d0"})
    assert trial.watch.look_at(last_s + DAY_S - 1) == []
    [end] = trial.watch.look_at(last_s + DAY_S)
    assert (end.ending, end.ended_s) == (SlowdownEnd.NO_CALLS, last_s)

    trial = a_trial(2)
    [change] = watched(trial, 12, changes=slow)
    watched(trial, 1, changes=slow)
    trial.now_s = change.slowdown.began_s + 7 * DAY_S - 2 * WINDOW_S
    watched(trial, 2, changes={"d0": Made(Metric.TTFT, 2.0, 0.0)})
    [end] = trial.watch.look_at(trial.now_s)
    assert end.ending is SlowdownEnd.NEW_USUAL


def test_a_preview_changes_nothing() -> None:
    trial = a_trial(3)
    slow = {"d0": Made(Metric.TTFT, 2.0, trial.now_s)}
    windows = [
        (trial.now_s + at * WINDOW_S, trial.model.windows(trial.now_s + at * WINDOW_S, changes=slow)) for at in range(6)
    ]
    [change] = trial.watch.preview(windows)
    assert trial.watch.open == []
    assert trial.watch.preview(windows) == [change]
    trial.watch.take(change)
    assert [slowdown.deployment for slowdown in trial.watch.open] == ["d0"]
    assert trial.watch.preview(windows) == []


def test_windows_without_anything_say_nothing() -> None:
    trial = a_trial(1)
    nothing = {
        name: AttemptWindow(trial.now_s, {metric: Histogram() for metric in SPEEDS}) for name in trial.model.names
    }
    assert trial.watch.add(trial.now_s, nothing) == []
    assert trial.watch.add(trial.now_s + WINDOW_S, {}) == []


def test_a_month_of_a_deployment_has_at_most_one_false_alarm() -> None:
    trial = Trial(World(calls_s=1 / 30, noise=Noise(0.1), nights=0.2), 11)
    trial.run(10)  # of three deployments
    assert len(trial.alarms) <= 1
