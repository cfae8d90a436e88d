"""When a model is late, learnt call by call: a slow one is waited for, one that hangs is not."""

from heapq import heappop, heappush
from random import Random

from gateway.core.attempts import AttemptStart, Role
from gateway.core.calls import Mode
from gateway.steering import HealthState
from tests.unit.steering.virtual_replica import MODEL, SHORT, VirtualReplica

FALLBACK_S = 1.0  # the first token of another model


def overdue_s(replica: VirtualReplica) -> float:
    primary = replica.plan(budget=0.0).primary
    assert primary is not None
    return primary.overdue_s


def test_a_lone_model_that_thinks_for_thirty_seconds_loses_few_of_its_first_hundred_calls() -> None:
    replica, lost = VirtualReplica(("a",)), 0
    runs_on: list[tuple[float, int, AttemptStart]] = []

    def until(now_s: float) -> None:
        while runs_on and runs_on[0][0] <= now_s:
            replica.now_s, _, start = heappop(runs_on)
            replica.steering.first_token(MODEL, SHORT, start, 30.0)
        replica.now_s = now_s

    for number in range(100):
        late_s = overdue_s(replica)
        heappush(runs_on, (replica.now_s + 30.0, number, replica.launch("a")))
        lost += late_s < 30.0
        until(replica.now_s + min(30.0, late_s + FALLBACK_S))
    assert lost <= 3
    assert replica.state("a") == HealthState.OK


def test_of_overtaken_primaries_all_run_on_until_ten_first_tokens_are_known_and_then_a_tenth() -> None:
    replica = VirtualReplica(("a",))
    for _ in range(10):
        assert replica.steering.runs_on(MODEL, replica.plan(mode=Mode.SINGLE), ())
        replica.win("a", 0.6)
    replica.now_s += 1.0
    plan = replica.plan(mode=Mode.SINGLE)
    assert [replica.steering.runs_on(MODEL, plan, ()) for _ in range(20)] == ([False] * 9 + [True]) * 2


def test_where_several_raced_the_draw_for_audits_decides_which_overtaken_ones_run_on() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.6, b=0.6)
    plans = [replica.plan(budget=1.0) for _ in range(200)]
    assert not any(replica.steering.runs_on(MODEL, plan, ()) for plan in plans if len(plan.launches) > 1)


def test_twelve_late_attempts_without_any_token_open_an_unknown_ones_breaker_but_four_do_not() -> None:
    replica = VirtualReplica(("a",))
    for late in range(12):
        assert not replica.steering.health_of("a").tripped, late
        assert overdue_s(replica) == 10.0
        replica.lose("a", 11.0)
        replica.now_s += 11.0
    assert replica.steering.health_of("a").tripped


def late_call(replica: VirtualReplica) -> tuple[AttemptStart, float]:
    """Run a call until another model has answered in its place; return its primary, and when the other was asked."""
    plan, start = replica.plan(mode=Mode.SINGLE), replica.launch("a")
    replica.now_s += plan.late_s
    assert replica.steering.runs_on(MODEL, plan, [start.id])
    return start, plan.late_s


def test_one_that_never_answers_is_waited_for_less_while_earlier_calls_hang_there() -> None:
    replica = VirtualReplica(("a",))
    waits_s = [late_call(replica)[1] for _ in range(11)]
    assert [round(wait_s, 2) for wait_s in waits_s] == [10.0, 10.0, 5.0, 3.33] + 7 * [2.5]
    assert not replica.steering.health_of("a").tripped


def test_one_that_thinks_for_thirty_seconds_is_waited_for_after_its_first_token_though_others_hang_there() -> None:
    replica, lost = VirtualReplica(("a",)), 0
    running: list[tuple[float, AttemptStart]] = []
    for _ in range(100):
        if replica.plan(mode=Mode.SINGLE).late_s > 30.0:
            break
        lost += 1
        running.append((replica.now_s + 30.0, late_call(replica)[0]))
        replica.now_s += FALLBACK_S
        while running and running[0][0] <= replica.now_s:
            replica.steering.first_token(MODEL, SHORT, running.pop(0)[1], 30.0)
    assert lost <= 5  # four would be if each had waited for 10 s: another model answers the others sooner
    assert replica.plan(mode=Mode.SINGLE).late_s > 60.0


