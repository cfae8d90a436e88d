"""Rate limits: a limit belongs to the deployment that said it, and a lone 429 is a pause."""

from math import inf
from random import Random

import pytest
from structlog.testing import capture_logs

from gateway.core.attempts import Narrowed, Role
from gateway.core.calls import Mode
from gateway.settings import RaceSettings
from gateway.steering import Health, Launch, Spending
from gateway.steering.budget import Budgets
from providers import ErrorKind
from tests.unit.steering.virtual_replica import MODEL, VirtualReplica

RACE = RaceSettings(mode=Mode.RACE, width=2, budget=1.0)
MODES = pytest.mark.parametrize("mode", [Mode.RACE, Mode.AUTO])


def rivals_of_next(replica: VirtualReplica, mode: Mode = Mode.RACE) -> list[str]:
    """Run a call half a second after the one before; return who started with the primary, and was let."""
    replica.now_s += 0.5
    plan = replica.plan(mode=mode, width=2)
    started = []
    for launch in plan.launches:
        if launch.role is not Role.PRIMARY and not launch.delay_s:
            race = RACE.model_copy(update={"mode": mode})
            if replica.steering.draw_extra(MODEL, launch, race, cost_usd=None) is None:
                started.append(launch.deployment)
    drawn = Random(replica.now_s)
    times_s = {name: 0.3 * drawn.lognormvariate(0.0, 0.4) for name in (plan.launches[0].deployment, *started)}
    first_s = min(times_s.values())
    for number, (name, own_s) in enumerate(times_s.items()):
        if own_s == first_s:
            replica.win(name, own_s)
        else:
            replica.lose(name, first_s, Role.RACE if number else Role.PRIMARY)
    return started


def raced(replica: VirtualReplica, calls: int, mode: Mode = Mode.RACE) -> int:
    return sum(bool(rivals_of_next(replica, mode)) for _ in range(calls))


@MODES
@pytest.mark.parametrize("before", [1, 10, 200])
def test_after_one_429_of_one_of_two_calls_race_on(mode: Mode, before: int) -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(3, a=0.3, b=0.3)
    raced(replica, before, mode)
    replica.fail("b", ErrorKind.RATE_LIMITED)
    assert raced(replica, 100, mode) >= 95


@MODES
@pytest.mark.parametrize("retry_after_s", [7.0, 20.0, 60.0, 3600.0])
def test_after_one_429_with_retry_after_calls_race_on_as_soon_as_it_has_passed(
    mode: Mode, retry_after_s: float
) -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(3, a=0.3, b=0.3)
    raced(replica, 20, mode)
    replica.fail("b", ErrorKind.RATE_LIMITED, retry_after_s=retry_after_s)
    pause = int(2 * min(60.0, retry_after_s))
    assert raced(replica, pause - 1, mode) == 0  # nobody else is there
    assert raced(replica, 100, mode) >= 95


def test_a_429_in_each_tenth_answer_of_one_of_three_leaves_the_width_as_it_is() -> None:
    replica = VirtualReplica()
    replica.warm_up(3, a=0.3, b=0.3, c=0.3)
    found = 0
    for _ in range(40):
        replica.fail("b", ErrorKind.RATE_LIMITED)
        found += raced(replica, 10)
    assert found >= 0.95 * 400


def test_a_deployment_whose_limit_is_believed_is_passed_over_as_rival_and_stays_a_rescue() -> None:
    replica = VirtualReplica()
    replica.warm_up(20, a=0.2, b=0.22, c=0.24)
    for _ in range(2):
        replica.fail("b", ErrorKind.RATE_LIMITED)
        replica.now_s += 2.0
    replica.warm_up(20, a=0.2, c=0.24)
    plans = [replica.plan(mode=Mode.RACE, width=2, explain=True) for _ in range(20)]
    rivals = {each.deployment for plan in plans for each in plan.launches if each.role is Role.RACE}
    assert "b" not in rivals
    assert all(any(each.role is Role.RACE for each in plan.launches) for plan in plans)
    assert all("b" in {*plan.rest, *(each.deployment for each in plan.launches)} for plan in plans)
    assert any("no extra attempt at b: rate limits" in reason for plan in plans for reason in plan.reasons)
    extra = Launch("b", 0.0, Role.RACE)
    assert replica.steering.draw_extra(MODEL, extra, RACE, cost_usd=None) is Narrowed.RATE_LIMITS
    assert replica.steering.draw_extra(MODEL, Launch("c", 0.0, Role.RACE), RACE, cost_usd=None) is None


def test_a_limit_that_headers_tell_is_believed_at_once() -> None:
    health = Health()
    for _ in range(50):
        health.launched(10.0)
    health.limit_left(0.5, 10.0, in_minute=50)
    assert health.limit(10.0) == 100
    assert not health.has_room(10.0)  # 50 in ten seconds are more than it has in a minute


