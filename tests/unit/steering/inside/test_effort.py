"""Effort is a class of its own where a model thinks: what quick calls take says nothing of those that think."""

from random import Random

import pytest

from gateway.core.calls import Mode
from gateway.core.prompt_classes import Effort, PromptClass, answer_class
from gateway.steering import HealthState
from gateway.steering.estimates import Estimate
from tests.unit.steering.virtual_replica import SHORT, VirtualReplica

LOW, HIGH = answer_class(0, Effort.LOW), answer_class(0, Effort.HIGH)


def estimate(replica: VirtualReplica, prompt_class: PromptClass) -> Estimate:
    primary = replica.plan(mode=Mode.SINGLE, prompt_class=prompt_class).primary
    assert primary is not None
    return primary


def answers(replica: VirtualReplica, prompt_class: PromptClass, *times_s: float, deployment: str = "a") -> None:
    for ttft_s in times_s:
        replica.win(deployment, ttft_s, prompt_class=prompt_class)
    replica.now_s += 31.0


@pytest.mark.parametrize("known", [SHORT, LOW])
def test_the_first_calls_with_much_effort_are_not_late_by_what_quick_ones_take(known: PromptClass) -> None:
    replica = VirtualReplica(("a",))
    answers(replica, known, *[0.6] * 50)
    assert estimate(replica, known).overdue_s < 2.5
    for _ in range(9):
        thinks = estimate(replica, HIGH)
        assert (thinks.overdue_s >= 10.0, thinks.hangs_s >= 7.3, thinks.is_known) == (True, True, False)
        answers(replica, HIGH, 30.0)
    answers(replica, HIGH, 30.0)
    assert estimate(replica, HIGH).overdue_s > 60.0
    assert estimate(replica, known).overdue_s < 2.5
    assert replica.state("a") == HealthState.OK


def test_a_thinking_model_is_waited_for_and_its_quick_calls_are_rescued_in_time() -> None:
    replica, random, extras, quick_s = VirtualReplica(("a",)), Random(5), 0, []
    for number in range(400):
        prompt_class, median_s = (HIGH, 30.0) if number % 2 else (LOW, 0.6)
        late_s, ttft_s = estimate(replica, prompt_class).overdue_s, median_s * random.lognormvariate(0.0, 0.35)
        hangs = random.random() < 0.01
        if (hangs or ttft_s > late_s) and number >= 40:
            extras += not hangs
            if prompt_class is LOW:
                quick_s.append(late_s + 0.6)
            replica.lose("a", late_s + 0.6, prompt_class=prompt_class)
        else:
            replica.win("a", ttft_s, prompt_class=prompt_class)
        replica.now_s += 2.0
    assert extras <= 1
    assert max(quick_s) <= 5.0
    assert replica.state("a") == HealthState.OK


def test_a_model_that_does_not_think_learns_from_all_its_calls() -> None:
    replica = VirtualReplica(("a", "b"))
    for prompt_class in (SHORT, LOW, HIGH):
        answers(replica, prompt_class, *[0.3] * 12)
        answers(replica, prompt_class, *[0.3] * 12, deployment="b")
    for prompt_class in (SHORT, LOW, HIGH):
        answers(replica, prompt_class, *[0.9] * 4)
    slower = [estimate(replica, each) for each in (SHORT, LOW, HIGH)]
    assert {each.events for each in slower} == {slower[0].events}
    assert {each.overdue_s for each in slower} == {slower[0].overdue_s}


def test_little_effort_is_taken_to_be_as_quick_as_what_is_known() -> None:
    replica = VirtualReplica(("a",))
    answers(replica, SHORT, *[0.6] * 50)
    assert estimate(replica, LOW).overdue_s == estimate(replica, SHORT).overdue_s
    assert estimate(replica, LOW).is_known


def test_a_slow_first_token_of_much_effort_is_no_strike_while_little_is_known_of_it() -> None:
    replica = VirtualReplica(("a", "b"))
    answers(replica, SHORT, *[0.6] * 50)
    for _ in range(8):
        replica.win("a", 40.0, prompt_class=HIGH)
    for _ in range(4):
        replica.lose("a", 12.0, prompt_class=HIGH)
    assert not replica.steering.health_of("a").tripped


def test_clients_that_leave_early_break_no_deployment_whose_effort_is_little_known() -> None:
    replica = VirtualReplica(("a",))
    answers(replica, SHORT, *[0.6] * 50)
    for client in "abcdef":
        replica.leave("a", 6.0, client, prompt_class=HIGH)
    assert not replica.steering.health_of("a").tripped
    for client in "abcd":
        replica.leave("a", 6.0, client)
    assert replica.steering.health_of("a").tripped


def test_what_asks_for_no_effort_is_as_before() -> None:
    replica = VirtualReplica(("a",))
    answers(replica, SHORT, 0.5, 0.5, 0.5)
    known = estimate(replica, SHORT)
    assert not known.is_borrowed
    assert known.overdue_s == 10.0
