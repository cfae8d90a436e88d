"""What overload control is for, in virtual time; ``make bench WHAT=overload`` shows it of a whole gateway."""

import pytest

from tests.unit.overload.costly_process import (
    CAPACITY_PER_S,
    TRICKLING,
    TRICKLING_PER_S,
    TTFT_S,
    answers_to_a_crowd,
    answers_under,
)

OFF = {"max_in_flight": 1_000_000, "loop_delay_ms": 0}


@pytest.mark.parametrize("clients", [1, 3, 50])
@pytest.mark.parametrize("times", [1.25, 2.0, 2.5])
def test_with_more_calls_than_it_can_serve_it_serves_nearly_as_many_as_it_can_and_in_time(
    times: float, clients: int
) -> None:
    answers = answers_under(times * CAPACITY_PER_S, clients=clients)
    assert answers.good_per_s >= 0.9 * CAPACITY_PER_S
    assert answers.ttft_p99_s <= 2 * TTFT_S
    assert answers.refused > 0


def test_without_it_none_is_in_time() -> None:
    answers = answers_under(2 * CAPACITY_PER_S, **OFF)
    assert answers.good_per_s < 0.1 * CAPACITY_PER_S
    assert answers.refused == 0


@pytest.mark.parametrize("within_s", [0.0, 0.1, 0.5])
def test_a_crowd_that_comes_at_once_is_no_overload(within_s: float) -> None:
    """It has work for a second and a half."""
    answers = answers_to_a_crowd(int(1.5 * CAPACITY_PER_S), within_s)
    assert answers.refused == 0
    assert len(answers.ttfts_s) == int(1.5 * CAPACITY_PER_S)


@pytest.mark.parametrize("times", [0.25, 0.75, 0.9])
def test_with_fewer_calls_nobody_is_refused(times: float) -> None:
    answers = answers_under(times * CAPACITY_PER_S)
    assert answers.refused == 0
    assert answers.good_per_s == pytest.approx(times * CAPACITY_PER_S, rel=0.1)


def test_answers_that_trickle_are_refused_to_nobody_at_three_quarters_of_the_capacity() -> None:
    """Turns of the loop are as long there as its timer's period, all the time, and nobody waits for it."""
    answers = answers_under(0.75 * TRICKLING_PER_S, TRICKLING)
    assert answers.refused == 0
    assert answers.ttft_p99_s <= 1.5 * TTFT_S


def test_of_answers_that_trickle_it_gives_nearly_as_many_as_it_can_at_twice_the_capacity() -> None:
    """The refusals of the others take a tenth of the time."""
    answers = answers_under(2 * TRICKLING_PER_S, TRICKLING)
    assert answers.good_per_s >= 0.78 * TRICKLING_PER_S
    assert answers.ttft_p99_s <= 2 * TTFT_S
