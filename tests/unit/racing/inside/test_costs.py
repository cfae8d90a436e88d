"""The bill of a call: every kind of token at its own price, and what the prompt cache saved."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from gateway.core.attempts import AttemptRecord, Outcome, Role, TokensSource, Unit
from gateway.fleet import Deployment
from gateway.racing import RequestParameters, ServedTiers, settle
from gateway.racing.costs import LONGER, UNSEEN_TOKENS, Bill
from providers import Capabilities, ErrorKind, Price
from providers.models.listed_prices import read
from tests.unit.racing.track import CLOCKS, Timetable

PRICE = Price(1e-3, 1e-2, cached_input_usd=1e-4, cache_write_usd=2e-3, reasoning_usd=2e-2)


PLAIN_MODEL = Capabilities(reasoning=False)


def attempt(name: str, outcome: Outcome, **facts: Any) -> AttemptRecord:
    return AttemptRecord(
        id=name, call_id="c", number=1, started_at=facts.pop("started_at", datetime(2026, 1, 1, tzinfo=UTC)),
        role=facts.pop("role", Role.PRIMARY if name == "winner" else Role.RACE),
        headers_ms=facts.pop("headers_ms", 5.0),
        provider=name, deployment=name, launch_offset_ms=0.0, outcome=outcome, **facts,
    )  # fmt: skip


def won(**facts: Any) -> AttemptRecord:
    known = {"prompt_tokens": 1000, "completion_tokens": 100, "tokens_source": TokensSource.REPORTED}
    return attempt("winner", Outcome.WON, **(known | facts))


def bill(
    *attempts: AttemptRecord,
    price: Price | None = PRICE,
    bills_on: bool | None = None,
    max_tokens: int | None = None,
    answers: int = 1,
    estimate: int = 1000,
    is_text: bool = True,
    states_cost: bool = False,
    capabilities: Capabilities = PLAIN_MODEL,
) -> Bill:
    deployments = {
        one.deployment: Deployment(
            name=one.deployment, provider=one.provider, model="m", upstream=Timetable(one.provider), clocks=CLOCKS,
            price=price, bills_after_disconnect=bills_on, extra_body={}, upstream_stream=True,
            states_cost=states_cost, capabilities=capabilities,
        )
        for one in attempts
    }  # fmt: skip
    winner = next((one for one in attempts if one.outcome is Outcome.WON), None)
    return settle(
        attempts, winner, deployments, estimate, RequestParameters(max_tokens, answers=answers), is_text=is_text
    )


def test_each_kind_of_token_is_billed_at_its_own_price() -> None:
    settled = bill(won(cached_tokens=600, cache_write_tokens=300, reasoning_tokens=40))
    assert settled.total.usd == pytest.approx(100e-3 + 600e-4 + 300 * 2e-3 + 60e-2 + 40 * 2e-2)


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
    assert settled.duplicate.usd == pytest.approx(1000e-3 + 60e-2 + 40 * 2e-2)


def test_a_loser_s_prompt_is_not_taken_to_be_cached() -> None:
    settled = bill(won(cached_tokens=1000), attempt("loser", Outcome.LOST))
    assert settled.duplicate.usd == pytest.approx(1000e-3)


def test_only_what_racing_added_is_duplicated() -> None:
    alone = bill(attempt("winner", Outcome.FAILED), attempt("next", Outcome.CLIENT_GONE, role=Role.FAILOVER))
    assert (alone.duplicate.usd, alone.duplicate.high_usd) == (0.0, 0.0)
    assert bill(won()).duplicate.usd == 0.0
    saved = bill(won(role=Role.HEDGE), attempt("hung", Outcome.TIMEOUT, role=Role.PRIMARY))
    assert saved.duplicate.high_usd == 0.0  # the hedge answered in its place, as a failover would have
    overtaken = bill(won(role=Role.RACE), attempt("primary", Outcome.LOST, role=Role.PRIMARY))
    assert overtaken.duplicate.usd == pytest.approx(1000e-3)
    nobody = bill(
        attempt("one", Outcome.CLIENT_GONE, role=Role.PRIMARY), attempt("two", Outcome.CLIENT_GONE), estimate=10
    )
    assert nobody.duplicate.usd == pytest.approx(10e-3)
    assert nobody.abandoned.usd == pytest.approx(20e-3)


def test_a_loser_cost_at_least_its_prompt_from_the_cache_and_at_most_one_that_was_written_to_it() -> None:
    loser = bill(won(), attempt("loser", Outcome.LOST), bills_on=False).attempts[1]
    assert loser.cost_low_usd == pytest.approx(1000 * 1e-4)
    assert loser.cost_high_usd == pytest.approx(1000 * 2e-3 + UNSEEN_TOKENS * 2e-2)
    assert loser.cost_low_usd is not None
    assert loser.cost_usd is not None
    assert loser.cost_high_usd is not None
    assert loser.cost_low_usd < loser.cost_usd < loser.cost_high_usd
    assert not loser.cost_is_lower_bound


def test_a_loser_may_have_cost_nothing_where_the_cache_or_thinking_is_free() -> None:
    free = Price(1e-3, 1e-2, cached_input_usd=0.0, reasoning_usd=0.0)
    cut = attempt("loser", Outcome.SUPERSEDED, completion_tokens=20, tokens_source=TokensSource.ESTIMATED)
    assert bill(won(), cut, price=free).attempts[1].cost_low_usd == 0.0


@pytest.mark.parametrize("priced", [True, False])
def test_the_tokens_of_an_answer_that_lost_are_bounded_by_what_is_known_of_its_vendor(priced: bool) -> None:
    price = PRICE if priced else None

    def wasted(loser: AttemptRecord, *, bills_on: bool | None = None, most: int | None = None) -> tuple[Any, Any]:
        settled = bill(won(), loser, price=price, bills_on=bills_on, max_tokens=most).attempts[1]
        return settled.wasted_low_tokens, settled.wasted_high_tokens

    lost = attempt("loser", Outcome.LOST)
    assert wasted(lost, bills_on=False) == (0, UNSEEN_TOKENS)
    assert wasted(lost) == (0, LONGER * 100)
    assert wasted(lost, most=150) == (0, 150)
    received = attempt("loser", Outcome.SUPERSEDED, completion_tokens=20, tokens_source=TokensSource.ESTIMATED)
    assert wasted(received, bills_on=False) == (6, 40 + UNSEEN_TOKENS)
    counted = {"completion_tokens": 90, "tokens_source": TokensSource.REPORTED, "finish_reason": "stop"}
    assert wasted(attempt("loser", Outcome.SUPERSEDED, **counted)) == (90, 90)
    assert wasted(attempt("loser", Outcome.LOST, headers_ms=None, sends=0)) == (0, 0)
    assert wasted(attempt("loser", Outcome.FAILED)) == (None, None)
    winner = bill(won()).attempts[0]
    assert (winner.wasted_low_tokens, winner.wasted_high_tokens) == (None, None)


@pytest.mark.parametrize("outcome", [Outcome.LOST, Outcome.CLIENT_GONE])
def test_who_was_cut_before_its_headers_may_have_cost_nothing(outcome: Outcome) -> None:
    early, late = (bill(won(), attempt("loser", outcome, headers_ms=at)).attempts[1] for at in (None, 5.0))
    assert (early.cost_low_usd, early.cost_is_lower_bound) == (0.0, False)
    assert (early.cost_usd, early.cost_high_usd) == (late.cost_usd, late.cost_high_usd)


@pytest.mark.parametrize("outcome", [Outcome.LOST, Outcome.CLIENT_GONE, Outcome.FAILED])
@pytest.mark.parametrize("bills_on", [True, False, None])
def test_what_was_never_sent_cost_nothing(outcome: Outcome, bills_on: bool | None) -> None:
    loser = bill(won(), attempt("loser", outcome, headers_ms=None, sends=0), bills_on=bills_on).attempts[1]
    assert (loser.cost_usd, loser.cost_low_usd, loser.cost_high_usd) == (0.0, 0.0, 0.0)
    assert (loser.prompt_tokens, loser.cost_is_lower_bound) == (None, False)


PLAIN = Price(1e-3, 1e-2)


@pytest.mark.parametrize(
    ("bills_on", "max_tokens", "answer"),
    [
        (False, None, UNSEEN_TOKENS),
        (True, None, 4 * 100),
        (None, None, 4 * 100),
        (None, 70, 70),
        (True, 9000, 9000),
        (True, 2**53 - 1, 4 * 100),  # the largest number that JavaScript has
    ],
)
def test_at_most_a_loser_was_billed_what_it_may_have_gone_on_to_say(
    bills_on: bool | None, max_tokens: int | None, answer: int
) -> None:
    loser = bill(won(), attempt("loser", Outcome.LOST), price=PLAIN, bills_on=bills_on, max_tokens=max_tokens).attempts[
        1
    ]
    assert loser.cost_low_usd == pytest.approx(1.0)
    assert loser.cost_high_usd == pytest.approx(1.0 + answer * 1e-2)


@pytest.mark.parametrize("bills_on", [True, None])
def test_the_limit_of_a_request_for_several_answers_holds_for_each(bills_on: bool | None) -> None:
    winner, lost = won(completion_tokens=4 * 70), attempt("loser", Outcome.LOST)
    loser = bill(winner, lost, price=PLAIN, bills_on=bills_on, max_tokens=70, answers=4).attempts[1]
    assert (loser.wasted_high_tokens, loser.cost_high_usd) == (280, pytest.approx(1.0 + 280 * 1e-2))
    assert loser.cost_usd == pytest.approx(1.0 + (280 * 1e-2 if bills_on else 0.0))


def test_a_winner_that_was_counted_has_one_cost() -> None:
    settled = bill(won(cached_tokens=600, reasoning_tokens=40))
    winner = settled.attempts[0]
    assert winner.cost_low_usd == winner.cost_high_usd == pytest.approx(winner.cost_usd)
    assert (settled.total.low_usd, settled.total.high_usd) == (winner.cost_low_usd, winner.cost_high_usd)


@pytest.mark.parametrize(
    "price", [PRICE, Price(0.0, 0.0, unknown=("input", "output")), None], ids=["price", "unknown", "none"]
)
def test_what_an_answer_states_to_have_cost_counts_more_than_the_table(price: Price | None) -> None:
    settled = bill(won(stated_usd=0.3), attempt("loser", Outcome.LOST, stated_usd=0.7), price=price, states_cost=True)
    [winner, loser] = settled.attempts
    assert (winner.cost_low_usd, winner.cost_usd, winner.cost_high_usd) == (0.3, 0.3, 0.3)
    assert loser.cost_usd != 0.7  # it may have gone on
    again = bill(won(stated_usd=30.0, sends=2), price=price, states_cost=True).total
    by_table = bill(won(sends=2), price=price).total
    assert (again.low_usd, again.usd) == (30.0, 30.0)
    if by_table.high_usd is None or by_table.low_usd is None:
        assert again.high_usd is None
    else:
        assert again.high_usd == pytest.approx(30.0 + by_table.high_usd - by_table.low_usd)


def test_what_an_answer_states_to_have_cost_counts_only_where_it_is_known_what_that_is() -> None:
    assert bill(won(stated_usd=0.3)).total.usd == bill(won()).total.usd


def test_units_are_a_part_of_what_an_answer_states_to_have_cost() -> None:
    price = msgspec.structs.replace(PRICE, units=(("web_search", 0.025),))
    [stated] = bill(won(stated_usd=0.05, other_units={"web_search": 3}), price=price, states_cost=True).attempts
    assert (stated.cost_usd, stated.units_cost_usd) == (0.05, 0.05)


def test_a_guess_may_be_off_either_way() -> None:
    guessed = bill(won(prompt_tokens=None, tokens_source=TokensSource.ESTIMATED), price=PLAIN, estimate=10).attempts[0]
    assert guessed.cost_usd == pytest.approx(10e-3 + 1.0)
    assert guessed.cost_low_usd == pytest.approx(5e-3 + 0.46)  # and a few tokens may be long
    assert guessed.cost_high_usd == pytest.approx(20e-3 + 2.0)


def test_who_failed_may_have_cost_nothing_or_its_prompt() -> None:
    failed = bill(won(), attempt("failed", Outcome.TIMEOUT), price=PLAIN, bills_on=False).attempts[1]
    assert (failed.cost_usd, failed.cost_low_usd) == (None, 0.0)
    assert failed.cost_high_usd == pytest.approx(1.0 + UNSEEN_TOKENS * 1e-2)


@pytest.mark.parametrize(
    "kind", [ErrorKind.RATE_LIMITED, ErrorKind.CONNECT_ERROR, ErrorKind.PROVIDER_AUTH, ErrorKind.BAD_REQUEST]
)
def test_who_was_refused_cost_nothing(kind: ErrorKind) -> None:
    refused = bill(won(), attempt("refused", Outcome.FAILED, error_kind=kind), price=PLAIN).attempts[1]
    assert (refused.cost_low_usd, refused.cost_high_usd) == (0.0, 0.0)


@pytest.mark.parametrize("outcome", [Outcome.LOST, Outcome.SUPERSEDED, Outcome.CLIENT_GONE])
@pytest.mark.parametrize("bills_on", [True, False, None])
@pytest.mark.parametrize("max_tokens", [None, 40, 9000])
def test_the_best_figure_lies_within_the_bounds(
    outcome: Outcome, bills_on: bool | None, max_tokens: int | None
) -> None:
    settled = bill(won(), attempt("loser", outcome), price=PLAIN, bills_on=bills_on, max_tokens=max_tokens)
    loser = settled.attempts[1]
    assert loser.cost_low_usd is not None
    assert loser.cost_usd is not None
    assert loser.cost_high_usd is not None
    assert loser.cost_low_usd <= loser.cost_usd <= loser.cost_high_usd


def test_a_count_that_came_before_the_end_is_the_least() -> None:
    counted = {"prompt_tokens": 1000, "completion_tokens": 5, "tokens_source": TokensSource.REPORTED}
    cut = bill(won(), attempt("loser", Outcome.SUPERSEDED, **counted), price=PLAIN).attempts[1]
    assert cut.cost_low_usd == pytest.approx(1.0 + 5e-2)
    assert cut.cost_high_usd == pytest.approx(1.0 + 4 * 100 * 1e-2)
    whole = bill(won(), attempt("loser", Outcome.SUPERSEDED, finish_reason="stop", **counted), price=PLAIN).attempts[1]
    assert whole.cost_low_usd == whole.cost_high_usd == pytest.approx(1.0 + 5e-2)


def test_what_was_sent_twice_may_be_billed_twice() -> None:
    once, twice = (bill(won(sends=sends), price=PLAIN).attempts[0] for sends in (1, 2))
    assert once.cost_high_usd is not None
    assert twice.cost_low_usd == once.cost_low_usd
    assert twice.cost_high_usd == pytest.approx(once.cost_high_usd + 1.0)


def test_the_price_that_was_applied_stands_beside_the_cost() -> None:
    assert bill(won(), price=PLAIN).attempts[0].price == {"input": 1000.0, "output": 10000.0}
    assert bill(won(), price=None).attempts[0].price is None


def bounds_of(loser: AttemptRecord) -> tuple[float | None, float | None, float | None]:
    return loser.cost_low_usd, loser.cost_usd, loser.cost_high_usd


@pytest.mark.parametrize("stated", [400, 800, 8000])
def test_a_winner_that_counts_its_prompt_unlike_any_other_does_not_make_losers_as_dear(stated: int) -> None:
    loser = attempt("loser", Outcome.LOST)
    _, priced = bill(won(prompt_tokens=stated), loser, bills_on=False, estimate=1000).attempts
    is_near = stated == 800
    assert priced.prompt_tokens == (stated if is_near else 1000)
    low, usd, high = bounds_of(priced)
    assert (low, usd) == pytest.approx(
        (80e-3, 800e-3) if is_near else (min(400, 500) * 1e-4 if stated == 400 else 50e-3, 1.0)
    )
    assert high == pytest.approx((800 if is_near else 2000) * 2e-3 + UNSEEN_TOKENS * 2e-2)


def test_a_count_is_believed_where_the_prompt_is_not_all_text_in_the_body() -> None:
    _, priced = bill(won(prompt_tokens=8000), attempt("loser", Outcome.LOST), estimate=1000, is_text=False).attempts
    assert (priced.prompt_tokens, priced.cost_usd) == (8000, pytest.approx(8.0))


def test_a_chat_template_may_be_longer_than_a_short_prompt() -> None:
    _, priced = bill(won(prompt_tokens=70), attempt("loser", Outcome.LOST), estimate=5).attempts
    assert priced.prompt_tokens == 70


@pytest.mark.parametrize(("stated", "chars", "taken"), [(100, 400, 100), (200, 200, 200), (800, 400, 100)])
def test_a_loser_whose_answer_is_billed_whole_is_as_long_as_the_text_that_came(
    stated: int, chars: int, taken: int
) -> None:
    winner, loser = won(completion_tokens=stated, chars=chars), attempt("loser", Outcome.LOST)
    _, priced = bill(winner, loser, bills_on=True).attempts
    assert priced.cost_usd == pytest.approx(1.0 + taken * 1e-2)
    assert priced.wasted_high_tokens == LONGER * taken


def test_thoughts_that_came_as_no_text_count() -> None:
    winner = won(completion_tokens=1100, reasoning_tokens=1000, chars=400)
    _, priced = bill(winner, attempt("loser", Outcome.LOST), bills_on=True).attempts
    assert priced.wasted_high_tokens == LONGER * 1100


def test_a_count_that_cannot_be_is_no_measure_of_a_loser_s_prompt() -> None:
    winner = won(prompt_tokens=34_000, tokens_source=TokensSource.IMPLAUSIBLE)
    _, priced = bill(winner, attempt("loser", Outcome.LOST)).attempts
    assert (priced.prompt_tokens, priced.cost_low_usd) == (1000, pytest.approx(50e-3))


@pytest.mark.parametrize(("max_tokens", "answers", "most"), [(50, 1, 50), (50, 3, 150), (None, 1, 128_000)])
def test_a_count_that_cannot_be_costs_no_more_than_was_held_for(
    max_tokens: int | None, answers: int, most: int
) -> None:
    winner = won(prompt_tokens=10, completion_tokens=1_000_000, tokens_source=TokensSource.IMPLAUSIBLE)
    (priced,) = bill(winner, max_tokens=max_tokens, answers=answers, estimate=10).attempts
    assert priced.completion_tokens == 1_000_000  # as the ledger has it
    assert priced.cost_usd == pytest.approx(10e-3 + most * 1e-2)


# Tiers, sizes of prompts, and units besides text.

LISTED = read(
    {
        "litellm_provider": "openai",
        "mode": "chat",
        "input_cost_per_token": 1e-3,
        "output_cost_per_token": 1e-2,
        "input_cost_per_token_above_1k_tokens": 2e-3,
        "output_cost_per_token_above_1k_tokens": 2e-2,
        "input_cost_per_token_priority": 3e-3,
        "output_cost_per_token_priority": 3e-2,
        "input_cost_per_token_flex": 5e-4,
        "output_cost_per_token_flex": 5e-3,
        "output_cost_per_audio_token": 5e-2,
    }
)


def billed(record: AttemptRecord, tier: str | None = None) -> AttemptRecord:
    """Return the winner's record, priced as listed, of a request that asked for ``tier``."""
    return settle([record], record, {"winner": _listed()}, 1000, RequestParameters(tier=tier)).attempts[0]


