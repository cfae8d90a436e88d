"""Calls are drawn, and limits set, so that each limit is used up at two thirds of its phase."""

import pytest

from benchmarks.limits.trials import (
    LIMITS,
    PARALLEL,
    RATE_PER_S,
    REACHED_AT,
    SITUATIONS,
    UNLIMITED,
    by_limit,
    drawn,
    trials,
)

LENGTH_S = 27.0


def test_calls_are_drawn_again_alike_and_with_the_rate_that_was_asked_for() -> None:
    situation = SITUATIONS[0]
    jobs = drawn(situation, 7, LENGTH_S, seed=1)
    assert jobs == drawn(situation, 7, LENGTH_S, seed=1)
    assert jobs != drawn(situation, 7, LENGTH_S, seed=2)
    assert [job.number for job in jobs[:3]] == [7, 8, 9]
    assert len(jobs) == pytest.approx(RATE_PER_S * LENGTH_S, rel=0.05)
    assert {job.limit for job in jobs} == set(LIMITS)


@pytest.mark.parametrize("limit", [limit for limit in LIMITS if limit not in {PARALLEL, UNLIMITED}])
def test_a_limit_is_what_is_asked_for_until_two_thirds_of_the_phase(limit: str) -> None:
    jobs = drawn(SITUATIONS[0], 0, LENGTH_S, seed=1)
    amount = by_limit(trials(SITUATIONS[0], jobs, LENGTH_S))[limit].amount
    assert amount is not None
    asked, reached_s = 0.0, None
    for job in jobs:
        asked += job.use.of(limit) if job.limit == limit else 0.0
        if reached_s is None and asked >= amount * 0.9999:
            reached_s = job.due_s
    assert reached_s == pytest.approx(REACHED_AT * LENGTH_S, abs=0.2)
    assert asked > 1.3 * amount


def test_every_trial_has_a_client_of_its_own() -> None:
    made = [
        trial
        for situation in SITUATIONS
        for trial in trials(situation, drawn(situation, 0, LENGTH_S, seed=1), LENGTH_S)
    ]
    assert len({trial.client for trial in made}) == len({trial.key for trial in made}) == len(made)


def test_faults_begin_and_end_within_the_phase_and_leave_it_time() -> None:
    for situation in SITUATIONS:
        end = situation.begin if situation.fault == "kill" else situation.end  # it comes back when all is over
        assert 0 < situation.begin <= end < 0.85