def test_a_limit_is_believed_at_the_second_429_and_forgotten_five_minutes_after_its_pause() -> None:
    health = Health()
    for number in range(10):
        health.launched(number * 1.0)
    health.rate_limited(20.0, 10.0)
    assert (health.limit(31.0), health.is_limited(31.0)) == (inf, True)
    health.launched(300.0)
    health.rate_limited(20.0, 329.0)
    assert (health.limit(350.0), health.is_limited(350.0)) == (1.0, True)
    health.launched(350.0)
    assert not health.has_room(350.0)
    assert (health.limit(650.0), health.is_limited(650.0)) == (inf, False)


def test_two_429s_more_than_five_minutes_apart_are_two_lone_ones() -> None:
    health = Health()
    health.rate_limited(None, 0.0)
    health.rate_limited(None, 302.0)
    assert health.limit(304.0) == inf


def test_429s_of_one_burst_are_one() -> None:
    health = Health()
    for _ in range(8):
        health.launched(0.0)
    for _ in range(4):
        health.rate_limited(None, 0.5)
    assert health.condition(0.5).cooling_s == 1.0
    assert health.taken(0.5) == 4
    assert health.has_room(2.0)


def test_a_limit_is_forgotten_when_more_passes() -> None:
    health = Health()
    for at_s in (0.0, 2.0):
        health.launched(at_s)
        health.rate_limited(None, at_s)
    assert health.limit(4.0) == 1.0
    for _ in range(2):
        health.launched(4.0)
    assert (health.limit(4.0), health.is_limited(4.0)) == (inf, False)


def test_a_window_is_counted_from_its_beginning() -> None:
    health = Health()
    for number in range(120):
        health.launched(number * 1.0)  # 60 in the window before, and in this one until its 429
    health.rate_limited(30.0, 119.9)  # so this one began at 89.9
    assert 29 <= health.taken(119.9) <= 31


def test_429s_without_a_time_pause_for_a_second_and_twice_as_long_each_while_they_go_on() -> None:
    health, now_s, pauses = Health(), 0.0, []
    for _ in range(8):
        health.rate_limited(None, now_s)
        pauses.append(health.cooling_s(now_s))
        now_s += pauses[-1]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    health.delivered(0.3, 1.0, now_s)
    health.rate_limited(0.0, now_s)
    assert health.cooling_s(now_s) == 1.0


def test_where_all_are_limited_extras_get_what_calls_leave_of_what_each_took() -> None:
    budgets, healths = Budgets(Spending(lambda: 0.0)), [Health(), Health()]
    for number in range(120):
        budgets.call("m", RaceSettings(), number * 0.5)
        budgets.draw("m", Role.PROBE, RACE, cost_usd=None, payer="m", now_s=number * 0.5)
        for health in healths:
            health.launched(number * 0.5)
    assert budgets.room("m", healths, 60.0)[0] == inf
    healths[0].rate_limited(None, 60.0)
    healths[1].rate_limited(None, 60.0)
    room, calls = budgets.room("m", healths, 62.0)
    assert calls == pytest.approx(116, abs=4)  # as some have left the last minute
    assert room == pytest.approx(0.9 * 2 * 119 - calls, abs=4)


def test_a_broken_deployment_leaves_no_room_for_others() -> None:
    budgets, limited, broken = Budgets(Spending(lambda: 0.0)), Health(), Health()
    limited.launched(0.0)
    limited.rate_limited(None, 0.0)
    assert budgets.room("m", [limited, broken], 2.0)[0] == inf
    broken.refuse(0.0)
    assert budgets.room("m", [limited, broken], 2.0)[0] < 1.0


def test_a_rescue_takes_from_the_room_of_extras_and_is_never_refused_for_it() -> None:
    budgets = Budgets(Spending(lambda: 0.0))

    def draw(role: Role) -> str | None:
        return budgets.draw("m", role, RACE, cost_usd=None, payer="m", room=2.0, now_s=0.0)

    assert [draw(role) for role in (Role.FAILOVER, Role.RACE, Role.FAILOVER, Role.PROBE)] == [None] * 4
    assert draw(Role.RACE) is Narrowed.RATE_LIMITS


def test_a_provider_that_goes_on_with_429s_is_told_of_once() -> None:
    replica = VirtualReplica(("a", "b"))
    with capture_logs() as logs:
        for _ in range(30):
            replica.fail("b", ErrorKind.RATE_LIMITED, retry_after_s=60.0)
            replica.now_s += 61.0
    assert [(log["event"], log["deployment"], log["pause_s"]) for log in logs] == [("steering.limited", "b", 60.0)]