def costs(record: AttemptRecord) -> tuple[float | None, float | None, float | None]:
    return record.cost_low_usd, record.cost_usd, record.cost_high_usd


@pytest.mark.parametrize(
    ("served", "asked", "usd"), [("priority", None, 6), ("", "priority", 2), ("flex", "flex", 1), (None, "", 2)]
)
def test_the_tier_that_served_a_winner_is_billed_whatever_it_asked_for(
    served: str | None, asked: str | None, usd: float
) -> None:
    assert costs(billed(won(tier=served), asked)) == (pytest.approx(usd),) * 3


@pytest.mark.parametrize(("asked", "usd"), [("priority", (2, 6, 6)), ("flex", (1, 1, 2))])
def test_a_tier_that_was_asked_for_but_not_answered_bounds_the_cost(asked: str, usd: tuple[float, ...]) -> None:
    assert costs(billed(won(), asked)) == tuple(map(pytest.approx, usd))


@pytest.mark.parametrize(("vendor", "high"), [(None, 6), ("openai", 6), ("gemini", 2)])
def test_a_tier_that_was_neither_asked_for_nor_answered_is_standard_or_the_dearest_that_may_serve_it(
    vendor: str | None, high: float
) -> None:
    """A project may have another tier for all its calls; Google serves it to who asks for it alone."""
    deployment = msgspec.structs.replace(_listed(), vendor=vendor)
    [priced] = settle([won()], won(), {"winner": deployment}, 1000).attempts
    assert costs(priced) == (pytest.approx(2), pytest.approx(2), pytest.approx(high))


