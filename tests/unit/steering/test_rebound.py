"""A deployment that is well again has its calls back."""

from random import Random

from gateway.core.attempts import Role
from tests.unit.steering.virtual_replica import MODEL, VirtualReplica


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
