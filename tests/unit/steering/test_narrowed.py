"""Why a call starts with fewer attempts than its settings ask for, and that nothing is told where enough start."""

import pytest

from gateway.core.attempts import Narrowed, Role
from gateway.core.calls import Mode, Objective
from gateway.settings import ONE_AT_A_TIME, RaceSettings
from gateway.steering import Plan, Terms
from providers import ErrorKind, Price
from tests.unit.steering.virtual_replica import MODEL, SHORT, VirtualReplica

RACED = RaceSettings(mode=Mode.RACE)
USD = dict.fromkeys("abc", Price(input_usd=1e-6, output_usd=1e-5))


def known(deployments: str = "abc", **means_s: float) -> VirtualReplica:
    """A replica that knows how fast its deployments are."""
    replica = VirtualReplica(tuple(deployments))
    replica.steering.reset({MODEL: replica.deployments})
    replica.warm_up(20, **dict.fromkeys(deployments, 0.3) | means_s)
    return replica


def told(plan: Plan) -> tuple[int, Narrowed | None]:
    return plan.width_asked, plan.narrowed


@pytest.mark.parametrize(
    ("how", "asked"),
    [
        ({"mode": Mode.SINGLE}, 1),
        ({"mode": Mode.HEDGE}, 1),
        ({"mode": Mode.RACE}, 2),
        ({"mode": Mode.RACE, "width": 3}, 3),
        ({"mode": Mode.RACE, "width": 8, "budget": 7.0}, 3),  # as many as there are deployments
        ({"budget": 0.0}, 1),
        ({"budget": 0.1}, 1),  # pays for hedges only
    ],
)
def test_where_enough_attempts_start_nothing_is_narrowed(how: dict[str, float | str], asked: int) -> None:
    assert told(known(b=0.4, c=0.5).plan(**how)) == (asked, None)  # type: ignore[arg-type]


def test_an_only_deployment_races_itself_where_the_mode_says_so() -> None:
    alone = known("a")
    assert told(alone.plan(mode=Mode.RACE)) == (2, None)
    assert told(alone.plan(mode=Mode.AUTO)) == (1, None)
    assert told(alone.plan(mode=Mode.HEDGE)) == (1, None)


def test_a_long_prompt_is_hedged() -> None:
    replica = known()
    for mode in (Mode.RACE, Mode.AUTO):
        assert told(replica.plan(mode=mode, prompt_tokens=20_000)) == (2, Narrowed.LONG_PROMPT)
    assert told(replica.plan(mode=Mode.HEDGE, prompt_tokens=20_000)) == (1, None)


def test_deployments_that_cannot_answer_are_missing_only_if_they_are_needed() -> None:
    replica = known()
    assert told(replica.plan(mode=Mode.RACE, excluded={"b": "no tools"})) == (2, None)
    assert told(replica.plan(mode=Mode.RACE, excluded={"b": "no tools", "c": "no tools"})) == (2, Narrowed.UNFIT)
    assert told(replica.plan(mode=Mode.RACE, width=3, excluded={"b": "no tools"})) == (3, Narrowed.UNFIT)


def test_a_deployment_that_pauses_is_missing() -> None:
    replica = known("ab")
    replica.fail("b", ErrorKind.RATE_LIMITED, retry_after_s=30.0)
    assert told(replica.plan(mode=Mode.RACE)) == (2, Narrowed.COOLING)
    assert told(replica.plan(mode=Mode.AUTO)) == (2, Narrowed.COOLING)
    assert told(replica.plan(mode=Mode.HEDGE)) == (1, None)


def test_a_full_deployment_is_missing() -> None:
    replica = known("ab")
    replica.launch("b")
    assert told(replica.plan(mode=Mode.RACE, limits={"b": 1})) == (2, Narrowed.CAPACITY)


def test_a_budget_of_nothing_is_told_where_the_mode_asks_for_more() -> None:
    replica = known()
    assert told(replica.plan(mode=Mode.RACE, budget=0.0)) == (2, Narrowed.BUDGET)


def test_dollars_that_pay_for_no_attempt_are_told() -> None:
    replica = known()
    dollars = replica.plan(mode=Mode.AUTO, extra_usd_per_call=0.0, prices=USD)
    assert told(dollars) == (2, Narrowed.USD_PER_CALL)
    assert told(replica.plan(mode=Mode.RACE, extra_usd_per_call=0.0, prices=USD)) == (2, Narrowed.USD_PER_CALL)


def test_a_loser_billed_in_full_is_not_raced_while_dollars_are_limited() -> None:
    billed = known("ab").plan(
        mode=Mode.AUTO, extra_usd_per_call=1.0, prices=USD, bills_losers=frozenset("ab"), holds=False
    )
    assert told(billed) == (2, Narrowed.USD_PER_CALL)


def test_a_probe_is_no_rival() -> None:
    replica = known("abc")
    for _ in range(4):
        replica.fail("c")
    replica.now_s += 10.0
    plan = replica.plan(mode=Mode.RACE)
    assert [each.role for each in plan.launches if not each.delay_s] == [Role.PRIMARY, Role.PROBE]
    assert told(plan) == (2, Narrowed.PROBE)


def test_a_rival_that_would_make_the_answer_later_is_not_worth_it() -> None:
    replica = known("ab")
    for _ in range(20):
        replica.win("a", speed_tps=400.0)
        replica.win("b", speed_tps=5.0)
    replica.now_s += 1.0
    plan = replica.plan(objective=Objective.COMPLETION, holds=False)
    assert [each.delay_s for each in plan.launches[1:]] != [0.0]
    assert told(plan) == (2, Narrowed.NO_RIVAL_WORTH_IT)


def test_a_call_that_is_never_sent_twice_says_what_it_would_have_been() -> None:
    replica = known()

    def stateful(asked: RaceSettings) -> tuple[int, Narrowed | None]:
        terms = Terms(Objective.FIRST_TOKEN, 100, stateful=True, asked=asked)
        race = asked.model_copy(update=ONE_AT_A_TIME)
        return told(replica.steering.plan(MODEL, replica.deployments, race, terms, SHORT))

    assert stateful(RACED) == (2, Narrowed.STATEFUL)
    assert stateful(RaceSettings()) == (2, Narrowed.STATEFUL)
    assert stateful(RaceSettings(budget=0.1)) == (1, None)
    assert stateful(RaceSettings(mode=Mode.SINGLE)) == (1, None)


def test_a_call_with_one_fit_deployment_of_several_says_so() -> None:
    replica = known()
    terms = Terms(Objective.FIRST_TOKEN, 100, excluded={"b": "no tools", "c": "no tools"}, asked=RACED)
    plan = replica.steering.plan(MODEL, ["a"], RaceSettings(mode=Mode.SINGLE), terms, SHORT)
    assert told(plan) == (2, Narrowed.UNFIT)


def test_an_explanation_says_it_too() -> None:
    explanation = known().plan(mode=Mode.RACE, budget=0.0, explain=True).explanation
    assert explanation is not None
    assert (explanation.width_asked, explanation.narrowed) == (2, Narrowed.BUDGET)