def test_a_tier_that_was_not_asked_for_is_the_one_that_answers_of_the_last_day_named() -> None:
    now = 0.0
    seen = ServedTiers(lambda: now)

    def told(tier: str | None, asked: str | None = None) -> tuple[float | None, ...]:
        record = won(tier=tier)
        return costs(
            settle([record], record, {"winner": _listed()}, 1000, RequestParameters(tier=asked), seen=seen).attempts[0]
        )

    told("priority")
    assert told(None) == (pytest.approx(2), pytest.approx(6), pytest.approx(6))  # it may have been ramped down
    seen = ServedTiers(lambda: now)
    told("priority", asked="priority")  # tells nothing of those that ask for none
    assert told(None) == (pytest.approx(2), pytest.approx(2), pytest.approx(6))
    told("")
    assert told(None) == (pytest.approx(2),) * 3
    told("priority")
    assert told(None) == (pytest.approx(2), pytest.approx(6), pytest.approx(6))
    now = 86_401.0
    assert told(None) == (pytest.approx(2), pytest.approx(2), pytest.approx(6))


HOURLY = read(  # off-peak: 10:00 to midnight and 00:00 to 01:00 on weekdays, all of a weekend
    {
        "litellm_provider": "deepseek",
        "mode": "chat",
        "input_cost_per_token": 2e-3,
        "output_cost_per_token": 2e-2,
        "off_peak_pricing": {
            "input_cost_per_token": 1e-3,
            "output_cost_per_token": 1e-2,
            "windows": [
                {"hours_utc": ["00:00-01:00", "10:00-00:00"], "weekdays": [1, 2, 3, 4, 5]},
                {"hours_utc": "00:00-00:00", "weekdays": [6, 7]},
            ],
        },
    }
)


