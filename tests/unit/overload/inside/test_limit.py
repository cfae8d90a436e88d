"""The limit of calls in flight, as turns of the loop lower and raise it."""

from gateway.overload.call_limit import LEAST_LIMIT, CallLimit

TARGET_S = 0.025
LATE_S, IN_TIME_S = 0.05, 0.001


def observe(limit: CallLimit, turn_s: float, in_flight: int, *, ticks: int = 10, is_reached: bool = False) -> None:
    for _ in range(ticks):
        limit.observe(turn_s, in_flight, is_reached=is_reached)


def lowered(to: int = 500) -> CallLimit:
    limit = CallLimit(10_000, TARGET_S)
    while limit.now > to:
        observe(limit, LATE_S, min(limit.now, 1000), ticks=1)
    return limit


def test_while_the_loop_is_in_time_the_configured_limit_counts() -> None:
    limit = CallLimit(1000, TARGET_S)
    observe(limit, IN_TIME_S, 990, ticks=1000, is_reached=True)
    assert limit.now == 1000
    assert not limit.is_lowered


def test_turns_that_stay_long_lower_the_limit_below_what_is_in_flight() -> None:
    limit = CallLimit(10_000, TARGET_S)
    observe(limit, LATE_S, 1000, ticks=2)
    assert limit.now == 960
    assert limit.is_lowered


def test_the_longer_the_turns_the_lower_the_limit_up_to_a_bound() -> None:
    lowered_to = []
    for turn_s in (1.01 * TARGET_S, 3 * TARGET_S, 1000 * TARGET_S):
        limit = CallLimit(10_000, TARGET_S)
        observe(limit, turn_s, 1000, ticks=3)
        lowered_to.append(limit.now)
    assert lowered_to == [979, 940, 880]


def test_one_long_turn_of_the_loop_lowers_nothing() -> None:
    limit = CallLimit(10_000, TARGET_S)
    for _ in range(50):
        observe(limit, 3.0, 1000, ticks=1)
        observe(limit, IN_TIME_S, 1000, ticks=1)
    assert not limit.is_lowered


def test_the_limit_follows_the_calls_in_flight_and_does_not_run_ahead_of_them() -> None:
    """Calls end only by and by. A limit that fell on would leave the loop without work when they have."""
    limit = CallLimit(10_000, TARGET_S)
    observe(limit, LATE_S, 1000, ticks=100)
    assert limit.now == 960


def test_a_few_calls_are_never_too_many() -> None:
    limit = CallLimit(10_000, TARGET_S)
    observe(limit, 1.0, 5, ticks=1000)
    assert limit.now == LEAST_LIMIT


def test_a_configured_limit_below_the_least_counts() -> None:
    limit = CallLimit(2, TARGET_S)
    observe(limit, 1.0, 2, ticks=100)
    assert limit.now == 2


def test_a_lowered_limit_rises_slowly_while_it_is_reached_and_the_loop_is_in_time() -> None:
    limit = lowered(500)
    before = limit.now
    observe(limit, 0.9 * TARGET_S, before, ticks=5, is_reached=True)
    assert before < limit.now <= before * 1.03


def test_a_lowered_limit_rises_fast_while_the_loop_has_nothing_to_do() -> None:
    limit = lowered(500)
    before = limit.now
    observe(limit, 0.0, before, ticks=5, is_reached=True)
    assert before * 1.1 < limit.now <= before * 1.15


def test_a_lowered_limit_stays_while_it_is_enough() -> None:
    limit = lowered(500)
    before = limit.now
    observe(limit, IN_TIME_S, int(before * 0.8), ticks=1000)
    assert limit.now == before


def test_a_lowered_limit_is_soon_forgotten_when_not_even_half_of_it_is_used() -> None:
    limit = lowered(500)
    observe(limit, IN_TIME_S, 10, ticks=5 * 50)
    assert limit.now == 10_000


def test_a_lowered_limit_is_forgotten_when_nothing_is_in_flight() -> None:
    limit = lowered(500)
    limit.forget()
    assert limit.now == 10_000


def test_without_a_target_only_the_configured_limit_counts() -> None:
    limit = CallLimit(1000, 0.0)
    observe(limit, 10.0, 900, ticks=1000)
    assert limit.now == 1000


def test_another_configuration_keeps_a_lowered_limit_and_raises_any_other() -> None:
    limit = lowered(500)
    now = limit.now
    limit.configure(20_000, TARGET_S)
    assert limit.now == now
    limit.configure(100, TARGET_S)
    assert limit.now == 100
    limit.configure(200, TARGET_S)
    assert limit.now == 200
    limit = lowered(500)
    limit.configure(20_000, 0.0)
    assert limit.now == 20_000
