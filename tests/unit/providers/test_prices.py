"""What a call costs at given prices, and what a prompt cache saved."""

import pytest

from providers.datasheets import Price, cache_saved_usd, cost_usd

PLAIN = Price(2e-6, 8e-6)
APART = Price(2e-6, 8e-6, cached_input_usd=5e-7, cache_write_usd=2.5e-6, reasoning_usd=1e-5)


def test_cached_tokens_cost_their_own_price() -> None:
    assert cost_usd(APART, 1000, 100, cached_tokens=400) == pytest.approx(600 * 2e-6 + 400 * 5e-7 + 100 * 8e-6)


def test_tokens_written_to_the_cache_cost_their_own_price() -> None:
    cost = cost_usd(APART, 1000, 100, cached_tokens=400, cache_write_tokens=500)
    assert cost == pytest.approx(100 * 2e-6 + 400 * 5e-7 + 500 * 2.5e-6 + 100 * 8e-6)


def test_reasoning_costs_its_own_price_within_the_completion() -> None:
    assert cost_usd(APART, 0, 100, reasoning_tokens=70) == pytest.approx(30 * 8e-6 + 70 * 1e-5)


def test_parts_cost_as_the_rest_where_no_price_of_theirs_is_known() -> None:
    cost = cost_usd(PLAIN, 1000, 100, cached_tokens=400, cache_write_tokens=500, reasoning_tokens=70)
    assert cost == pytest.approx(1000 * 2e-6 + 100 * 8e-6)


def test_parts_that_are_free_cost_nothing() -> None:
    free = Price(2e-6, 8e-6, cached_input_usd=0.0, cache_write_usd=0.0, reasoning_usd=0.0)
    cost = cost_usd(free, 1000, 100, cached_tokens=400, cache_write_tokens=600, reasoning_tokens=100)
    assert cost == pytest.approx(0, abs=1e-15)


def test_parts_larger_than_the_whole_are_no_more_than_the_whole() -> None:
    cost = cost_usd(APART, 100, 10, cached_tokens=5000, cache_write_tokens=5000, reasoning_tokens=5000)
    assert cost == pytest.approx(100 * 5e-7 + 10 * 1e-5)


def test_an_unknown_price_or_count_makes_the_cost_unknown_not_zero() -> None:
    assert cost_usd(None, 10, 10) is None
    assert cost_usd(PLAIN, None, 10) is None
    assert cost_usd(PLAIN, 10, None) is None


def test_a_cache_saved_the_difference_of_the_two_prices() -> None:
    assert cache_saved_usd(APART, 1000, 400) == pytest.approx(400 * 1.5e-6)
    assert cache_saved_usd(APART, 1000, 0) == 0
    assert cache_saved_usd(APART, 100, 400) == pytest.approx(100 * 1.5e-6)


@pytest.mark.parametrize(("price", "cached"), [(None, 400), (PLAIN, 400), (APART, None)])
def test_what_a_cache_saved_is_unknown_without_both_prices_and_a_count(price: Price | None, cached: int | None) -> None:
    assert cache_saved_usd(price, 1000, cached) is None
