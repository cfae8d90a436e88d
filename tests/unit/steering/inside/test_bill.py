"""The bill: where losers cost a whole answer, budgets in dollars, and what a plan should cost."""

from collections import Counter

import pytest

from gateway.core.attempts import Role
from gateway.core.calls import Mode, Objective
from gateway.settings import RaceSettings
from gateway.steering import Explanation, Launch
from gateway.steering.budget import Budget, within
from providers import Price
from tests.unit.steering.virtual_replica import MODEL, VirtualReplica

PRICES = {name: Price(1e-6, 1e-5) for name in ("a", "b")}
BILLS = frozenset({"b"})
A_CALL_USD = 100 * 1e-6 + 100 * 1e-5  # a prompt and an answer of 100 tokens


def extras(replica: VirtualReplica, **how: object) -> Counter[Role]:
    """Of 200 plans, the roles of attempts beside the primary that are not for learning."""
    plans = [replica.plan(prices=PRICES, worth_ms=0, **how) for _ in range(200)]  # type: ignore[arg-type] # passed on by name
    return Counter(each.role for plan in plans for each in plan.launches if each.role in {Role.RACE, Role.HEDGE})


def warm() -> VirtualReplica:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.3, b=0.35)
    return replica


@pytest.mark.parametrize("limit", ["usd_per_day", "extra_usd_per_call"])
def test_where_dollars_count_who_bills_losers_is_hedged_not_raced(limit: str) -> None:
    replica = warm()
    assert set(extras(replica, bills_losers=BILLS)) == {Role.RACE}
    assert set(extras(replica, **{limit: 5.0})) == {Role.RACE}
    assert set(extras(replica, bills_losers=BILLS, **{limit: 5.0})) == {Role.HEDGE}


def test_who_asks_for_a_race_gets_it_whoever_bills_losers() -> None:
    assert set(extras(warm(), bills_losers=BILLS, usd_per_day=5.0, mode=Mode.RACE)) == {Role.RACE}


def test_a_new_primary_has_no_company_from_the_start_where_losers_are_billed() -> None:
    replica = VirtualReplica(("a", "b"))
    assert Role.RACE not in extras(replica, bills_losers=BILLS, usd_per_day=5.0)


def test_the_reason_is_explained() -> None:
    plan = warm().plan(prices=PRICES, bills_losers=BILLS, usd_per_day=5.0, explain=True)
    assert plan.explanation is not None
    [why] = [each.why for each in plan.explanation.launches if each.role is Role.HEDGE]
    assert "bills losers in full" in why


def test_dollars_are_saved_up_by_calls_and_no_more_than_those_of_twenty() -> None:
    budget = Budget()
    assert not budget.affords(0.02, 0.01)
    for _ in range(2):
        budget.earn(0.01)
    assert budget.affords(0.02, 0.01)
    for _ in range(100):
        budget.earn(0.01)
    assert budget.usd == pytest.approx(0.2)


def test_what_costs_more_than_can_be_saved_up_starts_when_all_is_and_leaves_a_debt() -> None:
    budget, spent = Budget(), 0.0
    for _ in range(1000):
        budget.earn(0.01)
        if budget.affords(0.5, 0.01):
            budget.pay(0.5)
            spent += 0.5
    assert spent == pytest.approx(1000 * 0.01, rel=0.06)


def test_without_dollars_only_what_is_free_starts() -> None:
    budget = Budget()
    budget.earn(0.0)
    assert not budget.affords(0.001, 0.0)
    assert budget.affords(0.0, 0.0)


def test_dollars_pay_for_so_many_attempts_as_they_can() -> None:
    race = RaceSettings(extra_usd_per_call=0.001)
    assert within(race, {"a": 0.01, "b": 0.03}).budget == pytest.approx(0.05)
    assert within(race, {"a": 0.001}) is race
    assert within(race, {}) is race  # no price is known
    assert within(RaceSettings(), {"a": 0.01}).budget == 1.0


def test_no_more_dollars_are_drawn_than_calls_have_saved_up() -> None:
    replica = warm()
    race = RaceSettings(extra_usd_per_call=A_CALL_USD / 4)
    hedge, started = Launch("b", 0.0, Role.HEDGE), 0
    for _ in range(400):
        plan = replica.plan(prices=PRICES, max_tokens=100, extra_usd_per_call=A_CALL_USD / 4)
        started += replica.steering.draw_extra(MODEL, hedge, race, cost_usd=plan.cost_usd["b"]) is None
    assert started == 100
    assert replica.steering.draw_extra(MODEL, hedge, race, cost_usd=A_CALL_USD) == "extra_usd_per_call"
    assert replica.steering.draw_extra(MODEL, hedge, race, cost_usd=None) is None  # no price: dollars cannot be counted


def test_scarce_dollars_buy_hedges_instead_of_races() -> None:
    replica = warm()
    roles = extras(replica, max_tokens=100, extra_usd_per_call=A_CALL_USD / 20)
    assert set(roles) == {Role.HEDGE}


def told(replica: VirtualReplica, **how: object) -> Explanation:
    explanation = replica.plan(prices=PRICES, max_tokens=100, explain=True, **how).explanation  # type: ignore[arg-type] # passed on by name
    assert explanation is not None
    return explanation


def test_a_race_should_cost_two_answers_and_a_primary_alone_one() -> None:
    replica = warm()
    raced = told(replica, mode=Mode.RACE)
    assert raced.cost_alone_usd == pytest.approx(A_CALL_USD)
    assert raced.cost_expected_usd == pytest.approx(2 * A_CALL_USD)
    single = told(replica, mode=Mode.SINGLE, budget=0.0)
    assert single.cost_expected_usd == pytest.approx(A_CALL_USD)


def test_a_hedge_should_cost_its_answer_as_often_as_it_starts() -> None:
    replica = warm()
    hedged = told(replica, mode=Mode.HEDGE, budget=0.1, objective=Objective.FIRST_TOKEN)
    assert hedged.cost_expected_usd == pytest.approx(1.1 * A_CALL_USD, rel=0.01)


def test_without_prices_no_cost_is_expected() -> None:
    explanation = warm().plan(explain=True).explanation
    assert explanation is not None
    assert (explanation.cost_alone_usd, explanation.cost_expected_usd) == (None, None)
