"""A canary is given its share of the calls and no more, and nobody waits longer for that."""

from collections import Counter

import pytest

from gateway.core.attempts import Role
from gateway.core.calls import Mode, Objective
from gateway.steering import Plan
from gateway.steering.plans import Why
from providers import ErrorKind
from tests.unit.steering.virtual_replica import VirtualReplica

TENTH = {"canary": 0.1}
ALWAYS = {"canary": 1.0}


def replica_of(*names: str, seed: int = 1) -> VirtualReplica:
    """Known deployments, equally good, and a canary that is the fastest of them."""
    replica = VirtualReplica((*names, "canary"), seed=seed)
    replica.warm_up(30, **dict.fromkeys(names, 0.3), canary=0.05)
    return replica


def primary(plan: Plan) -> str:
    return plan.launches[0].deployment


def break_down(replica: VirtualReplica, name: str) -> None:
    for _ in range(4):
        replica.fail(name)


def test_a_canary_is_the_primary_of_its_share_of_the_calls() -> None:
    replica = replica_of("a", "b")
    plans = [replica.plan(canaries=TENTH) for _ in range(4000)]
    chosen = [plan for plan in plans if primary(plan) == "canary"]
    assert len(chosen) == pytest.approx(400, abs=80)  # four standard deviations
    assert {plan.launches[0].why for plan in chosen} == {Why.CANARY}
    assert {plan.launches[0].role for plan in chosen} == {Role.PRIMARY}


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("objective", [Objective.FIRST_TOKEN, Objective.COMPLETION, Objective.COST])
def test_otherwise_it_runs_only_when_all_others_failed(mode: Mode, objective: Objective) -> None:
    replica = replica_of("a", "b")
    for budget in (0.1, 1.0, 2.5):
        for _ in range(200):
            plan = replica.plan(canaries=TENTH, mode=mode, budget=budget, objective=objective, width=3)
            if primary(plan) == "canary":
                continue
            roles = {launch.role for launch in plan.launches if launch.deployment == "canary"}
            assert roles <= {Role.FAILOVER}
            assert [*(launch.deployment for launch in plan.launches), *plan.rest][-1] == "canary"


def test_the_others_race_it_as_usual() -> None:
    replica = replica_of("a", "b")
    raced = [replica.plan(canaries=ALWAYS, worth_ms=0).launches[1] for _ in range(1000)]
    assert {(launch.deployment, launch.delay_s) for launch in raced} == {("a", 0.0), ("b", 0.0)}
    assert sum(launch.role is Role.RACE for launch in raced) > 180
    assert replica.plan(canaries=ALWAYS, budget=0.1).launches[1].role is Role.HEDGE


def test_a_canary_nobody_knows_has_company_at_once() -> None:
    replica = VirtualReplica(("a", "canary"))
    replica.warm_up(a=0.3)
    plan = replica.plan(canaries=ALWAYS, budget=0.1)
    assert [(launch.deployment, launch.why) for launch in plan.launches] == [
        ("canary", Why.CANARY),
        ("a", Why.COLD_START),
    ]


def test_an_idle_canary_is_chosen_however_slow_it_is() -> None:
    replica = VirtualReplica(("a", "canary"))
    replica.warm_up(a=0.3, canary=9.0)
    assert primary(replica.plan(canaries=ALWAYS, min_tok_s=100.0)) == "canary"


def test_under_single_a_canary_answers_alone_unless_it_hangs() -> None:
    replica = replica_of("a")
    plan = replica.plan(canaries=ALWAYS, mode=Mode.SINGLE)
    assert [(launch.deployment, launch.delay_s > 0.5) for launch in plan.launches] == [("canary", False), ("a", True)]


def test_each_canary_has_a_share_of_its_own() -> None:
    replica = VirtualReplica(("a", "x", "y"))
    replica.warm_up(a=0.3, x=0.3, y=0.3)
    chosen = Counter(primary(replica.plan(canaries={"x": 0.1, "y": 0.3})) for _ in range(4000))
    assert chosen["x"] == pytest.approx(400, abs=80)
    assert chosen["y"] == pytest.approx(1200, abs=120)


@pytest.mark.parametrize("kind", [ErrorKind.RATE_LIMITED, ErrorKind.PROVIDER_AUTH])
def test_a_canary_that_may_not_be_asked_is_not_chosen(kind: ErrorKind) -> None:
    replica = replica_of("a", "b")
    replica.fail("canary", kind, retry_after_s=20.0)
    for _ in range(50):
        plan = replica.plan(canaries=ALWAYS)
        assert "canary" not in {launch.deployment for launch in plan.launches}


