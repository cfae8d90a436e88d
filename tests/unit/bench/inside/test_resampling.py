"""The statistics, beside figures from tables and many seeded draws of a known truth."""

from random import Random
from statistics import median

import pytest

from gateway.bench import figures
from gateway.bench.figures import (
    Draws,
    IntervalEstimate,
    flipped_p,
    holm,
    order_limits,
    paired_p,
    rounds_needed,
    share_difference,
)


def test_a_paired_difference_has_the_p_value_of_students_table() -> None:
    spread = [-1.0, 1.0] * 5  # a variance of 10 / 9
    t = 2.2622  # with nine degrees of freedom beyond it on either side: 5 %
    found = figures.paired_p([each + t / 3 for each in spread])
    assert found == pytest.approx(0.05, abs=1e-5)


@pytest.mark.parametrize(
    ("hits", "number", "low", "high"),
    [(0, 10, 0.0, 0.3085), (1, 10, 0.0025, 0.4450), (5, 10, 0.1871, 0.8129), (10, 10, 0.6915, 1.0)],
)
def test_limits_of_shares_are_those_of_the_tables(hits: int, number: int, low: float, high: float) -> None:
    found = figures.share_limits(hits, number, 0.025)
    assert found == pytest.approx((low, high), abs=1e-4)


def test_a_medians_interval_holds_the_truth_as_often_as_it_says() -> None:
    held = 0
    for number in range(150):
        random = Random(number)
        values = [(round_, random.lognormvariate(0.0, 0.5)) for round_ in range(20)]
        found = Draws(range(20), number, 300).quantile(values, 0.5)
        assert found.value == median(value for _, value in values)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 1.0 <= found.high
    assert held >= 0.91 * 150


def test_rounds_are_drawn_as_wholes_since_their_answers_are_alike() -> None:
    random = Random(1)
    moods = [random.gauss(10.0, 3.0) for _ in range(20)]
    alike = [(round_, mood) for round_, mood in enumerate(moods) for _ in range(10)]
    alone = list(enumerate(moods))
    draws = Draws(range(20), 1)
    many, few = draws.mean(alike), draws.mean(alone)
    assert many.n == 200
    assert (many.value, many.low, many.high) == pytest.approx((few.value, few.low, few.high))


@pytest.mark.parametrize(
    ("number", "share", "places"),
    [(6, 0.5, (0, 5)), (20, 0.5, (5, 14)), (100, 0.95, (89, 99)), (5000, 0.5, (2430, 2569))],
)  # of printed tables: the 6th and 15th of 20 values hold their median, counted from 0 here
def test_order_statistics_hold_a_quantile(number: int, share: float, places: tuple[int, int]) -> None:
    assert order_limits(number, share) == places


def test_too_few_values_have_no_interval() -> None:
    few = Draws(range(4), 1)
    assert few.mean([(round_, 1.0 + round_) for round_ in range(4)]) == IntervalEstimate(4, 2.5)
    many = Draws(range(71), 1, 50)
    assert many.quantile([(round_, float(round_)) for round_ in range(71)], 0.95).low is None
    more = Draws(range(72), 1, 50)
    assert more.quantile([(round_, float(round_)) for round_ in range(72)], 0.95).low is not None
    assert many.quantile([(round_, float(round_)) for round_ in range(13)], 0.95).value is None
    assert many.quantile([], 0.5) == IntervalEstimate(0, None)


def test_a_share_of_none_or_all_still_has_an_interval() -> None:
    draws = Draws(range(20), 1)
    none = draws.share([(round_, False) for round_ in range(20)])
    assert (none.value, none.low) == (0.0, 0.0)
    assert none.high == pytest.approx(0.1684, abs=1e-4)
    assert draws.share([]) == IntervalEstimate(0, None)


def test_shares_that_differ_by_round_have_a_wider_interval() -> None:
    draws = Draws(range(20), 1)
    mixed = draws.share([(round_, (round_ + number) % 2 == 0) for round_ in range(20) for number in range(10)])
    moods = draws.share([(round_, round_ % 2 == 0) for round_ in range(20) for _ in range(10)])
    assert mixed.value == moods.value == 0.5
    for low, high in ((mixed, moods),):
        assert low.low is not None
        assert high.low is not None
        assert high.low < low.low - 0.1


def test_two_shares_differ_by_newcombes_interval() -> None:
    """The first example of Newcombe 1998, 56 of 70 and 48 of 80, with the limits of Wilson that he gives."""
    found = share_difference(IntervalEstimate(70, 0.8, 0.6918, 0.8769), IntervalEstimate(80, 0.6, 0.4904, 0.7003))
    assert found.value == pytest.approx(0.2)
    assert (found.low, found.high) == pytest.approx((0.0524, 0.3339), abs=2e-3)


def test_holm_corrects_the_smallest_most_and_keeps_the_order() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})
    assert holm({}) == {}


def test_a_paired_test_needs_rounds_and_a_difference() -> None:
    assert paired_p([0.1, 0.2, 0.1, 0.2]) == 1.0
    assert paired_p([0.0] * 10) == 1.0
    assert paired_p([0.1, 0.2, 0.1, 0.2] * 2) < 0.01
    assert paired_p([0.1, -0.1, 0.1, -0.1] * 2 + [0.02]) > 0.5


@pytest.mark.parametrize("amount", [0.1, 0.2])
def test_so_many_rounds_show_a_difference_four_times_in_five(amount: float) -> None:
    random, comparisons = Random(4), 10
    known = [random.gauss(0, 0.25) for _ in range(4000)]
    rounds = rounds_needed(known, amount, comparisons)
    assert rounds is not None
    shown = sum(paired_p([random.gauss(amount, 0.25) for _ in range(rounds)]) * comparisons < 0.05 for _ in range(400))
    assert 0.72 <= shown / 400 <= 0.9
    assert rounds_needed(known[:7], amount, comparisons) is None


def test_flips_of_few_rounds_are_counted_exactly() -> None:
    assert flipped_p([1.0] * 8, 1) == pytest.approx(2 / 256)
    assert flipped_p([1.0] * 6 + [0.0] * 50, 1) == pytest.approx(2 / 64)
    assert flipped_p([0.0] * 20, 1) == 1.0
    assert flipped_p([1.0, -1.0] * 20, 1) == pytest.approx(1.0)
    assert flipped_p([1.0] * 40, 1) < 0.001
