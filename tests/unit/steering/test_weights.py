"""A weight multiplies the chances of a deployment against those about as fast, and does nothing else."""

from collections import Counter
from collections.abc import Mapping

import pytest

from gateway.core.calls import Mode
from tests.unit.steering.virtual_replica import VirtualReplica


def shares(replica: VirtualReplica, weights: Mapping[str, float] | None, calls: int = 4000) -> dict[str, float]:
    """Who is the primary how often; nothing stays in flight."""
    drawn = Counter(replica.plan(weights=weights, mode=Mode.SINGLE).launches[0].deployment for _ in range(calls))
    return {name: count / calls for name, count in drawn.items()}


def equals(*names: str) -> VirtualReplica:
    replica = VirtualReplica(names)
    replica.warm_up(30, **dict.fromkeys(names, 0.3))
    return replica


def test_equals_are_drawn_by_their_weights() -> None:
    found = shares(equals("a", "b", "c"), {"a": 3.0, "c": 0.5})
    for name, share in {"a": 3 / 4.5, "b": 1 / 4.5, "c": 0.5 / 4.5}.items():
        assert found[name] == pytest.approx(share, abs=0.03)  # four standard deviations


def test_no_weight_makes_up_for_being_clearly_slower() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.3, b=0.9)
    assert shares(replica, {"b": 1000.0}, calls=200) == {"a": 1.0}


def test_who_is_meant_to_have_more_in_flight_is_not_passed_over_for_having_it() -> None:
    replica = equals("a", "b")
    for name in "aaaaab":
        replica.launch(name)
    assert shares(replica, {"a": 5.0})["a"] == pytest.approx(5 / 6, abs=0.03)
    replica.launch("a")
    assert shares(replica, {"a": 5.0})["a"] == pytest.approx((5 / 6) ** 2, abs=0.03)  # both draws must be its own


def test_new_weights_count_from_the_next_call() -> None:
    replica = equals("a", "b")
    assert shares(replica, {"a": 1000.0}, calls=100)["a"] > 0.95
    assert shares(replica, {"b": 1000.0}, calls=100)["b"] > 0.95
    assert shares(replica, None, calls=400)["a"] == pytest.approx(0.5, abs=0.1)


def test_the_second_of_a_race_is_the_best_whatever_its_weight() -> None:
    replica = VirtualReplica(("a", "b", "c"))
    replica.warm_up(a=0.3, b=0.31, c=0.33)
    weights = {"a": 1000.0, "c": 1000.0}
    plans = [replica.plan(weights=weights) for _ in range(100)]
    seconds = Counter(plan.launches[1].deployment for plan in plans if plan.launches[0].deployment == "a")
    assert seconds.most_common(1)[0][0] == "b"


def test_a_plan_tells_the_weight_and_the_chance_that_follows() -> None:
    replica = equals("a", "b", "c")
    weights = {"a": 3.0, "c": 0.5}
    for name in "aab":
        replica.launch(name)
    told = replica.plan(weights=weights, explain=True).explanation
    assert told is not None
    prospects = {each.deployment: each for each in told.deployments}
    assert [prospects[name].weight for name in "abc"] == [3.0, None, 0.5]
    found = shares(replica, weights)
    for name in "abc":
        assert found[name] == pytest.approx(prospects[name].draw, abs=0.03)
