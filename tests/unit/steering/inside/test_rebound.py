"""A deployment that is well again has its calls back."""

from random import Random

import pytest

from gateway.core.attempts import Role
from gateway.core.calls import Mode, Objective
from gateway.settings import RaceSettings
from gateway.steering import BURST_TOKENS, Plan, Terms
from gateway.steering.constants import PROBE_EVERY_S, RESCUED_OF, RESCUED_SHARE
from gateway.steering.plans import Why
from providers import ErrorKind
from tests.unit.steering.virtual_replica import MODEL, SHORT, VirtualReplica


def test_after_a_hang_the_best_is_back_with_its_first_probe() -> None:
    replica = VirtualReplica(("a", "b", "c"))
    for _ in range(120):
        replica.now_s += 1.0
        replica.warm_up(1, a=0.2, b=0.5, c=0.9)
    for _ in range(6):
        replica.lose("a", 3.0)
    assert replica.state("a") == "open"
    replica.now_s += 30.0
    assert replica.plan().launches[0].deployment == "b"
    published = replica.steering.leaderboard(MODEL).deployments[0]
    replica.win("a", 0.2, Role.PROBE)
    replica.now_s += 1.0
    assert [replica.plan().launches[0].deployment for _ in range(5)] == ["a"] * 5
    after = next(row for row in replica.steering.leaderboard(MODEL).deployments if row.deployment == "a")
    assert after.censored >= 6 > published.events - after.events  # what is published forgets nothing


def test_four_late_first_tokens_in_a_row_open_the_breaker_and_one_does_not() -> None:
    replica = VirtualReplica(("a", "b"))
    for _ in range(90):
        replica.now_s += 1.0
        replica.warm_up(1, a=0.2, b=0.5)
    for _ in range(3):
        replica.win("a", 2.0)
    replica.win("a", 0.2)
    for _ in range(3):
        replica.win("a", 2.0)
    assert replica.state("a") == "ok"
    replica.win("a", 2.0)
    assert replica.state("a") == "open"


def test_of_a_newcomer_nothing_is_held_to_be_late() -> None:
    replica = VirtualReplica(("a", "new"))
    replica.warm_up(a=0.2)
    for _ in range(20):
        replica.win("new", 5.0)
    assert replica.state("new") == "ok"


def test_a_racer_that_is_never_heard_of_again_is_broken_though_it_is_cut_young() -> None:
    replica = VirtualReplica(("a", "b"))
    for _ in range(300):
        replica.now_s += 1.0
        replica.warm_up(1, a=0.2, b=0.3)
        replica.win("a", 0.5)
    cut = 0
    while replica.state("a") == "ok":
        replica.lose("a", 0.3, Role.RACE)
        cut += 1
        assert cut < 60
    assert cut > 8
    before = next(row for row in replica.steering.leaderboard(MODEL).deployments if row.deployment == "a")
    assert before.censored >= cut


def test_a_racer_that_loses_often_but_is_heard_of_is_well() -> None:
    replica, random = VirtualReplica(("a", "b")), Random(4)
    for _ in range(3000):
        replica.now_s += 0.5
        replica.win("b", 0.3, Role.RACE)
        if (ttft_s := random.lognormvariate(-1.0, 0.3)) < 0.3:
            replica.win("a", ttft_s)
        else:
            replica.lose("a", 0.3, Role.RACE)
    assert replica.state("a") == "ok"


def test_a_racer_that_is_always_cut_a_hair_before_its_first_token_is_well() -> None:
    """Two deployments answer at the same instant and nobody is audited: the same one loses each time."""
    replica, random = VirtualReplica(("a", "b")), Random(5)
    for _ in range(90):
        replica.now_s += 1.0
        replica.warm_up(1, a=random.uniform(0.38, 0.44), b=random.uniform(0.38, 0.44))
    for _ in range(1000):
        ttft_s = random.uniform(0.38, 0.44)
        replica.now_s += 1.0
        replica.win("b", ttft_s)
        replica.lose("a", ttft_s - 0.001, Role.RACE)
        assert replica.state("a") == "ok"


