"""Whom a model in a race asks, and when: told the time, without a loop."""

from collections.abc import Callable, Sequence

from gateway.core.attempts import Role
from gateway.core.calls import Mode
from gateway.racing.launches import LaunchSchedule
from gateway.steering import Launch, Plan
from providers import OfCall

BEGAN = 1_000.0

Starts = list[tuple[str, Role, float]]


def plan(
    *launches: tuple[str, float, Role], rest: Sequence[str] = (), rescue_s: float | None = 2.0, withheld_s: float = 0.0
) -> Plan:
    withheld = Launch("a", withheld_s, Role.HEDGE) if withheld_s else None
    return Plan(
        tuple(Launch(*each) for each in launches), tuple(rest), Mode.HEDGE, rescue_s=rescue_s, withheld=withheld
    )


def starts(of: Plan, permits: Callable[[Launch, float], bool], until_s: float = 20.0) -> Starts:
    """Return who starts, as what, and after how many seconds, while nobody answers."""
    found: Starts = []
    now = BEGAN
    schedule = LaunchSchedule(
        of,
        now=now,
        may_launch=lambda launch: permits(launch, now - BEGAN),
        lines={},
        on_seat_refused=lambda _: None,
        sent=OfCall(),
    )
    found += [(each.deployment, each.role, 0.0) for each in schedule.open(now)]
    while (due_at := schedule.due_at) is not None and due_at <= BEGAN + until_s:
        now = due_at
        launched = [each for each in schedule.due(now, None) if each is not None]
        found += [(each.deployment, each.role, round(now - BEGAN, 6)) for each in launched]
    return found


def always(_launch: Launch, _at_s: float) -> bool:
    return True


def no_extras(launch: Launch, _at_s: float) -> bool:
    return launch.role is Role.FAILOVER


def test_launches_start_as_planned_and_then_each_candidate_comes_to_the_rescue() -> None:
    planned = plan(("a", 0.0, Role.PRIMARY), ("b", 0.3, Role.HEDGE), ("c", 2.0, Role.FAILOVER), rest=["d", "e"])
    assert starts(planned, always) == [
        ("a", Role.PRIMARY, 0.0),
        ("b", Role.HEDGE, 0.3),
        ("c", Role.FAILOVER, 2.0),
        ("d", Role.FAILOVER, 4.0),
        ("e", Role.FAILOVER, 6.0),
    ]


def test_a_refused_hedge_is_the_first_rescue_and_the_planned_ones_keep_their_distance_from_it() -> None:
    planned = plan(
        ("a", 0.0, Role.PRIMARY), ("b", 0.5, Role.HEDGE), ("c", 2.0, Role.FAILOVER), ("d", 4.0, Role.FAILOVER)
    )
    assert starts(planned, no_extras)[1:] == [
        ("b", Role.FAILOVER, 2.0),
        ("c", Role.FAILOVER, 3.5),
        ("d", Role.FAILOVER, 5.5),
    ]


def test_refused_racers_come_to_the_rescue_one_by_one() -> None:
    planned = plan(
        ("a", 0.0, Role.PRIMARY), ("b", 0.0, Role.RACE), ("c", 0.0, Role.RACE), ("d", 2.0, Role.FAILOVER), rest=["e"]
    )
    assert starts(planned, no_extras)[1:] == [
        ("b", Role.FAILOVER, 2.0),
        ("c", Role.FAILOVER, 4.0),
        ("d", Role.FAILOVER, 6.0),
        ("e", Role.FAILOVER, 8.0),
    ]


def test_a_rescue_that_has_to_wait_is_not_launched_together_with_the_next_one() -> None:
    planned = plan(("a", 0.0, Role.PRIMARY), ("b", 2.0, Role.FAILOVER), ("c", 4.0, Role.FAILOVER))
    assert starts(planned, lambda _, at_s: at_s > 3.0)[1:] == [
        ("b", Role.FAILOVER, 4.0),
        ("c", Role.FAILOVER, 6.0),
    ]


def test_a_refused_hedge_that_was_due_after_a_rescue_comes_at_its_own_time_and_moves_none() -> None:
    planned = plan(
        ("a", 0.0, Role.PRIMARY), ("c", 2.0, Role.FAILOVER), ("b", 3.0, Role.HEDGE), ("d", 4.0, Role.FAILOVER)
    )
    assert starts(planned, no_extras)[1:] == [
        ("c", Role.FAILOVER, 2.0),
        ("b", Role.FAILOVER, 3.0),
        ("d", Role.FAILOVER, 4.0),
    ]


def test_a_rescue_that_is_refused_asks_again_as_long_after_each_refusal() -> None:
    asked: list[float] = []

    def permits(_launch: Launch, at_s: float) -> bool:
        asked.append(round(at_s, 6))
        return at_s > 7.0

    planned = plan(("a", 0.0, Role.PRIMARY), ("b", 0.5, Role.HEDGE))
    assert starts(planned, permits)[1:] == [("b", Role.FAILOVER, 8.0)]
    assert asked == [0.5, 2.0, 4.0, 6.0, 8.0]


def test_a_hedge_without_a_deployment_asks_once_whether_it_might_have_started() -> None:
    asked: Starts = []

    def permits(launch: Launch, at_s: float) -> bool:
        asked.append((launch.deployment, launch.role, round(at_s, 6)))
        return True

    assert starts(plan(("a", 0.0, Role.PRIMARY), withheld_s=0.4), permits) == [("a", Role.PRIMARY, 0.0)]
    assert asked == [("a", Role.HEDGE, 0.4)]


def test_what_is_pending_at_an_answer_may_replace_a_failure_and_comes_first() -> None:
    planned = plan(("a", 0.0, Role.PRIMARY), ("b", 0.3, Role.HEDGE), rest=["c"], withheld_s=0.4)
    schedule = LaunchSchedule(
        planned, now=BEGAN, may_launch=lambda _: True, lines={}, on_seat_refused=lambda _: None, sent=OfCall()
    )
    assert [each.deployment for each in schedule.open(BEGAN)] == ["a"]
    schedule.close()
    assert schedule.due_at is None
    assert [schedule.next(), schedule.next(), schedule.next()] == ["b", "c", None]
