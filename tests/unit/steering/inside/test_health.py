"""Cool-down, breaker, being out, price: one deployment on a clock of our own."""

from math import inf

import pytest

from gateway.steering import STRIKES, Health, HealthState
from gateway.steering.load import Launches
from tests.unit.steering.virtual_replica import VirtualReplica

Q95_S = 1.0


def opened(now_s: float = 0.0) -> Health:
    """A deployment that has just been opened for the first time."""
    health = Health()
    for _ in range(4):
        health.strike(now_s)
    return health


def state(health: Health, now_s: float) -> HealthState:
    return health.condition(now_s).state


def test_a_429_cools_for_what_it_asked() -> None:
    health = Health()
    health.rate_limited(7.0, now_s=100.0)
    assert health.condition(103.0).cooling_s == 4.0
    assert state(health, 106.9) is HealthState.COOLING
    assert state(health, 107.0) is HealthState.OK


def test_429s_that_ask_for_nothing_pause_a_second_and_twice_as_long_each_time_until_it_answers() -> None:
    health, now_s, pauses = Health(), 0.0, []
    for _ in range(8):
        health.rate_limited(None, now_s)
        pauses.append(health.condition(now_s).cooling_s)
        now_s += pauses[-1]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    health.delivered(0.5, Q95_S, now_s)
    health.rate_limited(None, now_s)
    assert health.condition(now_s).cooling_s == 1.0


def test_no_429_pauses_for_more_than_a_minute() -> None:
    health = Health()
    health.rate_limited(3600.0, now_s=0.0)
    assert health.condition(0.0).cooling_s == 60.0


def test_a_shorter_429_does_not_end_a_longer_cool_down() -> None:
    health = Health()
    health.rate_limited(10.0, now_s=0.0)
    health.rate_limited(1.0, now_s=0.0)
    assert health.condition(0.0).cooling_s == 10.0


def test_a_429_after_the_pause_of_another_raises_the_price_which_halves_every_two_minutes() -> None:
    health = Health()
    health.rate_limited(None, now_s=0.0)
    assert health.condition(0.0).price_s == 0.0  # a lone one may be chance
    for _ in range(2):
        health.rate_limited(1.0, now_s=1.0)
    assert health.condition(1.0).price_s == pytest.approx(0.4)
    assert health.condition(121.0).price_s == pytest.approx(0.2)
    for _ in range(100):
        health.rate_limited(None, now_s=121.0)
    assert health.condition(121.0).price_s == 10.0


def test_four_strikes_in_a_row_open_the_breaker_for_five_seconds() -> None:
    health = Health()
    assert [health.strike(0.0) for _ in range(4)] == [False, False, False, True]
    assert state(health, 4.9) is HealthState.OPEN
    assert state(health, 5.0) is HealthState.HALF_OPEN


def test_a_first_token_in_between_resets_the_strikes() -> None:
    health = Health()
    for _ in range(3):
        health.strike(0.0)
    health.delivered(0.5, Q95_S, 0.0)
    for _ in range(3):
        assert not health.strike(0.0)
    assert state(health, 0.0) is HealthState.OK


def test_each_opening_doubles_up_to_twenty_seconds() -> None:
    health, now_s = opened(), 0.0
    lengths = []
    for _ in range(6):
        length_s = next(step for step in range(100) if state(health, now_s + step) is not HealthState.OPEN)
        lengths.append(length_s)
        now_s += length_s
        health.strike(now_s)
    assert lengths == [5, 10, 20, 20, 20, 20]


def test_strikes_of_attempts_launched_before_it_opened_add_nothing() -> None:
    health = opened()
    for _ in range(50):
        assert not health.strike(1.0)
    assert state(health, 5.0) is HealthState.HALF_OPEN


def test_a_probe_is_due_at_once_and_then_every_three_seconds() -> None:
    health = opened()
    assert not health.condition(4.9).probe_due
    assert health.condition(5.0).probe_due
    health.probed(5.0)
    assert not health.condition(7.9).probe_due
    assert health.condition(8.0).probe_due


def test_a_probe_that_delivers_in_time_closes_the_breaker_for_good() -> None:
    health = opened()
    assert health.delivered(2.9, Q95_S, 6.0)
    assert state(health, 6.0) is HealthState.OK
    for _ in range(4):
        health.strike(10.0)
    assert state(health, 15.0) is HealthState.HALF_OPEN  # five seconds again, not ten


