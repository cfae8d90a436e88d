"""What is in flight at a deployment: whether it matters there, and what follows when it does."""

from random import Random

import pytest

from gateway.core.prompt_classes import answer_class
from gateway.steering import Health
from gateway.steering.load import Load


def queueing(seats: float, *, samples: int = 400, seed: int = 1) -> tuple[Load, float]:
    """A deployment that queues beyond ``seats`` in flight, seen ten times a second at loads of 0 to 5; and the time."""
    load, random, now_s = Load(), Random(seed), 0.0
    for _ in range(samples):
        now_s += 0.1
        in_flight = random.randrange(6)
        ttft_s = 0.3 * (1 + (in_flight / seats) ** 4) * random.lognormvariate(0, 0.35)
        load.seen(answer_class(0), in_flight, ttft_s, now_s)
    return load, now_s + 60.0  # the surprise of the last seconds has passed


def test_where_nobody_queues_what_is_in_flight_does_not_matter() -> None:
    doubted = [queueing(1000, seed=seed) for seed in range(20)]
    crowding = [load.crowding(5, now_s) for load, now_s in doubted]
    assert sum(each == 1.0 for each in crowding) >= 18
    assert max(crowding) < 1.5


def test_nothing_is_believed_of_a_deployment_never_seen_or_hardly() -> None:
    assert Load().crowding(100, 0.0) == 1.0
    load, now_s = queueing(3, samples=4)
    assert load.crowding(100, now_s) == 1.0
    assert not load.elastic


def test_where_it_queues_more_in_flight_is_worse_and_less_is_better() -> None:
    load, now_s = queueing(3)
    assert load.elastic
    crowding = [load.crowding(in_flight, now_s) for in_flight in range(8)]
    assert crowding == sorted(crowding)
    assert crowding[0] < 1.0
    assert crowding[5] > 2.0


def test_a_toll_is_asked_even_where_no_more_is_in_flight_than_usual() -> None:
    load, now_s = queueing(3)
    elasticity, _ = load._fit or load._fitted()
    assert load.crowding(2, now_s) < 1 + elasticity < load.crowding(3, now_s)


def test_crowding_has_bounds() -> None:
    load, now_s = queueing(3)
    elasticity, _ = load._fit or load._fitted()
    assert load.crowding(10_000, now_s) == 16 * (1 + elasticity)


def test_first_tokens_later_than_the_fit_count_for_some_seconds_only() -> None:
    load, now_s = queueing(3)
    before = load.crowding(2, now_s)
    for _ in range(5):
        now_s += 0.1
        load.seen(answer_class(0), 2, 3.0, now_s)
    assert load.crowding(2, now_s) > 2 * before
    assert load.crowding(2, now_s + 60.0) < 1.5 * before


def test_a_law_that_is_no_more_confirmed_is_forgotten() -> None:
    load, now_s = queueing(3)
    random = Random(3)
    for _ in range(600):
        now_s += 5.0
        load.seen(answer_class(0), random.randrange(6), random.lognormvariate(-1, 0.35), now_s)
    assert not load.elastic


def test_prompt_classes_differ_without_being_taken_for_load() -> None:
    """Long prompts are slower, and here they always come when much is in flight."""
    load, random = Load(), Random(2)
    for number in range(600):
        crowded = number % 2
        load.seen(
            answer_class(crowded), 4 * crowded, (0.3, 2.0)[crowded] * random.lognormvariate(0, 0.35), number * 0.1
        )
    assert not load.elastic


@pytest.mark.parametrize("pause_s", [1e4, 1e7])
def test_a_long_silence_breaks_nothing(pause_s: float) -> None:
    load, now_s = queueing(3)
    assert 0.0 < load.crowding(3, now_s + pause_s) < 20
    load.seen(answer_class(1), 3, 0.3, now_s + pause_s)
    assert load.crowding(3, now_s + pause_s) == 1.0


def test_attempts_of_other_replicas_count_where_they_are_known() -> None:
    health = Health()
    health.load, now_s = queueing(3)
    assert health.launched(now_s) == 0
    alone = health.condition(now_s).crowding
    health.elsewhere = 5.0
    assert health.condition(now_s).crowding == health.load.crowding(6, now_s) > alone
    assert health.launched(now_s) == 6
    assert health.condition(now_s).in_flight == 2
