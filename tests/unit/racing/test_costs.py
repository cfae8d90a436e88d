"""The bill of a call: every kind of token at its own price, and what the prompt cache saved."""

from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.calls import AttemptRecord, Outcome, Role, TokensSource
from gateway.fleet import Deployment
from gateway.racing.costs import Bill, settle
from providers.prices import Price
from tests.unit.racing.track import CLOCKS, Timetable

PRICE = Price(1e-3, 1e-2, cached_input_usd=1e-4, cache_write_usd=2e-3, reasoning_usd=2e-2)


def attempt(name: str, outcome: Outcome, **facts: Any) -> AttemptRecord:
    return AttemptRecord(
        id=name, call_id="c", number=1, started_at=datetime(2026, 1, 1, tzinfo=UTC), role=Role.PRIMARY,
        provider=name, deployment=name, launch_offset_ms=0.0, outcome=outcome, **facts,
    )  # fmt: skip


def won(**facts: Any) -> AttemptRecord:
    known = {"prompt_tokens": 1000, "completion_tokens": 100, "tokens_source": TokensSource.REPORTED}
    return attempt("winner", Outcome.WON, **(known | facts))


def bill(*attempts: AttemptRecord, price: Price | None = PRICE, bills_on: bool | None = None) -> Bill:
    deployments = {
        one.deployment: Deployment(
            name=one.deployment, provider=one.provider, model="m", upstream=Timetable(one.provider), clocks=CLOCKS,
            price=price, bills_after_disconnect=bills_on, extra_body={}, upstream_stream=True,
        )
        for one in attempts
    }  # fmt: skip
    winner = next((one for one in attempts if one.outcome is Outcome.WON), None)
    return settle(attempts, winner, deployments, 10)


def test_each_kind_of_token_is_billed_at_its_own_price() -> None:
    settled = bill(won(cached_tokens=600, cache_write_tokens=300, reasoning_tokens=40))
    assert settled.total_usd == pytest.approx(100e-3 + 600e-4 + 300 * 2e-3 + 60e-2 + 40 * 2e-2)


def test_what_the_cache_saved_is_the_attempt_s_and_the_call_s() -> None:
    settled = bill(won(cached_tokens=600), attempt("loser", Outcome.LOST))
    assert settled.cache_saved_usd == pytest.approx(600 * (1e-3 - 1e-4))
    assert [one.cache_saved_usd for one in settled.attempts] == [settled.cache_saved_usd, None]


@pytest.mark.parametrize(
    ("price", "cached"), [(None, 600), (Price(1e-3, 1e-2), 600), (PRICE, None)], ids=["price", "discount", "count"]
)
def test_what_the_cache_saved_is_unknown_without_all_of_it(price: Price | None, cached: int | None) -> None:
    settled = bill(won(cached_tokens=cached), price=price)
    assert settled.cache_saved_usd is None
    assert settled.attempts[0].cache_saved_usd is None


def test_a_call_that_nobody_won_saved_nothing_that_is_known() -> None:
    assert bill(attempt("loser", Outcome.FAILED)).cache_saved_usd is None


def test_a_loser_that_is_billed_on_is_taken_to_think_and_answer_as_long_as_the_winner_did() -> None:
    settled = bill(won(reasoning_tokens=40), attempt("loser", Outcome.LOST), bills_on=True)
    assert settled.duplicate_usd == pytest.approx(1000e-3 + 60e-2 + 40 * 2e-2)


def test_a_loser_s_prompt_is_not_taken_to_be_cached() -> None:
    settled = bill(won(cached_tokens=1000), attempt("loser", Outcome.LOST))
    assert settled.duplicate_usd == pytest.approx(1000e-3)