def test_a_probe_that_delivers_too_late_opens_it_again() -> None:
    health = opened()
    assert not health.delivered(3.1, Q95_S, 6.0)
    assert state(health, 6.0) is HealthState.OPEN
    assert state(health, 16.0) is HealthState.HALF_OPEN


def test_a_probe_that_fails_opens_it_again() -> None:
    health = opened()
    assert health.strike(6.0)
    assert state(health, 15.9) is HealthState.OPEN


def test_a_probe_cut_at_a_normal_age_says_nothing_and_one_cut_late_has_failed() -> None:
    health = opened()
    health.cut(2.9, Q95_S, 6.0)
    assert state(health, 6.0) is HealthState.HALF_OPEN
    health.cut(3.0, Q95_S, 6.0)
    assert state(health, 6.0) is HealthState.OPEN


def test_one_that_nobody_probes_is_let_in_again_after_a_minute_on_trial() -> None:
    health = opened()
    assert state(health, 64.9) is HealthState.HALF_OPEN
    assert state(health, 65.0) is HealthState.OK
    health.strike(65.0)
    assert state(health, 65.0) is HealthState.OPEN


def test_one_that_refuses_the_key_is_out_and_tried_once_a_minute() -> None:
    health = Health()
    assert health.refuse(0.0)
    assert not health.refuse(1.0)
    assert state(health, 10_000.0) is HealthState.OUT
    assert not health.condition(60.9).probe_due
    assert health.condition(61.0).probe_due


def test_being_out_ends_with_a_reload_or_a_first_token() -> None:
    for recover in (Health.reload, lambda health: health.delivered(0.5, Q95_S, 1.0)):
        health = Health()
        health.refuse(0.0)
        recover(health)
        assert state(health, 1.0) is HealthState.OK


def test_a_limit_is_what_was_admitted_before_the_second_of_two_429s_and_is_forgotten_after_five_minutes() -> None:
    health = Health()
    for number in range(31):
        health.launched(number * 0.5)
    health.rate_limited(5.0, 15.0)  # the last one
    assert health.limit(15.0) == inf  # one alone is a pause
    assert health.taken(15.0) == 30
    health.launched(21.0)
    health.rate_limited(5.0, 21.0)
    assert health.limit(21.0) == pytest.approx(30, abs=2)
    assert health.limit(330.0) == inf


def test_a_limit_is_forgotten_when_clearly_more_passes() -> None:
    health = Health()
    for now_s in (0.0, 2.0):
        health.launched(now_s)
        health.rate_limited(1.0, now_s)
    assert health.limit(2.0) < inf
    for _ in range(80):
        health.launched(30.0)
    assert health.limit(40.0) == inf


def test_what_answers_tell_of_a_limit_says_how_large_it_is() -> None:
    health = Health()
    health.limit_left(0.9, 10.0, in_minute=4)
    assert health.limit(10.0) == inf  # too few launches to tell
    health.limit_left(0.5, 20.0, in_minute=50)
    health.limit_left(0.4, 21.0, in_minute=61)  # of the minute before as well
    assert health.limit(70.0) == 100
    assert health.limit(190.0) == inf


def test_launches_are_counted_for_a_minute() -> None:
    launches = Launches()
    for second in (0.0, 0.9, 58.0, 59.9):
        launches.add(second)
    assert [launches.in_minute(now_s) for now_s in (59.99, 60.0, 118.0, 119.0, 1e9)] == [4, 2, 1, 0, 0]
    launches.add(1e9)
    launches.add(1e9 + 1)
    assert [launches.in_seconds(seconds, 1e9 + 1) for seconds in (1, 2)] == [1, 2]


def test_a_deployment_that_only_failed_is_told_as_failing_until_it_is_out_or_answers() -> None:
    replica = VirtualReplica(("a", "b"))
    told = []
    for _ in range(STRIKES):
        replica.fail("a")
        told.append(replica.state("a"))
    assert told == [*["ok"] * (STRIKES - 2), "failing", "open"]
    for _ in range(STRIKES - 1):
        replica.fail("b")
    assert replica.state("b") == "failing"
    assert replica.plan().launches[0].deployment == "b"  # as said, it is asked
    assert not replica.steering.not_asked(("b",), (), on_trial=True)
    replica.win("b")
    assert replica.state("b") == "ok"
