"""One model in two tiers of service: the standard one is asked, and the dearer one beside it when it is late."""

from random import Random
from typing import Any

import pytest

from gateway.core.attempts import Role
from gateway.core.calls import Objective
from gateway.settings import RaceSettings
from gateway.steering import Launch, Plan
from providers import Price
from tests.unit.steering.virtual_replica import MODEL, VirtualReplica

STANDARD, FAST = "openai/gpt-5.4", "fast"
PRICE = Price(2.5e-6, 15e-6)
DEADLINE_S, STANDARD_S, FAST_S = 1.4, 0.6, 0.3
CALLS = 300


def replica() -> VirtualReplica:
    """Return one that knows both: priority's times are half of standard's, which has a tail."""
    made, random = VirtualReplica((STANDARD, FAST)), Random(7)
    for _ in range(200):
        made.win(STANDARD, STANDARD_S * random.lognormvariate(0, 0.4))
        made.win(FAST, FAST_S * random.lognormvariate(0, 0.4))
    made.now_s += 1.0
    return made


def planned(made: VirtualReplica, *, dearer: float = 2.0, **race: Any) -> Plan:
    """Plan a call; the fast tier costs ``dearer`` times as much."""
    prices = {STANDARD: PRICE, FAST: Price(dearer * PRICE.input_usd, dearer * PRICE.output_usd)}
    return made.plan(objective=Objective.COST, prices=prices, ttft_ms=1000 * DEADLINE_S, max_tokens=100, **race)


def hedge_of(plan: Plan) -> Launch | None:
    return next((each for each in plan.launches if each.role is Role.HEDGE), None)


def bought(dearer: float = 2.0, **race: float) -> tuple[int, float]:
    """Play calls; return how many had the fast tier beside the standard one, and what that cost, US dollars."""
    race = {"usd_per_day": 1e9, **race}  # else nobody counts
    made, random, settings = replica(), Random(11), RaceSettings.model_validate({"budget": 1.0, **race})
    count, usd = 0, 0.0
    for _ in range(CALLS):
        plan = planned(made, dearer=dearer, **race)
        hedge, ttft_s = hedge_of(plan), STANDARD_S * random.lognormvariate(0, 0.4)
        if hedge is None or ttft_s <= hedge.delay_s:
            continue
        cost_usd = plan.cost_usd[hedge.deployment]
        if made.steering.draw_extra(MODEL, hedge, settings, cost_usd=cost_usd) is None:
            count, usd = count + 1, usd + cost_usd
    return count, usd


def test_the_standard_tier_is_asked_first_and_the_fast_one_when_it_is_late() -> None:
    made = replica()
    for _ in range(20):
        plan = planned(made)
        hedge = hedge_of(plan)
        assert plan.launches[0].deployment == STANDARD
        assert hedge is not None
        assert hedge.deployment == FAST
        assert DEADLINE_S - 3 * FAST_S < hedge.delay_s < DEADLINE_S  # the last instant at which it keeps the deadline


def test_its_price_decides_how_often_under_a_limit_of_dollars() -> None:
    free, free_usd = bought()
    assert 0.05 * CALLS < free < 0.6 * CALLS
    per_call, per_call_usd = bought(extra_usd_per_call=free_usd / CALLS / 4)
    assert 0 < per_call < free / 2
    assert per_call_usd <= free_usd / 2
    daily, daily_usd = bought(usd_per_day=free_usd / 3)
    assert 0 < daily < free
    assert daily_usd <= free_usd / 3


def test_a_tier_that_is_twice_as_dear_is_bought_half_as_often() -> None:
    usd = bought()[1] / CALLS / 4
    assert bought(4.0, extra_usd_per_call=usd)[0] == pytest.approx(bought(2.0, extra_usd_per_call=usd)[0] / 2, rel=0.3)
