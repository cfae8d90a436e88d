"""Calls with keys that their clients bring: what they take of the operator's budget for extra attempts."""

import pytest

from gateway.core.attempts import Narrowed, Role
from gateway.core.calls import Mode, Objective
from gateway.settings import RaceSettings
from gateway.steering import Launch, Terms
from providers import Price
from tests.unit.steering.virtual_replica import MODEL, SHORT, VirtualReplica

OWN = {"a": "a\x1fdigest"}
PRICE = Price(input_usd=1e-6, output_usd=1e-5)


def may_launch(replica: VirtualReplica, deployment: str, role: Role, **of_dollars: float) -> bool:
    race = RaceSettings.model_validate({"budget": 0.1, **of_dollars})
    launch = Launch(deployment, 0.0, role)
    return replica.steering.draw_extra(MODEL, launch, race, cost_usd=0.0, learnt_as=OWN) is None


@pytest.mark.parametrize("role", [Role.FAILOVER, Role.FALLBACK, Role.HEDGE])
def test_their_extra_attempts_leave_the_others_budget_as_it_was(role: Role) -> None:
    replica = VirtualReplica(("a", "b"))
    for _ in range(500):
        may_launch(replica, "a", role)
    assert replica.steering.extra_attempts_left(MODEL) == VirtualReplica(("a",)).steering.extra_attempts_left(MODEL)
    assert replica.charge_extra(Role.FAILOVER, 0.1)
    assert replica.charge_extra(Role.HEDGE, 0.1)


def test_however_many_have_a_budget_themselves() -> None:
    replica = VirtualReplica(("a", "b"))
    started = sum(may_launch(replica, "a", Role.HEDGE) for _ in range(500))
    assert 0 < started < 50


def test_their_plans_keep_nothing_of_a_key_that_was_not_used() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(20, a=0.3, b=0.3)
    for number in range(200):
        learnt_as = {each: f"{each}\x1f{number}" for each in "ab"}
        terms = Terms(Objective.FIRST_TOKEN, 1000, 100, learnt_as=learnt_as)
        planned = replica.steering.plan(MODEL, ["a", "b"], RaceSettings(mode=Mode.SINGLE), terms, SHORT)
        if not planned.explores:  # an attempt to learn more is noted at once
            assert replica.steering._tenants._healths.keys().isdisjoint(learnt_as.values())


def test_a_limit_of_dollars_a_call_narrows_no_attempt_that_its_client_pays() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(20, a=0.3, b=0.3)
    both = {"a": OWN["a"], "b": "b\x1fdigest"}
    terms = Terms(Objective.FIRST_TOKEN, 1000, 100, {"a": PRICE, "b": PRICE}, learnt_as=both)
    race = RaceSettings.model_validate({"mode": Mode.AUTO, "extra_usd_per_call": 1e-9, "budget": 1.0})
    assert replica.steering.plan(MODEL, ["a", "b"], race, terms, SHORT).narrowed is not Narrowed.USD_PER_CALL