@pytest.mark.parametrize(
    ("day", "hour", "usd"),
    [
        (6, 12, (2, 2, 2)),  # a Friday's noon
        (6, 5, (2, 4, 4)),  # at its peak, or a holiday, which no table has
        (6, 9.999, (2, 4, 4)),  # ends after ten, begins before
        (6, 10, (2, 2, 2)),
        (7, 5, (2, 2, 2)),  # a Saturday
        (8, 23.9999, (2, 2, 2)),  # from Sunday to Monday
        (9, 0.99, (2, 4, 4)),
    ],
)
def test_off_peak_prices_are_exact_in_their_hours_and_bounds_in_others(
    day: int, hour: float, usd: tuple[float, ...]
) -> None:
    deployment = msgspec.structs.replace(_listed(), price=HOURLY, vendor="deepseek")
    at = datetime(2026, 3, day, tzinfo=UTC) + timedelta(hours=hour)
    [priced] = settle([won(started_at=at)], won(), {"winner": deployment}, 1000).attempts
    assert costs(priced) == tuple(map(pytest.approx, usd))


def test_a_loser_that_may_be_billed_after_the_off_peak_hours_has_the_peak_s_upper_bound() -> None:
    deployments = {
        name: msgspec.structs.replace(_listed(), name=name, price=HOURLY, vendor="deepseek") for name in ("winner", "b")
    }
    at = datetime(2026, 3, 6, 0, 30, tzinfo=UTC)
    winner = won(started_at=at)
    cut = attempt("b", Outcome.LOST, started_at=at, prompt_tokens=1000)
    _, loser = settle([winner, cut], winner, deployments, 1000, RequestParameters(max_tokens=100)).attempts
    assert (loser.cost_low_usd, loser.cost_high_usd) == (pytest.approx(1), pytest.approx(4))


