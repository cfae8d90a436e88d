"""An attempt starts with its call only where it should save enough; else it is a hedge."""

from collections import Counter

import pytest

from gateway.core.attempts import Narrowed
from gateway.core.calls import Mode, Objective
from gateway.steering import Plan
from gateway.steering.plans import Why
from providers import Price
from tests.unit.steering.virtual_replica import VirtualReplica

QUIET = {"audit_share": 0.0}
PRICES = dict.fromkeys("ab", Price(input_usd=1e-6, output_usd=1e-6))


def of_two(a_s: tuple[float, ...], b_s: tuple[float, ...], speed_tps: float | None = 50.0) -> VirtualReplica:
    """A replica whose two deployments took these times, again and again; no speed: answers too short to measure one."""
    replica = VirtualReplica(("a", "b"))
    for number in range(100):
        replica.win("a", a_s[number % len(a_s)], speed_tps=speed_tps)
        replica.win("b", b_s[number % len(b_s)], speed_tps=speed_tps)
    replica.now_s += 1.0
    return replica


def usual(replica: VirtualReplica, **how: object) -> Plan:
    """Plan until nothing is explored."""
    return next(plan for _ in range(50) if not (plan := replica.plan(**how)).explores)  # type: ignore[arg-type]


CONSTANT = (0.3,), (0.5,)
OFTEN_SLOW = (0.3, 0.3, 1.5), (0.35,)  # the other wins a third of the calls, by more than a second


@pytest.mark.parametrize("objective", [Objective.FIRST_TOKEN, Objective.READING, Objective.COMPLETION])
@pytest.mark.parametrize("holds", [True, False])
def test_a_rival_that_never_wins_waits_as_a_hedge(objective: Objective, *, holds: bool) -> None:
    plan = usual(of_two(*CONSTANT), objective=objective, holds=holds)
    assert [launch.why for launch in plan.launches] == [Why.DRAWN, Why.WORTH]
    assert plan.launches[1].delay_s >= 0.27
    assert (plan.width_asked, plan.narrowed) == (2, Narrowed.NO_RIVAL_WORTH_IT)


@pytest.mark.parametrize("objective", [Objective.READING, Objective.COMPLETION])
def test_nor_does_it_start_where_answers_are_too_short_to_measure_a_speed(objective: Objective) -> None:
    replica = of_two(*CONSTANT, speed_tps=None)
    assert [launch.why for launch in usual(replica, objective=objective).launches] == [Why.DRAWN, Why.WORTH]


@pytest.mark.parametrize("holds", [True, False])
def test_a_rival_that_often_wins_is_raced(*, holds: bool) -> None:
    plan = usual(of_two(*OFTEN_SLOW), holds=holds)
    assert [launch.delay_s for launch in plan.launches] == [0.0, 0.0]
    assert (plan.width_asked, plan.narrowed) == (2, None)


def test_the_floor_is_the_operators() -> None:
    assert usual(of_two(*CONSTANT), worth_ms=0).launches[1].why is Why.BUDGET
    assert usual(of_two(*OFTEN_SLOW), worth_ms=5_000).launches[1].why is Why.WORTH


def test_the_floor_grows_with_the_time_to_first_token() -> None:
    """A saving of about 15 ms is felt beside 120 ms, and not beside 10 s."""
    soon, late = (0.1, 0.1, 0.1, 0.2), (10.0, 10.0, 10.0, 10.1)
    assert usual(of_two(soon, soon)).launches[1].why is Why.BUDGET
    assert usual(of_two(late, late)).launches[1].why is Why.WORTH


def test_modes_that_ask_for_more_get_it() -> None:
    replica = of_two(*CONSTANT)
    assert usual(replica, mode=Mode.RACE).launches[1].why is Why.WIDTH
    assert usual(replica, mode=Mode.HEDGE).launches[1].why is Why.LATE


def test_a_value_in_dollars_decides_where_there_is_one() -> None:
    plan = usual(of_two(*OFTEN_SLOW), worth_ms=5_000, value_usd_per_s=1.0, prices=PRICES)
    assert plan.launches[1].why is Why.VALUE


def test_a_wide_budget_without_a_worthy_rival_pays_for_one_hedge() -> None:
    replica = VirtualReplica(("a", "b", "c"))
    replica.warm_up(100, a=0.3, b=0.5, c=0.9)
    whys = Counter(launch.why for launch in usual(replica, budget=2.0).launches)
    assert whys[Why.WORTH] == 1


def test_an_unknown_model_is_raced() -> None:
    """Nothing says yet that a rival never wins."""
    plan = usual(VirtualReplica(("a", "b")))
    assert sorted(launch.delay_s for launch in plan.launches)[:2] == [0.0, 0.0]


def test_an_explanation_names_the_saving_and_the_floor() -> None:
    explanation = usual(of_two(*CONSTANT), explain=True).explanation
    assert explanation is not None
    note = next(note for note in explanation.notes if "race.worth_ms" in note)
    assert note.startswith("no extra attempt at the start: the best should save 0 ms, below the floor of 5 ms")
