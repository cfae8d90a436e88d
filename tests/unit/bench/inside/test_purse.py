import pytest

from gateway.bench import BenchPurse, Key, RequestCost, cost_of
from providers import Price
from tests.unit.bench.inside.samples import sample

KEYS = [Key(0, 1, "a/m", "short", number) for number in range(10)]
COSTS = {("a/m", "short"): RequestCost(0.01, 0.03)}


def test_a_request_costs_at_most_twice_its_estimated_prompt_and_the_longest_answer() -> None:
    price = Price(input_usd=1e-6, output_usd=4e-6, cache_write_usd=2e-6, reasoning_usd=5e-6)
    cost = cost_of(price, 1000, 40, 64)
    assert cost.about_usd == pytest.approx(1000e-6 + 160e-6)
    assert cost.most_usd == pytest.approx((2000 + 64) * 2e-6 + 64 * 5e-6)
    assert cost_of(None, 1000, 40, 64) == RequestCost(0.0, 0.0)


def test_what_is_under_way_counts_with_its_most() -> None:
    purse = BenchPurse(0.10, COSTS)
    assert purse.pays(KEYS[:3])
    assert not purse.pays(KEYS[:4])
    purse.sent(KEYS[0], 0, 0.03)
    assert not purse.pays(KEYS[1:4])
    purse.done(sample(KEYS[0], cost_high_usd=0.005))
    assert purse.committed_usd == pytest.approx(0.005)
    assert purse.pays(KEYS[1:4])


def test_a_request_without_a_known_cost_counts_with_its_most() -> None:
    purse = BenchPurse(0.10, COSTS)
    purse.sent(KEYS[0], 0, 0.03)
    purse.done(sample(KEYS[0], cost_usd=None, cost_high_usd=None))
    assert purse.committed_usd == pytest.approx(0.03)


def test_the_same_request_of_a_killed_start_stays_reserved() -> None:
    purse = BenchPurse(0.10, COSTS)
    purse.sent(KEYS[0], 0, 0.03)
    purse.sent(KEYS[0], 1, 0.03)
    purse.done(sample(KEYS[0], sitting=1, cost_high_usd=0.01))
    assert purse.committed_usd == pytest.approx(0.04)


def test_an_answer_that_passed_its_most_makes_the_next_ones_dearer() -> None:
    purse = BenchPurse(1.0, COSTS)
    purse.sent(KEYS[0], 0, 0.03)
    purse.done(sample(KEYS[0], cost_high_usd=0.08))
    assert purse.most_usd(KEYS[1]) == pytest.approx(0.10)


def test_without_a_cap_everything_is_paid() -> None:
    assert BenchPurse(None, {("a/m", "short"): RequestCost(9.0, 9.0)}).pays(KEYS)