def test_one_that_has_answered_once_is_waited_for_as_ever_while_calls_hang_there() -> None:
    replica = VirtualReplica(("a",))
    replica.win("a", 8.0)
    replica.now_s += 1.0
    assert all(late_call(replica)[1] > 20.0 for _ in range(4))


def test_a_model_with_another_deployment_of_its_own_asks_that_first() -> None:
    replica = VirtualReplica(("a", "b"))
    starts = [replica.launch("a") for _ in range(4)]
    replica.now_s += 10.0
    replica.steering.runs_on(MODEL, replica.plan(mode=Mode.SINGLE), [start.id for start in starts])
    assert replica.steering.health_of("a").hanging == 4
    assert {replica.plan(mode=Mode.SINGLE).late_s for _ in range(20)} == {10.0}


def test_attempts_that_have_ended_or_answered_hang_no_more() -> None:
    replica = VirtualReplica(("a",))
    for _ in range(3):
        replica.overtake("a", 10.0)
    assert replica.plan(mode=Mode.SINGLE).late_s == 10.0
    start, _ = late_call(replica)
    assert replica.steering.health_of("a").hanging == 1
    replica.steering.first_token(MODEL, SHORT, start, 10.0)
    assert replica.steering.health_of("a").hanging == 0


def test_a_slow_first_token_after_late_attempts_is_no_fault() -> None:
    replica = VirtualReplica(("a",))
    for _ in range(4):
        replica.lose("a", 11.0)
    replica.win("a", 30.0)
    for _ in range(11):
        replica.lose("a", 11.0)
    assert not replica.steering.health_of("a").tripped
    replica.now_s += 1.0
    assert overdue_s(replica) > 60.0


def test_late_attempts_of_an_unknown_deployment_count_at_once_so_that_others_are_asked() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.lose("a", 7.4)
    replica.lose("a", 7.4)
    replica.now_s += 1.0
    assert [replica.plan(budget=0.0).launches[0].deployment for _ in range(20)] == ["b"] * 20


def test_hangs_teach_no_patience() -> None:
    replica, random, waits_s, in_vain = VirtualReplica(("a",)), Random(7), [], 0
    replica.warm_up(a=0.6)
    for _ in range(300):
        late_s, ttft_s = overdue_s(replica), random.lognormvariate(-0.5, 0.35)
        waits_s.append(late_s)
        in_vain += ttft_s > late_s
        if random.random() < 0.05 or ttft_s > late_s:
            replica.lose("a", late_s + FALLBACK_S)
        else:
            replica.win("a", ttft_s)
        replica.now_s += 1.0
    assert max(waits_s) < 5.0
    assert in_vain <= 2


def test_a_rescue_that_waits_is_asked_for_again_and_may_start_later() -> None:
    replica = VirtualReplica()
    granted = [replica.charge_extra(Role.FAILOVER, 0.0) for _ in range(51)]
    assert granted == [True] * 50 + [False]
    for _ in range(200):
        replica.plan(budget=0.0)
    assert replica.charge_extra(Role.FAILOVER, 0.0)


def test_four_cuts_of_a_known_model_that_another_has_overtaken_do_not_open_its_breaker_but_twelve_do() -> None:
    replica = VirtualReplica(("a",))
    replica.warm_up(40, a=0.6)
    for late in range(12):
        assert not replica.steering.health_of("a").tripped, late
        replica.overtake("a", 3.0)
        replica.now_s += 3.0
    assert replica.steering.health_of("a").tripped


def test_the_late_first_token_of_one_that_ran_on_shows_that_it_is_slow_and_not_broken() -> None:
    replica = VirtualReplica(("a",))
    replica.warm_up(40, a=0.6)
    for _ in range(6):
        for _ in range(9):
            replica.overtake("a", 3.0)
            replica.now_s += 3.0
        start = replica.launch("a")
        replica.steering.runs_on(MODEL, replica.plan(mode=Mode.SINGLE), [start.id])
        replica.now_s += 30.0
        replica.steering.first_token(MODEL, SHORT, start, 30.0)
    assert replica.state("a") == HealthState.OK
    assert overdue_s(replica) > 30.0