@pytest.mark.parametrize(
    ("vendor", "tier", "given", "usd"),
    [
        ("anthropic", "priority", {}, None),
        ("groq", "priority", {}, 1.5),
        ("anthropic", "priority", {"input_cost_per_token_priority": 1e-3, "output_cost_per_token_priority": 1e-2}, 2),
    ],
)
def test_a_tier_that_is_bought_as_capacity_has_no_cost_unless_a_price_is_known(
    vendor: str, tier: str, given: dict[str, float], usd: float | None
) -> None:
    row = {"mode": "chat", "input_cost_per_token": 5e-4, "output_cost_per_token": 1e-2, **given}
    price = read(row)
    assert price is not None
    price = msgspec.structs.replace(price, dearest=(("input", 5e-4),))
    record, deployment = won(tier=tier), msgspec.structs.replace(_listed(price), vendor=vendor)
    [priced] = settle([record], record, {"winner": deployment}, 1000).attempts
    assert (priced.cost_usd, priced.tier_served) == (usd if usd is None else pytest.approx(usd), tier)


def test_a_prompt_above_a_size_costs_that_size_s_price_for_all_of_it() -> None:
    assert costs(billed(won(tier="", prompt_tokens=1001))) == (pytest.approx(1001 * 2e-3 + 100 * 2e-2),) * 3


def test_a_prompt_that_nobody_counted_is_bounded_by_the_prices_on_both_sides_of_a_size() -> None:
    low, _, high = costs(billed(won(prompt_tokens=None)))
    assert low is not None
    assert high is not None
    assert low <= 500 * 1e-3 + 100 * 1e-2
    assert high >= 2000 * 2e-3 + 100 * 2e-2