class Outages:
    """Calls in mode single at "a", which is better, and "b"; the result counts what each outage of "a" did to them."""

    def __init__(self, kind: ErrorKind = ErrorKind.SERVER_ERROR, *, budget: float = 1.0) -> None:
        self.replica, self.kind, self.budget = VirtualReplica(("a", "b"), seed=3), kind, budget
        self.calls = self.probes = 0
        self.asked_after_s: list[float] = []  # after each outage: until "a" was asked
        self.back_after_s: list[float] = []  # and until half of the last twelve calls began there
        for _ in range(60):
            self.call(1.0, is_down=False)

    def last(self, seconds: float) -> None:
        """Let an outage last so long, with a call each second in its last minute, and then two minutes pass."""
        left_s = seconds
        while left_s > 0.0:
            step_s = 1.0 if left_s <= 60.0 else 3.0
            self.call(step_s, is_down=True)
            left_s -= step_s
        first: list[str] = []
        asked = None
        for second in range(1, 121):
            plan = self.call(1.0, is_down=False)
            first.append(plan.launches[0].deployment)
            if asked is None and "a" in [each.deployment for each in plan.launches if not each.delay_s]:
                asked = second
                self.asked_after_s.append(second)
            if first[-12:].count("a") >= 6:
                self.back_after_s.append(second)
                return
        pytest.fail("its calls never came back")

    def call(self, after_s: float, *, is_down: bool) -> Plan:
        """Have one call, which nobody hedges, as "b" answers in time."""
        replica = self.replica
        replica.now_s += after_s
        plan = replica.plan(mode=Mode.SINGLE, budget=self.budget)
        self.calls += 1
        primary, *others = [each for each in plan.launches if not each.delay_s]
        for each in others:
            assert (each.deployment, each.role) == ("a", Role.PROBE)
            self.probes += 1
            self._attempt("a", Role.PROBE, is_down=is_down)
        if not self._attempt(primary.deployment, Role.PRIMARY, is_down=is_down):
            self._attempt("b", Role.FAILOVER, is_down=is_down)
        return plan

    def _attempt(self, deployment: str, role: Role, *, is_down: bool) -> bool:
        if is_down and deployment == "a":
            self.replica.fail("a", self.kind, role=role)
            return False
        self.replica.win(deployment, 0.2 if deployment == "a" else 0.5, role)
        return True


def test_after_ten_minutes_of_errors_single_asks_the_better_one_within_twenty_seconds_and_has_it_back() -> None:
    outages = Outages()
    for number in range(10):
        outages.last(600.0 + 2.3 * number)
    assert sorted(outages.asked_after_s)[4] <= 20.0
    assert sorted(outages.asked_after_s)[8] <= 40.0
    assert max(after - asked for after, asked in zip(outages.back_after_s, outages.asked_after_s, strict=True)) <= 8.0
    assert outages.probes <= 0.15 * outages.calls  # of a call each three seconds; in an outage, one each twenty seconds


def test_after_an_hour_without_connections_single_asks_the_better_one_as_soon() -> None:
    outages = Outages(ErrorKind.CONNECT_ERROR)
    for number in range(2):
        outages.last(3600.0 + 7.1 * number)
    assert max(outages.asked_after_s) <= 20.0 + PROBE_EVERY_S
    assert max(outages.back_after_s) <= 40.0


def test_errors_of_a_known_outage_are_published_and_say_nothing_of_the_time_after_it() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.2, b=0.5)
    for _ in range(4):
        replica.fail("a")
    for _ in range(40):
        replica.now_s += 1.0
        replica.fail("a", role=Role.PROBE)
    row = next(row for row in replica.steering.leaderboard(MODEL).deployments if row.deployment == "a")
    assert row.error_rate == pytest.approx(44 / 74, abs=0.001)
    told = replica.plan(explain=True).explanation
    assert told is not None
    assert next(each for each in told.deployments if each.deployment == "a").error_rate < 0.15


def test_a_budget_of_nothing_sends_no_probe_beside_and_lets_one_call_in_on_trial_each_minute() -> None:
    outages, trials = Outages(budget=0.0), 0
    for _ in range(300):
        trials += outages.call(1.0, is_down=True).launches[0].why is Why.TRIAL
    assert outages.probes == 0
    assert 2 <= trials <= 4
    for _ in range(100):
        outages.call(1.0, is_down=False)
    assert outages.call(1.0, is_down=False).launches[0].deployment == "a"


