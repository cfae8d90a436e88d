"""What a call demands of its plan: whoever is quick, that holds, and what it costs of the race is told."""

import pytest

from gateway.core.attempts import Narrowed, Role
from gateway.core.calls import Mode
from gateway.steering import Demands, HealthState, Plan
from gateway.steering.plans import Why
from tests.unit.steering.inside.test_planner import A, B, C, D, candidate, launched, planned, started

BROKEN = candidate("x", 0.1, state=HealthState.OPEN)
RACES = (Mode.RACE, Mode.AUTO, Mode.HEDGE, Mode.SINGLE)


def order(made: Plan) -> list[str]:
    """All of a plan's deployments, in the order in which they are asked."""
    return [*dict.fromkeys([*(launch.deployment for launch in made.launches), *made.rest])]


@pytest.mark.parametrize("mode", RACES)
def test_an_order_is_kept_one_after_the_other_also_where_the_first_is_broken(mode: Mode) -> None:
    made = planned(A, B, C, BROKEN, mode=mode, demands=Demands(order=("x", "c")))
    assert started(made) == [("x", Role.PRIMARY)]
    assert order(made) == ["x", "c", "a", "b"]
    assert made.launches[0].why is Why.ORDERED


@pytest.mark.parametrize("mode", RACES)
def test_without_failover_one_is_asked_alone(mode: Mode) -> None:
    made = planned(A, B, mode=mode, demands=Demands(may_fail_over=False))
    assert (launched(made), made.rest) == ([("a", 0.0, Role.PRIMARY)], ())


def test_whoever_demands_one_after_the_other_of_a_race_is_told_so() -> None:
    raced = planned(A, B, mode=Mode.RACE, demands=Demands(order=("b",)))
    assert (raced.width_asked, raced.narrowed) == (2, Narrowed.ORDERED)
    hedged = planned(A, B, mode=Mode.HEDGE, demands=Demands(order=("b",)))
    assert hedged.narrowed is None  # not yet: it is told when the hedge would be due
    assert hedged.withheld is not None
    assert hedged.withheld_by is Narrowed.ORDERED
    assert planned(A, B, mode=Mode.SINGLE, demands=Demands(order=("b",))).narrowed is None


@pytest.mark.parametrize("mode", RACES)
def test_the_maker_of_a_conversation_leads_else_its_provider_and_a_broken_one_does_not(mode: Mode) -> None:
    own, sister = candidate("made/one", 0.9), candidate("made/two", 0.8)
    assert order(planned(A, own, sister, mode=mode, demands=Demands(maker="made/one")))[0] == "made/one"
    assert order(planned(A, sister, mode=mode, demands=Demands(maker="made/one")))[0] == "made/two"
    broken = candidate("made/one", 0.1, state=HealthState.OPEN)
    assert order(planned(A, B, broken, mode=mode, demands=Demands(maker="made/one")))[0] == "a"


def test_who_refuses_what_was_made_comes_last_and_is_raced_only_where_the_maker_does_not_lead() -> None:
    refuse = Demands(maker="c", strangers=frozenset("a"))
    made = planned(A, B, C, D, mode=Mode.RACE, demands=refuse)
    assert started(made) == [("c", Role.PRIMARY), ("b", Role.RACE)]
    assert order(made)[-1] == "a"
    alone = planned(A, C, mode=Mode.RACE, demands=refuse)
    assert (started(alone), alone.rest, alone.narrowed) == ([("c", Role.PRIMARY)], ("a",), Narrowed.UNFIT)
    gone = planned(A, B, mode=Mode.RACE, demands=refuse)
    assert started(gone) == [("a", Role.PRIMARY), ("b", Role.RACE)]


@pytest.mark.parametrize("mode", [Mode.RACE, Mode.AUTO])
def test_only_who_answers_alike_runs_beside_it_and_others_take_over(mode: Mode) -> None:
    unlike = Demands(identity={"a": 1, "b": 2, "c": 1})
    made = planned(A, B, C, mode=mode, demands=unlike)
    assert started(made) == [("a", Role.PRIMARY), ("c", Role.RACE)]
    assert [role for name, _, role in launched(made) if name == "b"] == [Role.FAILOVER]
    apart = planned(A, B, mode=mode, demands=unlike)
    assert (started(apart), apart.width_asked) == ([("a", Role.PRIMARY)], 2)
    assert apart.narrowed is Narrowed.DIFFERS


def test_what_changes_something_there_is_asked_once_and_is_never_called_narrowed() -> None:
    made = planned(A, B, mode=Mode.RACE, demands=Demands(once=True))
    assert (launched(made), made.rest, made.rescue_s) == ([("a", 0.0, Role.PRIMARY)], ("b",), None)
    assert (made.width_asked, made.narrowed) == (0, None)


@pytest.mark.parametrize("mode", RACES)
def test_what_is_started_once_however_late_is_not_rescued(mode: Mode) -> None:
    made = planned(A, B, mode=mode, demands=Demands(rescued=False))
    assert made.rescue_s is None
    assert all(launch.role is not Role.FAILOVER for launch in made.launches)


def test_beside_a_late_model_no_further_attempt_starts_with_it_and_its_hedges_stay() -> None:
    raced = planned(A, B, C, mode=Mode.RACE, demands=Demands(beside="late"))
    assert started(raced) == [("a", Role.FALLBACK)]
    assert "b" in raced.rest
    hedged = planned(A, B, mode=Mode.HEDGE, demands=Demands(beside="late"))
    assert [role for _, _, role in launched(hedged)] == [Role.FALLBACK, Role.HEDGE]
    assert "asked beside model 'late', as its answer was late" in hedged.reasons