def test_a_broken_canary_is_tried_when_it_is_its_turn_and_nobody_waits_for_it() -> None:
    replica = replica_of("a", "b", seed=5)  # by which some turns come before it is let in again
    break_down(replica, "canary")
    assert "canary" not in {launch.deployment for launch in replica.plan(canaries=ALWAYS).launches}
    replica.now_s += 10.0
    plan = replica.plan(canaries=ALWAYS)
    assert primary(plan) in {"a", "b"}
    assert [(launch.role, launch.why) for launch in plan.launches if launch.deployment == "canary"] == [
        (Role.PROBE, Why.PROBE)
    ]
    replica.now_s += 10.0
    began_s, probed = replica.now_s, 0
    for _ in range(300):
        replica.now_s += 4.0
        replica.lose("canary", 0.01)  # nothing is learned of it
        plan = replica.plan(canaries={"canary": 0.02})
        roles = {launch.role for launch in plan.launches if launch.deployment == "canary"}
        if Role.FAILOVER in roles:  # let in again, on trial
            break
        probed += bool(roles)
    else:
        pytest.fail("it was never let in again")
    assert replica.now_s - began_s >= 40.0  # a minute after it could first be probed, at the earliest
    assert 1 <= probed <= 5


def test_a_full_canary_is_not_chosen() -> None:
    replica = replica_of("a")
    replica.launch("canary")
    assert primary(replica.plan(canaries=ALWAYS, limits={"canary": 1})) == "a"


def test_when_all_others_are_broken_a_canary_is_better_than_nothing() -> None:
    replica = replica_of("a", "b")
    for name in "ab":
        break_down(replica, name)
    plan = replica.plan(canaries={"canary": 0.001})
    assert primary(plan) == "canary"
    assert {*plan.rest, plan.launches[1].deployment} == {"a", "b"}  # one is asked if it hangs
    assert plan.launches[1].delay_s > 0


def test_a_call_alone_asks_a_canary_before_a_broken_one() -> None:
    replica = replica_of("a", "b")
    break_down(replica, "b")
    plan = replica.plan(canaries={"canary": 0.001}, mode=Mode.SINGLE)
    assert [launch.deployment for launch in plan.launches if launch.role is not Role.PROBE] == ["a"]
    assert plan.rest[:1] == ("canary",)


def test_the_broken_come_after_a_canary_and_broken_canaries_last() -> None:
    replica = VirtualReplica(("a", "b", "c", "d", "x", "y"))
    replica.warm_up(a=0.3, b=0.3, c=0.3, d=0.3, x=0.1, y=0.1)
    for name in "dx":
        break_down(replica, name)
    plan = replica.plan(canaries={"x": 0.0001, "y": 0.0001}, mode=Mode.SINGLE)
    assert plan.rest[-3:] == ("y", "d", "x")


def test_when_all_are_broken_canaries_still_come_last() -> None:
    replica = replica_of("a", "b")
    for name in ("canary", "a", "b"):
        break_down(replica, name)
    plan = replica.plan(canaries=TENTH, mode=Mode.SINGLE)
    assert primary(plan) in {"a", "b"}
    assert plan.rest[-1] == "canary"


def test_a_model_of_canaries_alone_is_served_by_them() -> None:
    replica = VirtualReplica(("x", "y"))
    replica.warm_up(x=0.3, y=0.3)
    chosen = Counter(primary(replica.plan(canaries={"x": 0.1, "y": 0.1})) for _ in range(400))
    assert min(chosen["x"], chosen["y"]) > 100


def test_a_deployment_alone_but_for_a_canary_races_itself_when_asked_to() -> None:
    replica = replica_of("a")
    plan = replica.plan(canaries={"canary": 0.0001}, mode=Mode.RACE, width=2)
    assert [launch.deployment for launch in plan.launches if launch.delay_s == 0] == ["a", "a"]


def test_a_canary_rescues_a_call_that_nobody_else_can() -> None:
    replica = replica_of("a")
    plan = replica.plan(canaries={"canary": 0.0001}, budget=0.1)
    assert [(launch.deployment, launch.role) for launch in plan.launches] == [
        ("a", Role.PRIMARY),
        ("canary", Role.FAILOVER),
    ]


def test_the_speed_of_a_canary_is_known_to_the_race() -> None:
    replica = replica_of("a", "b")
    assert set(replica.plan(canaries=TENTH, objective=Objective.COMPLETION).decode_s) == {"a", "b", "canary"}


def test_a_canary_is_on_the_leaderboard() -> None:
    replica = replica_of("a")
    replica.plan(canaries=TENTH)
    assert replica.state("canary") == "ok"


def test_a_plan_tells_of_a_canary_and_with_which_chance_it_was_chosen() -> None:
    replica = replica_of("a", "b")
    told = replica.plan(canaries=ALWAYS, explain=True).explanation
    assert told is not None
    assert told.launches[0].why == "canary: gets a share of 1 of the calls, whatever its score"
    told = replica.plan(canaries=TENTH, explain=True).explanation
    assert told is not None
    assert [each.deployment for each in told.deployments][-1] == "canary"
    assert sum(each.draw for each in told.deployments) == pytest.approx(1.0, abs=1e-3)
    prospect = told.deployments[-1]
    assert (prospect.canary, prospect.draw, prospect.near) == (0.1, 0.1, False)
    assert prospect.passed_over == "canary: primary for its share of the calls, otherwise a last resort"