def test_a_trial_is_hedged_after_a_second_where_hedges_are_allowed_and_the_next_call_does_not_wait_for_it() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.9, b=2.0)
    for _ in range(4):
        replica.fail("a")
    replica.now_s += 70.0
    trial, behind = (replica.plan(budget=0.0) for _ in range(2))
    assert (trial.launches[0].deployment, trial.launches[0].why) == ("a", Why.TRIAL)
    assert [(each.deployment, each.delay_s, each.role) for each in trial.launches[1:]] == [("b", 1.0, Role.FAILOVER)]
    assert behind.launches[0].deployment == "b"
    assert trial.launches[0].audited  # so that it shows whether it hangs, though the other answers
    alone = VirtualReplica(("a", "b"))
    alone.warm_up(a=0.9, b=2.0)
    for _ in range(4):
        alone.fail("a")
    alone.now_s += 70.0
    assert [each.deployment for each in alone.plan(mode=Mode.SINGLE, budget=0.0).launches] == ["a"]


def test_a_call_that_is_never_sent_twice_probes_nobody() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.2, b=0.5)
    for _ in range(4):
        replica.fail("a")
    replica.now_s += 10.0
    terms = Terms(Objective.FIRST_TOKEN, 100, stateful=True)
    plan = replica.steering.plan(MODEL, replica.deployments, RaceSettings(mode=Mode.SINGLE), terms, SHORT)
    assert [each.deployment for each in plan.launches if not each.delay_s] == ["b"]
    assert [each.role for each in replica.plan(mode=Mode.SINGLE).launches][:2] == [Role.PRIMARY, Role.PROBE]


def test_a_call_whose_losers_cannot_be_watched_is_hedged_but_probes_nobody() -> None:
    replica = VirtualReplica(("a", "b", "c"))
    replica.warm_up(a=0.2, b=0.5, c=0.6)
    for _ in range(4):
        replica.fail("a")
    replica.now_s += 10.0
    race = RaceSettings(mode=Mode.HEDGE, budget=0.05)
    watching, blind = (
        replica.steering.plan(
            MODEL, replica.deployments, race, Terms(Objective.FIRST_TOKEN, 100, watches=watches), SHORT
        )
        for watches in (True, False)
    )
    assert Role.PROBE in {each.role for each in watching.launches}
    assert [each.role for each in blind.launches][:2] == [Role.PRIMARY, Role.HEDGE]
    assert "a" not in {each.deployment for each in blind.launches if each.role is not Role.FAILOVER}


def test_with_one_attempt_a_call_who_was_slower_for_a_while_is_asked_beside_and_back_once_as_quick_as_usual() -> None:
    replica = slower_for_a_while()
    beside = [each for _ in range(200) for each in in_turn(replica, 0.1).launches if each.why is Why.BACK]
    assert 1 <= len(beside) < 12
    assert {(each.deployment, each.role) for each in beside} == {("a", Role.EXPLORE)}
    weight = beside[0].weight
    for ttft_s, weighs, is_back in ((0.58, weight, False), (0.2, 1.0, False), (0.2, weight, True)):
        for _ in range(3):
            replica.win("a", ttft_s, Role.EXPLORE, weight=weighs)
        replica.now_s += 1.0
        firsts = [in_turn(replica, 0.1).launches[0].deployment for _ in range(20)]
        assert (firsts.count("a") > 10) is is_back
    assert not any(each.why is Why.BACK for _ in range(200) for each in in_turn(replica, 0.1).launches)


def test_a_call_of_budget_0_is_joined_by_nobody_and_what_others_explore_counts_once() -> None:
    replica = slower_for_a_while()
    assert {len(in_turn(replica, 0.0).launches) for _ in range(200)} == {1}
    assert {each.weight for _ in range(200) for each in replica.plan(budget=0.1).launches} == {1.0}


def test_what_is_explored_beside_one_attempt_a_call_is_paid_as_rescues_are() -> None:
    replica = VirtualReplica()
    for _ in range(200):
        in_turn(replica, 0.1)
    explored = sum(replica.charge_extra(Role.EXPLORE, 0.1, mode=Mode.SINGLE) for _ in range(100))
    assert explored == RESCUED_SHARE * RESCUED_OF + BURST_TOKENS
    assert not replica.charge_extra(Role.FAILOVER, 0.1)


def slower_for_a_while() -> VirtualReplica:
    """Return a replica whose best deployment was slower than the second best for five minutes."""
    replica = VirtualReplica(("a", "b", "c"))
    for a_s, seconds in ((0.2, 900), (0.58, 300)):
        for _ in range(0, seconds, 3):
            replica.now_s += 3.0
            replica.warm_up(1, a=a_s, b=0.45, c=0.9)
    assert replica.state("a") == "ok"
    return replica


def in_turn(replica: VirtualReplica, budget: float) -> Plan:
    return replica.plan(mode=Mode.SINGLE, budget=budget)
