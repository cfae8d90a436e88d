"""Eighteen ordinary bad days: whatever one of three deployments does, calls race, and answers come as on a good day."""

from functools import cache

import pytest

from tests.schedules.days import BAD, DAYS, GOOD, N_CALLS, RACES, Day, Told, run

RACED = 0.9  # of a day's calls, at least
SLOWER = 1.1  # than on a good day, at most
ALONE = 1.25  # where a racer hangs the other one runs as if alone, until cuts at the age of losers tell of the hang
BROKEN = 0.3  # of the answers, at most, where one of three breaks all of its own

each_race = pytest.mark.parametrize("race", RACES)
each_day = pytest.mark.parametrize("name", DAYS)


@cache
def day(name: str, race: str) -> Day:
    """Return a day, which is run once."""
    return run(DAYS.get(name, GOOD), RACES[race])


def broke_after_its_first_token(each: Told) -> bool:
    """Tell whether the bad deployment had begun the answer: nobody else may go on with it unless takeover is on."""
    return each.call.ttft_ms is not None and any(
        attempt.deployment.startswith(f"{BAD}/") and attempt.ttft_ms == each.call.ttft_ms for attempt in each.attempts
    )


@each_race
@each_day
def test_calls_are_raced_on_a_bad_day(name: str, race: str) -> None:
    found = day(name, race)
    assert found.raced >= RACED * N_CALLS, found.alone


@each_race
@each_day
def test_no_call_fails_because_of_one_bad_deployment(name: str, race: str) -> None:
    failed = day(name, race).failed
    if name == "cut":
        assert all(broke_after_its_first_token(each) for each in failed)
        assert len(failed) <= BROKEN * N_CALLS
    else:
        assert not [(each.seen.status, each.call.error_kind) for each in failed]


@each_race
def test_with_takeover_no_answer_is_cut(race: str) -> None:
    assert not run(DAYS["cut"], RACES[race], takeover="always").failed


@each_race
@each_day
def test_first_tokens_come_as_on_a_good_day(name: str, race: str) -> None:
    slower = ALONE if name == "hangs always" else SLOWER
    assert day(name, race).ttft_p50_ms <= slower * day("good", race).ttft_p50_ms


@each_race
@each_day
def test_a_call_with_one_attempt_says_why(name: str, race: str) -> None:
    assert not day(name, race).alone[None]
