"""Times with more failures than chance explains."""

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from gateway.cli.reported import STEP_S, error_windows

BEGAN = int(datetime(2026, 10, 1, tzinfo=UTC).timestamp())


def steps(errors: dict[int, int], *, of: int = 100, count: int = 1000, usual: int = 0) -> list[dict[str, Any]]:
    return [
        {"deployment": "groq/x", "step": BEGAN + STEP_S * number, "n": of, "errors": errors.get(number, usual)}
        for number in range(count)
    ]


def test_times_that_are_close_are_one_and_the_worst_comes_first() -> None:
    found = error_windows(steps({3: 10, 5: 30, 100: 90}), ())
    assert [(each.errors, each.attempts) for each in found] == [(90, 100), (40, 300)]
    assert found[1].ended - found[1].began == timedelta(seconds=3 * STEP_S)


def test_a_time_has_all_its_requests_also_those_between_its_failures() -> None:
    [found] = error_windows(steps({3: 10, 4: 2, 5: 30}), ())
    assert (found.errors, found.attempts) == (42, 300)


def test_few_errors_and_the_usual_rate_are_no_window() -> None:
    assert not error_windows(steps({3: 2}), ())
    assert not error_windows(steps({}, usual=5), ())


def test_by_chance_alone_hardly_a_month_has_a_window() -> None:
    random, found = Random(7), 0
    for _ in range(20):
        drawn = {number: sum(random.random() < 0.02 for _ in range(50)) for number in range(1000)}
        found += len(error_windows(steps(drawn, of=50), ()))
    assert found <= 6  # 20,000 times at less than 1 in 10,000 each


@pytest.mark.parametrize("attempts", [1_000, 1_100, 1_500, 2_000])
def test_some_attempts_a_second_are_judged_too(attempts: int) -> None:
    usual = attempts // 100
    found = error_windows(steps({3: 3 * usual, 9: usual + 3}, of=attempts, usual=usual), ())
    assert [each.errors for each in found] == [3 * usual]


def test_very_many_attempts_are_judged_too() -> None:
    found = error_windows(steps({3: 3_000}, of=100_000, usual=1_000), ())
    assert [each.errors for each in found] == [3_000]
    assert not error_windows(steps({3: 1_040}, of=100_000, usual=1_000), ())