def test_a_tier_without_a_known_price_has_no_cost_and_a_limit_counts_the_dearest_that_is_known() -> None:
    priced = billed(won(tier="scale"))
    assert costs(priced) == (0.0, None, None)
    assert priced.limit_usd == pytest.approx(6)


def test_a_unit_without_a_known_price_leaves_what_is_known_as_the_lower_bound() -> None:
    priced = billed(won(other_units={"web_search": 2}))
    assert costs(priced) == (pytest.approx(2), None, None)
    assert priced.limit_usd == pytest.approx(2)


def test_a_unit_without_a_price_here_counts_for_a_limit_at_the_dearest_of_its_vendor() -> None:
    assert LISTED is not None
    price = msgspec.structs.replace(LISTED, dearest=(("web_search", 0.5),))
    record = won(other_units={"web_search": 2})
    [priced] = settle([record], record, {"winner": _listed(price)}, 1000).attempts
    assert (priced.cost_usd, priced.limit_usd) == (None, pytest.approx(2 + 2 * 0.5))


def test_an_operator_s_price_holds_in_a_tier_that_is_bought_and_the_rest_counts_at_the_dearest_of_the_vendor() -> None:
    price = msgspec.structs.replace(PLAIN, dearest=(("web_search", 0.5),), is_configured=True)
    deployment = msgspec.structs.replace(_listed(price), vendor="openai")

    def first(**facts: Any) -> AttemptRecord:
        return settle([won(**facts)], won(**facts), {"winner": deployment}, 1000).attempts[0]

    assert first(tier="scale").cost_usd == pytest.approx(2)
    searched = first(other_units={"web_search": 40})
    assert (searched.cost_usd, searched.limit_usd) == (None, pytest.approx(2 + 40 * 0.5))


def test_a_model_that_is_not_listed_has_no_cost_and_counts_at_the_dearest_of_its_vendor() -> None:
    table = Price(0.0, 0.0, unknown=("input", "output"), dearest=(("input", 5e-3), ("output", 5e-2)))
    deployment = msgspec.structs.replace(_listed(None), listed=table)
    [priced] = settle([won()], won(), {"winner": deployment}, 1000).attempts
    assert costs(priced) == (0.0, None, None)
    assert (priced.price, priced.limit_usd) == (None, pytest.approx(1000 * 5e-3 + 100 * 5e-2))


def test_the_tiers_and_the_units_of_an_attempt_are_columns() -> None:
    priced = billed(won(tier="", other_units={"audio_output": 60, "web_search": 2}), "priority")
    assert (priced.tier_asked, priced.tier_served) == ("priority", "standard")
    assert priced.units == {"audio_output": Unit(60, 5e-2), "web_search": Unit(2, None)}
    assert priced.units_cost_usd == pytest.approx(60 * 5e-2)


@pytest.mark.parametrize(("served", "told"), [(None, None), ("", None), ("flex", "flex")])
def test_an_ordinary_call_has_neither_a_tier_nor_units(served: str | None, told: str | None) -> None:
    priced = billed(won(tier=served))
    assert (priced.tier_asked, priced.tier_served, priced.units, priced.units_cost_usd) == (None, told, None, None)


def test_sound_costs_its_own_price() -> None:
    assert costs(billed(won(tier="", other_units={"audio_output": 60}))) == (pytest.approx(1 + 0.4 + 60 * 5e-2),) * 3


def test_a_call_s_upper_bound_is_unknown_where_one_attempt_s_is() -> None:
    settled = settle([billed(won(other_units={"web_search": 2}))], None, {"winner": _listed()}, 1000)
    assert settled.total.high_usd is None


def test_a_call_s_upper_bound_is_unknown_where_nothing_is_known_of_one_attempt_unless_it_was_refused() -> None:
    deployments = {"winner": _listed(), "loser": _listed(None)}
    cut, refused = attempt("loser", Outcome.LOST), attempt("loser", Outcome.FAILED, error_kind=ErrorKind.RATE_LIMITED)
    winner = won(tier="")
    highs = [settle([winner, each], winner, deployments, 1000).total.high_usd for each in (cut, refused)]
    assert highs == [None, pytest.approx(2)]


def test_who_was_refused_cost_nothing_where_nothing_is_known_of_a_prompt() -> None:
    refused = attempt("refused", Outcome.FAILED, error_kind=ErrorKind.RATE_LIMITED)
    heard = attempt("heard", Outcome.WON, other_units={"second": 12})
    settled = bill(refused, heard, price=Price(0.0, 0.0, units=(("second", 1e-2),)), estimate=0)
    assert costs(settled.attempts[0]) == (0.0, None, 0.0)
    assert settled.total.high_usd == pytest.approx(0.12)


@pytest.mark.parametrize(
    ("facts", "usd"),
    [
        ({"cache_write_tokens": 1000, "other_units": {"cache_write_1h": 1000}}, 4),
        ({"other_units": {"audio_input": 600}}, 0.4 + 600 * 3e-3),
        ({"other_units": {"web_search": 2}}, None),
    ],
)
def test_a_loser_whose_prompt_was_counted_cost_what_each_unit_of_it_does(
    facts: dict[str, Any], usd: float | None
) -> None:
    price = msgspec.structs.replace(PRICE, units=(("audio_input", 3e-3), ("cache_write_1h", 4e-3)))
    loser = attempt("loser", Outcome.LOST, prompt_tokens=1000, cached_tokens=0, **facts)
    _, priced = bill(won(), loser, price=price, bills_on=False).attempts
    if usd is None:
        assert costs(priced) == (pytest.approx(1), None, None)
    else:
        assert costs(priced) == (
            pytest.approx(usd), pytest.approx(usd), pytest.approx(usd + UNSEEN_TOKENS * 2e-2)
        )  # fmt: skip


