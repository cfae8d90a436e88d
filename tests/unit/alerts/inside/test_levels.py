"""Levels: by which factor a window's values are larger than usual, with those that were cut."""

import random
from math import exp, log

import pytest

from gateway.alerts import Histogram
from gateway.alerts.levels import STEP, Yardstick


def bucket(value_ms: float) -> int:
    return int(log(value_ms / 10) // STEP)


def drawn(dice: random.Random, number: int, *, factor: float = 1.0, rival: float | None = None) -> Histogram:
    """Values of 400 ms; those that come after a rival's are cut at its value."""
    seen: dict[int, float] = {}
    cut: dict[int, float] = {}
    for _ in range(number):
        value = 400 * factor * exp(dice.gauss(0, 0.5))
        limit = None if rival is None else rival * exp(dice.gauss(0, 0.5))
        counts, at = (cut, limit) if limit is not None and limit < value else (seen, value)
        counts[bucket(at)] = counts.get(bucket(at), 0.0) + 1
    return Histogram(seen, cut)


@pytest.mark.parametrize("factor", [0.6, 1.0, 1.3, 2.0])
@pytest.mark.parametrize("rival", [None, 400.0, 300.0])
def test_a_factor_is_found_also_where_values_are_cut(factor: float, rival: float | None) -> None:
    dice = random.Random(1)
    usual = drawn(dice, 20_000, rival=rival)
    yardstick = Yardstick.of(usual.seen, usual.cut)
    assert yardstick is not None
    level = yardstick.level(drawn(dice, 5000, factor=factor, rival=rival))
    assert level is not None
    assert abs(level.log_ratio - log(factor)) < 4 * level.variance**0.5 + 0.01


def test_the_variance_is_that_of_chance() -> None:
    dice = random.Random(2)
    usual = drawn(dice, 20_000, rival=400.0)
    yardstick = Yardstick.of(usual.seen, usual.cut)
    assert yardstick is not None
    levels = [yardstick.level(drawn(dice, 20, rival=400.0)) for _ in range(400)]
    scores = [level.log_ratio / level.variance**0.5 for level in levels if level is not None]
    assert 0.8 < sum(score * score for score in scores) / len(scores) < 1.2


def test_where_all_are_cut_late_it_is_slower_and_where_they_are_cut_early_nothing_is_known() -> None:
    usual = drawn(random.Random(3), 20_000)
    yardstick = Yardstick.of(usual.seen, {})
    assert yardstick is not None
    late = yardstick.level(Histogram({}, {bucket(600): 100.0}))
    early = yardstick.level(Histogram({}, {bucket(50): 100.0}))
    assert late is not None
    assert late.log_ratio > log(1.5)
    assert early is None or early.log_ratio**2 < 4 * early.variance


def test_one_wild_value_moves_little() -> None:
    usual = drawn(random.Random(4), 20_000)
    yardstick = Yardstick.of(usual.seen, {})
    assert yardstick is not None
    window = drawn(random.Random(5), 50)
    wild = Histogram({**window.seen, 110: 1.0}, {})
    one, other = yardstick.level(window), yardstick.level(wild)
    assert one is not None
    assert other is not None
    assert abs(one.log_ratio - other.log_ratio) < 0.05


def test_few_values_are_no_yardstick() -> None:
    assert Yardstick.of({40: 49.0}, {}) is None
    assert Yardstick.of({40: 50.0}, {}) is not None
