"""How far each process may go when no lease can be had: its last one, and its share of what nobody had leased."""

import pytest

from gateway.limits import Limits, Payer, SharedLeases, Use, level_of_key
from gateway.limits.quota import Quota
from gateway.limits.windows import always, day
from tests.services.deaf_redis import DeafNodes
from tests.unit.limits.inside.test_limits import Clock

NOW_S = 100.0


def quotas(limit: float, used: list[float], leased: list[float], name: str = "usd_per_day") -> list[Quota]:
    """Return the quota of each process, as it is when all have just heard of each other."""
    made = [Quota("client:team", name, limit, day(0.0) if name != "max_parallel" else always(0.0)) for _ in used]
    for number, quota in enumerate(made):
        quota.used = used[number]
        quota.elsewhere.used = sum(used) - used[number]
        quota.elsewhere.leased = sum(leased) - leased[number]
        quota.leased(leased[number], reported=used[number], at_s=NOW_S, until_s=NOW_S + 5.0)
    return made


@pytest.mark.parametrize("leased", [[0.0, 0.0, 0.0], [5.0, 5.0, 5.0], [40.0, 3.0, 0.0], [70.0, 0.0, 0.0]])
def test_all_shares_together_are_what_was_left(leased: list[float]) -> None:
    made = quotas(100.0, [20.0, 10.0, 0.0], leased)
    for quota in made:
        quota.share(3, NOW_S + 1.0)
    assert sum(quota.top for quota in made) == pytest.approx(100.0)
    assert all(quota.top >= quota.used + own for quota, own in zip(made, leased, strict=True))


def test_shares_do_not_add_up_when_they_are_taken_again() -> None:
    (quota, _) = quotas(100.0, [20.0, 10.0], [10.0, 10.0])
    for _ in range(3):
        quota.share(2, NOW_S)
        quota.used = quota.top
    assert quota.top == pytest.approx(20.0 + 10.0 + 50.0 / 2)


def test_a_lease_that_has_expired_is_no_part_of_a_share() -> None:
    (quota, _) = quotas(100.0, [20.0, 10.0], [10.0, 10.0])
    quota.share(2, NOW_S + 6.0)
    assert quota.top == pytest.approx(20.0 + 60.0 / 2)


def test_what_was_given_back_is_no_part_of_a_share() -> None:
    (quota, _) = quotas(100.0, [20.0, 10.0], [10.0, 10.0])
    quota.held = 2.0
    quota.give_back(ahead=5.0)  # nothing was granted in advance, so only what calls hold is kept
    quota.share(2, NOW_S + 1.0)
    assert quota.top == pytest.approx(20.0 + 2.0 + 58.0 / 2)


def test_what_others_may_have_leased_since_is_not_shared() -> None:
    (quota, _) = quotas(100.0, [20.0, 10.0], [10.0, 10.0])
    quota.share(2, NOW_S, leased_since=30.0)
    assert quota.top == pytest.approx(20.0 + 10.0 + 20.0 / 2)


def test_every_process_may_run_one_call_of_those_that_were_left() -> None:
    made = quotas(3.0, [0.0] * 4, [0.0] * 4, "max_parallel")
    for quota in made:
        quota.share(4, NOW_S)
    assert [quota.top for quota in made] == [1.0] * 4
    (taken, *_) = quotas(3.0, [0.0] * 4, [0.0, 3.0, 0.0, 0.0], "max_parallel")
    taken.share(4, NOW_S)
    assert taken.top == 0.0


async def test_without_redis_nothing_is_kept_of_minutes_that_are_over() -> None:
    clock = Clock()
    leases = SharedLeases(DeafNodes(deaf=0), clock=clock, unix_clock=clock, new_id=lambda: "p1")
    (shard,) = leases.shards.values()
    await shard._sync([])
    limits = Limits(leases, unix_clock=clock, clock=clock)
    level = level_of_key("team", {"rpm": 60.0, "tpm": 1000.0, "usd_per_day": 1.0})
    for minute in range(4):
        await limits.hold(f"call {minute}", [level], Payer("llama", "llama"), Use(1.0, 1.0, 0.1))
        clock.now_s += 60.0
        await shard._sync(shard._due())
        assert len(shard._kept) <= 5
    clock.now_s += 60.0
    await shard._sync(shard._due())
    assert [quota.name for quota in shard._kept.values()] == ["usd_per_day"]
    await leases.close()
