"""What a race costs in prompt caches: what the primary's would have saved where it loses, else nothing."""

import msgspec
import pytest

from gateway.core.attempts import Outcome, Role, TokensSource
from gateway.racing.caches import with_caches
from gateway.racing.costs import Bill
from providers import Price
from tests.unit.racing.inside.test_costs import attempt, bill, won

PRICE = Price(1e-3, 1e-2, cached_input_usd=1e-4)
HELD = {"loser": 900}
LOST_USD = 900 * (1e-3 - 1e-4)


def overtaken(*, price: Price = PRICE, winner_cached: int = 0, role: Role = Role.RACE) -> Bill:
    """Return the bill of a call whose primary, with 900 of 1,000 tokens in its cache, was overtaken."""
    winner = won(role=role, cached_tokens=winner_cached, completion_tokens=10)
    primary = attempt("loser", Outcome.LOST, role=Role.PRIMARY, sends=1)
    return with_caches(bill(winner, primary, price=price), winner, HELD)


def test_an_overtaken_primary_costs_what_it_read_from_its_cache() -> None:
    settled = overtaken()
    [winner, primary] = settled.attempts
    read_usd = 900e-4 + 100e-3
    assert (primary.cost_usd, primary.cache_saved_usd) == pytest.approx((read_usd, LOST_USD))
    assert winner.cost_usd == pytest.approx(1000e-3 + 10e-2)
    assert settled.total.usd == pytest.approx(read_usd + 1000e-3 + 10e-2)  # each is billed once


def test_racing_added_what_the_winner_paid_for_having_no_cache() -> None:
    assert overtaken().duplicate.usd == pytest.approx(900e-4 + 100e-3 + LOST_USD)


def test_a_winner_with_a_cache_of_its_own_loses_less() -> None:
    assert overtaken(winner_cached=900).duplicate.usd == pytest.approx(900e-4 + 100e-3)
    assert overtaken(winner_cached=400).duplicate.usd == pytest.approx(900e-4 + 100e-3 + 500 * 9e-4)


@pytest.mark.parametrize("roles", [{"role": Role.RACE}, {"role": Role.KEY, "counts_as": Role.RACE}])
def test_a_cache_of_which_the_overtaken_one_told_was_lost_as_well(roles: dict[str, Role]) -> None:
    winner = won(**roles, cached_tokens=0, completion_tokens=10)
    primary = attempt(
        "loser", Outcome.LOST, role=Role.PRIMARY, sends=1, prompt_tokens=1000, cached_tokens=900, completion_tokens=1,
        tokens_source=TokensSource.REPORTED, finish_reason="stop",
    )  # fmt: skip
    settled = with_caches(bill(winner, primary, price=PRICE), winner, {})
    told_usd = 900e-4 + 100e-3 + 1e-2
    assert settled.attempts[1].cost_usd == pytest.approx(told_usd)
    added = (settled.duplicate.low_usd, settled.duplicate.usd, settled.duplicate.high_usd)
    assert added == pytest.approx([told_usd + LOST_USD] * 3)
    assert settled.total.usd == pytest.approx(told_usd + 1000e-3 + 10e-2)


def test_an_audit_after_the_call_counts_what_its_winner_saved() -> None:
    winner = msgspec.structs.replace(won(role=Role.RACE), cache_saved_usd=400 * 9e-4, cost_usd=1.0)
    primary = attempt("loser", Outcome.LOST, role=Role.PRIMARY, sends=1)
    alone = bill(primary, price=PRICE)  # no winner, so its sum has nothing that racing added
    settled = with_caches(msgspec.structs.replace(alone, duplicate=alone.total), winner, HELD)
    assert settled.duplicate.usd == pytest.approx(900e-4 + 100e-3 + 500 * 9e-4)


def test_where_the_primary_wins_its_cache_is_kept_and_others_cost_their_whole_prompt() -> None:
    winner = won(cached_tokens=900, completion_tokens=10)
    racer = attempt("loser", Outcome.LOST, sends=1)
    settled = bill(winner, racer, price=PRICE)
    assert with_caches(settled, winner, {"winner": 900}) is settled
    assert settled.duplicate.usd == pytest.approx(1000e-3)


def test_a_racer_whose_cache_has_the_prompt_adds_what_it_reads_from_there() -> None:
    winner = won(cached_tokens=900, completion_tokens=10)
    settled = with_caches(bill(winner, attempt("loser", Outcome.LOST, sends=1), price=PRICE), winner, HELD)
    assert settled.duplicate.usd == pytest.approx(900e-4 + 100e-3)
    assert settled.total.usd == pytest.approx(2 * (900e-4 + 100e-3) + 10e-2)


@pytest.mark.parametrize("price", [Price(1e-3, 1e-2), Price(1e-3, 1e-2, cached_input_usd=1e-3)])
def test_a_cache_that_saves_nothing_changes_nothing(price: Price) -> None:
    winner = won(role=Role.RACE, cached_tokens=0)
    settled = bill(winner, attempt("loser", Outcome.LOST, role=Role.PRIMARY, sends=1), price=price)
    assert with_caches(settled, winner, HELD) is settled


def test_a_primary_that_failed_was_not_lost_by_racing() -> None:
    winner = won(role=Role.FAILOVER, cached_tokens=0)
    settled = bill(winner, attempt("loser", Outcome.TIMEOUT, role=Role.PRIMARY, sends=1), price=PRICE)
    added = with_caches(settled, winner, HELD).duplicate
    assert added.usd == settled.duplicate.usd


def test_what_racing_added_is_never_more_than_all_cost() -> None:
    settled = overtaken(price=Price(1e-3, 0.0, cached_input_usd=0.0))
    assert settled.duplicate.usd is not None
    assert settled.total.usd is not None
    assert settled.duplicate.usd <= settled.total.usd


def test_a_client_s_own_key_adds_nothing_for_the_operator() -> None:
    winner = won(role=Role.RACE, cached_tokens=0, learnt_as="theirs")
    primary = attempt("loser", Outcome.LOST, role=Role.PRIMARY, sends=1, learnt_as="theirs too")
    settled = with_caches(bill(winner, primary, price=PRICE), winner, HELD)
    assert (settled.total.usd, settled.duplicate.usd) == (0.0, 0.0)


def test_a_cache_that_a_client_s_own_key_had_not_costs_the_operator_nothing() -> None:
    winner = won(role=Role.RACE, cached_tokens=0, completion_tokens=10, learnt_as="theirs")
    primary = attempt("loser", Outcome.LOST, role=Role.PRIMARY, sends=1)
    settled = with_caches(bill(winner, primary, price=PRICE), winner, HELD)
    assert settled.duplicate.usd == settled.total.usd == pytest.approx(900e-4 + 100e-3)