@pytest.mark.parametrize(("price", "asked"), [(PLAIN, True), (msgspec.structs.replace(PLAIN, request_usd=None), False)])
@pytest.mark.parametrize(
    "gone",
    [{"outcome": Outcome.CLIENT_GONE}, {"outcome": Outcome.WON, "finish_reason": "queued"}],
    ids=["gone", "begun"],
)
def test_a_limit_counts_what_may_be_billed_after_the_call_where_not_all_of_it_is_known(
    price: Price, asked: bool, gone: dict[str, Any]
) -> None:
    record = attempt("winner", **gone)
    [priced] = settle(
        [record], None, {"winner": _listed(price)}, 1000, RequestParameters(max_tokens=500, searches=asked)
    ).attempts
    assert priced.cost_high_usd is None
    assert priced.limit_usd == pytest.approx(2000 * 1e-3 + 500 * 1e-2)


@pytest.mark.parametrize("price", [LISTED, PLAIN], ids=["tiers", "one"])
def test_a_loser_that_bought_capacity_may_have_served_cost_nothing_at_least(price: Price) -> None:
    """Its deployment's answers named a tier that has no price of a token, as of OpenAI's Scale Tier."""
    deployment = _listed(msgspec.structs.replace(price, dearest=(("input", 1e-3),)))
    deployments = {"winner": msgspec.structs.replace(deployment, vendor="openai")}
    seen = ServedTiers(lambda: 0.0)

    def second(tier: str, outcome: Outcome = Outcome.LOST, **facts: Any) -> AttemptRecord:
        cut = msgspec.structs.replace(attempt("loser", outcome, **facts), deployment="winner")
        return settle([won(tier=tier), cut], won(tier=tier), deployments, 1000, seen=seen).attempts[1]

    assert second("").cost_low_usd == pytest.approx(1)
    assert costs(second("scale")) == (0.0, None, None)
    assert costs(second(""))[::2] == (0.0, None)
    assert costs(second("", Outcome.FAILED, error_kind=ErrorKind.RATE_LIMITED))[::2] == (0.0, 0.0)


@pytest.mark.parametrize(
    ("fee", "asked", "units", "high"),
    [
        (0.0, {"searches": True, "searches_untold": True}, None, None),  # chat does not tell OpenAI's searches
        (0.0, {"searches": True, "searches_untold": True}, {"web_search": 1}, 2.1),
        (0.0, {"searches": True}, None, 2.0),  # who tells them made none
        (0.5, {}, None, 2.5),  # Perplexity has not told the size of its search
        (0.5, {}, {"web_search": 1}, 2.1),
        (None, {}, None, None),
    ],
)
def test_what_a_winner_was_billed_beside_its_tokens_is_unknown_where_it_does_not_tell(
    fee: float | None, asked: dict[str, Any], units: dict[str, int] | None, high: float | None
) -> None:
    price = msgspec.structs.replace(PLAIN, units=(("web_search", 0.1),), request_usd=fee)
    record = won(other_units=units)
    [priced] = settle([record], record, {"winner": _listed(price)}, 1000, RequestParameters(**asked)).attempts
    assert priced.cost_low_usd == pytest.approx(2.1 if units else 2.0)
    assert priced.cost_high_usd == (high if high is None else pytest.approx(high))


def _listed(price: Price | None = LISTED) -> Deployment:
    return Deployment(
        name="winner", provider="winner", model="m", upstream=Timetable("winner"), clocks=CLOCKS, price=price,
        bills_after_disconnect=None, extra_body={}, upstream_stream=True, capabilities=PLAIN_MODEL,
    )  # fmt: skip


@pytest.mark.parametrize(("outcome", "units", "high"), [
    (Outcome.WON, None, None),  # a model that searches whatever it is asked, and tells nothing of it
    (Outcome.WON, {"web_search": 1}, 2.1),
    (Outcome.CLIENT_GONE, None, None),
])  # fmt: skip
def test_a_deployment_that_searches_whatever_it_is_asked_is_billed_for_it(
    outcome: Outcome, units: dict[str, int] | None, high: float | None
) -> None:
    price = msgspec.structs.replace(PLAIN, units=(("web_search", 0.1),), request_usd=0.0)
    record = won(other_units=units) if outcome is Outcome.WON else attempt("winner", outcome)
    deployment = msgspec.structs.replace(_listed(price), acts=True, searches=True)
    [priced] = settle([record], None, {"winner": deployment}, 1000).attempts
    assert priced.cost_high_usd == (high if high is None else pytest.approx(high))


LONGEST = 100_000
THINKERS = [Capabilities(reasoning=may, max_output_tokens=LONGEST) for may in (True, None)]
UNTOLD = [
    attempt("loser", Outcome.LOST),
    attempt("loser", Outcome.LOST, headers_ms=None),
    attempt("loser", Outcome.SUPERSEDED, completion_tokens=20, tokens_source=TokensSource.ESTIMATED),
    attempt("loser", Outcome.SUPERSEDED, completion_tokens=5, prompt_tokens=9, tokens_source=TokensSource.REPORTED),
    attempt("loser", Outcome.CLIENT_GONE, completion_tokens=20, tokens_source=TokensSource.ESTIMATED),
    attempt("loser", Outcome.TIMEOUT),
    attempt("loser", Outcome.STALLED, completion_tokens=20, tokens_source=TokensSource.ESTIMATED),
    attempt("winner", Outcome.WON, completion_tokens=20, tokens_source=TokensSource.ESTIMATED),
    attempt("winner", Outcome.WON, completion_tokens=20, tokens_source=TokensSource.IMPLAUSIBLE),
]


def of_one(record: AttemptRecord, **facts: Any) -> AttemptRecord:
    others = () if record.outcome is Outcome.WON else (won(),)
    return bill(*others, record, **facts).attempts[-1]


@pytest.mark.parametrize("record", UNTOLD)
@pytest.mark.parametrize("capabilities", THINKERS)
@pytest.mark.parametrize("bills_on", [True, False, None])
@pytest.mark.parametrize(("max_tokens", "answers", "most"), [
    (None, 1, LONGEST), (9000, 1, 9000), (9000, 3, 27_000), (2 * LONGEST, 1, LONGEST)
])  # fmt: skip
def test_what_may_have_been_thought_unseen_cost_at_most_what_was_asked_for(
    record: AttemptRecord, capabilities: Capabilities, *, bills_on: bool | None, max_tokens: int | None, answers: int,
    most: int,
) -> None:  # fmt: skip
    asked: dict[str, Any] = {"price": PLAIN, "bills_on": bills_on, "max_tokens": max_tokens, "answers": answers}
    priced = of_one(record, capabilities=capabilities, **asked)
    assert priced.cost_high_usd is not None
    assert priced.cost_high_usd >= (priced.prompt_tokens or 0) * 1e-3 + most * 1e-2 - 1e-9
    assert priced.wasted_high_tokens in {None, most}
    usual = of_one(record, capabilities=Capabilities(reasoning=False, max_output_tokens=LONGEST), **asked)
    assert priced.counted_high_usd == usual.cost_high_usd  # what limits count
    assert (priced.cost_low_usd, priced.cost_usd) == (usual.cost_low_usd, usual.cost_usd)


def test_a_model_of_which_nothing_is_known_may_have_thought_as_long_as_is_usual_at_most() -> None:
    priced = of_one(UNTOLD[0], price=PLAIN, bills_on=False, capabilities=Capabilities())
    assert priced.cost_high_usd == pytest.approx(1.0 + 128_000 * 1e-2)


@pytest.mark.parametrize("capabilities", THINKERS)
def test_a_model_that_thinks_cost_what_its_usage_says_where_that_is_told(capabilities: Capabilities) -> None:
    told = {"prompt_tokens": 1000, "tokens_source": TokensSource.REPORTED, "finish_reason": "stop"}
    whole = attempt("loser", Outcome.SUPERSEDED, completion_tokens=500, reasoning_tokens=400, **told)
    priced = bill(won(), whole, price=PLAIN, capabilities=capabilities).attempts
    assert [each.cost_high_usd for each in priced] == [pytest.approx(2.0), pytest.approx(6.0)]
    empty = bill(won(completion_tokens=0), price=PLAIN, capabilities=capabilities)
    assert empty.total.high_usd == pytest.approx(1.0)
    refused = attempt("loser", Outcome.FAILED, error_kind=ErrorKind.RATE_LIMITED)
    assert of_one(refused, price=PLAIN, capabilities=capabilities).cost_high_usd == 0.0


def test_what_is_not_written_token_by_token_is_not_thought_about() -> None:
    record = won(completion_tokens=None)
    asked = RequestParameters(writes=False)
    unknown = msgspec.structs.replace(_listed(PLAIN), capabilities=Capabilities())
    [priced] = settle([record], record, {"winner": unknown}, 1000, asked).attempts
    assert priced.cost_high_usd == pytest.approx(1.0)


def test_a_limit_that_an_operator_sends_in_place_of_the_clients_is_not_the_clients() -> None:
    own = {"max_tokens": msgspec.Raw(b"50000")}
    deployment = msgspec.structs.replace(_listed(PLAIN), capabilities=THINKERS[0], extra_body=own)
    [priced] = settle([UNTOLD[-2]], None, {"winner": deployment}, 1000, RequestParameters(max_tokens=10)).attempts
    assert priced.cost_high_usd is not None
    assert priced.cost_high_usd >= 1.0 + 50_000 * 1e-2


def test_thoughts_that_nobody_saw_are_bounded_in_every_tier_that_may_have_served() -> None:
    thinking, plain = (
        msgspec.structs.replace(_listed(), capabilities=each, bills_after_disconnect=False)
        for each in (THINKERS[0], PLAIN_MODEL)
    )
    gone = msgspec.structs.replace(UNTOLD[4], deployment="winner")
    priced, usual = (
        settle([gone], None, {"winner": each}, 400, RequestParameters(tier="priority")).attempts[0]
        for each in (thinking, plain)
    )
    assert priced.counted_high_usd == usual.cost_high_usd
    assert priced.cost_high_usd is not None
    assert usual.cost_high_usd is not None
    assert priced.cost_high_usd > LONGEST * 3e-2 > usual.cost_high_usd
