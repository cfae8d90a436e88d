"""What further attempts are worth: who is launched, and when, if a second has a value."""

from collections.abc import Mapping
from random import Random

import msgspec
import pytest

from gateway.core.attempts import AnswerKind, AttemptRecord, Outcome, Role, WinOn
from gateway.core.calls import Mode, Objective
from gateway.settings import RaceSettings
from gateway.steering import Condition, HealthState, Plan, Terms
from gateway.steering.candidates import Candidate, Lineup, line_up
from gateway.steering.constants import KEPT_PRIOR
from gateway.steering.counts import bucket, mid_s
from gateway.steering.estimates import Estimate
from gateway.steering.planner import NOT_WORTH_IT, Means, plan
from gateway.steering.plans import Offer, Why
from gateway.steering.prediction import size_of, tokens_of
from gateway.steering.survival import dense, kaplan_meier
from gateway.steering.worth import ConfirmedShare, best, offers
from providers import Price
from tests.unit.steering.virtual_replica import EPOCH, MODEL, SHORT, VirtualReplica

HEALTHY = Condition(HealthState.OK, 0.0, probe_due=False, in_flight=0, price_s=0.0)
PRICE = Price(input_usd=1e-6, output_usd=4e-6)
PROMPT_TOKENS = round(tokens_of(size_of(1000)))  # the middle of its size
PROMPT_USD = PROMPT_TOKENS * 1e-6


def candidate(
    name: str, ttft_s: Mapping[float, float], score_s: float, *, decode_tps: float = 60.0, **facts: object
) -> Candidate:
    """A deployment whose first tokens come at these times with these shares, and which never fails."""
    curve = kaplan_meier(dense({bucket(seconds): share for seconds, share in ttft_s.items()}), dense({}))
    estimate = Estimate(
        events=100.0,
        curve=curve,
        q95_s=curve.quantile_s(0.95),
        beyond_s=curve.expected_beyond_s(),
        score_s=score_s,
        error_rate=0.0,
        decode_tps=decode_tps,
        mean=curve.mean(),
    )
    return Candidate(name, estimate, HEALTHY, score_s, **facts)  # type: ignore[arg-type] # passed on by name


# Half of the primary's first tokens come after 0.25 s, half after 2 s; the other one's always after 0.5 s.
PRIMARY = candidate("a", {0.25: 0.5, 2.0: 0.5}, 0.2)
OTHER = candidate("b", {0.5: 1.0}, 1.0)


def terms(*, prices: Mapping[str, Price] | None = None, holds: bool = False, **facts: object) -> Terms:
    prices = {"a": PRICE, "b": PRICE, "c": PRICE} if prices is None else prices
    facts = {"answer_tokens": 100.0, "bills_losers": frozenset(), **facts}
    return Terms(Objective.FIRST_TOKEN, PROMPT_TOKENS, prices=prices, holds=holds, **facts)  # type: ignore[arg-type]


def offered(
    lineup: Lineup | None = None,
    asked: Terms | None = None,
    *,
    kept: float = 1.0,
    is_long: bool = False,
    **race: object,
) -> list[Offer]:
    lineup = lineup or line_up((PRIMARY, OTHER))
    settings = RaceSettings.model_validate(race)
    found = offers(lineup, lineup.ranked[0], settings, asked or terms(), kept=kept, is_long=is_long)
    assert found is not None
    return list(found)


def planned(value_usd_per_s: float | None, asked: Terms | None = None, *, seed: int = 1, **race: object) -> Plan:
    settings = RaceSettings.model_validate({"value_usd_per_s": value_usd_per_s, "audit_share": 0.0, **race})
    draws = Random(seed)
    draws.random()
    return plan(line_up((PRIMARY, OTHER)), settings, asked or terms(), Means(20.0), random=draws, now_s=0.0)


def extra(made: Plan) -> list[tuple[str, Role, float]]:
    """Who runs beside the primary as an extra attempt."""
    return [
        (each.deployment, each.role, each.delay_s) for each in made.launches if each.role in {Role.RACE, Role.HEDGE}
    ]


def test_the_offers_of_an_example_are_those_computed_by_hand() -> None:
    soon_s, other_s, late_s = (mid_s(bucket(seconds)) for seconds in (0.25, 0.5, 2.0))
    assert soon_s < other_s < late_s

    at_once, *_ = found = offered()

    # At once it is first in half of the calls, and then saves the difference; answers cost the same.
    assert (at_once.deployment, at_once.delay_s, at_once.starts) == ("b", 0.0, 1.0)
    assert at_once.saved_s == pytest.approx(0.5 * (late_s - other_s))
    assert at_once.usd == pytest.approx(PROMPT_USD)

    # After the primary's first half it starts in half of the calls, and saves what then is left beyond its own time.
    hedge = next(each for each in found if each.starts == pytest.approx(0.5))
    assert hedge.delay_s == pytest.approx(soon_s, rel=0.06)  # the end of the bucket
    assert hedge.saved_s == pytest.approx(late_s - soon_s - other_s, rel=0.1)  # within a bucket
    assert hedge.usd == pytest.approx(PROMPT_USD)


def test_a_racer_whose_cache_has_the_prompt_costs_what_it_reads_from_there() -> None:
    price = Price(PRICE.input_usd, PRICE.output_usd, cached_input_usd=PRICE.input_usd / 10)
    prices = dict.fromkeys("abc", price)
    everywhere = terms(prices=prices, cached={"a": PROMPT_TOKENS, "b": PROMPT_TOKENS})
    assert offered(asked=everywhere)[0].usd == pytest.approx(PROMPT_USD / 10)
    half = terms(prices=prices, cached={"a": PROMPT_TOKENS, "b": PROMPT_TOKENS // 2})
    assert offered(asked=half)[0].usd == pytest.approx(PROMPT_USD * 0.55)


def test_a_racer_without_the_cache_of_a_conversation_costs_all_of_its_prompt_and_what_keeping_it_costs() -> None:
    price = Price(PRICE.input_usd, PRICE.output_usd, cached_input_usd=PRICE.input_usd / 10)
    elsewhere = {"a": PROMPT_TOKENS}
    assert offered(asked=terms(prices=dict.fromkeys("ab", price), cached=elsewhere))[0].usd == pytest.approx(PROMPT_USD)
    written = msgspec.structs.replace(price, cache_write_usd=1.25 * PRICE.input_usd)
    kept = offered(asked=terms(prices=dict.fromkeys("ab", written), cached=elsewhere))
    assert kept[0].usd == pytest.approx(1.25 * PROMPT_USD)


def test_a_launch_is_worth_what_it_saves_less_what_it_costs_and_waits_if_that_is_worth_more() -> None:
    at_once, hedge = Offer("b", 0.0, 1.0, 0.7, 0.001), Offer("b", 0.3, 0.5, 1.2, 0.001)
    # Worth 0.7 v - 0.001 and 0.6 v - 0.0005: the hedge from v = 0.00083 on, the race from v = 0.005 on.
    assert best([at_once, hedge], 0.0008, 1.0) is None
    assert best([at_once, hedge], 0.0009, 1.0) is hedge
    assert best([at_once, hedge], 0.0049, 1.0) is hedge
    assert best([at_once, hedge], 0.0051, 1.0) is at_once


def test_who_costs_more_than_it_should_save_is_not_launched() -> None:
    made = planned(1e-9)
    assert extra(made) == []
    assert made.reasons == (NOT_WORTH_IT,)
    assert made.offer is None
    assert [each.role for each in made.launches[1:]] == [Role.FAILOVER]  # who hangs is rescued all the same


def test_a_small_value_buys_a_hedge_and_a_large_one_a_race() -> None:
    [(_, role, delay_s)] = extra(planned(PROMPT_USD))
    assert (role, delay_s > 0) == (Role.HEDGE, True)
    made = planned(1.0)
    assert extra(made) == [("b", Role.RACE, 0.0)]
    assert made.launches[1].why is Why.VALUE


@pytest.mark.parametrize("seed", range(20))
def test_without_a_value_or_without_a_price_all_is_planned_by_the_budget(seed: int) -> None:
    for budget in (0.0, 0.1, 0.5, 1.0):
        before = planned(None, seed=seed, budget=budget)
        assert planned(0.0, seed=seed, budget=budget) == before
        unpriced = terms(prices={})
        assert planned(0.02, unpriced, seed=seed, budget=budget) == planned(None, unpriced, seed=seed, budget=budget)


@pytest.mark.parametrize("mode", [Mode.SINGLE, Mode.HEDGE, Mode.RACE])
def test_a_mode_that_is_told_what_to_do_does_it(mode: Mode) -> None:
    assert planned(1e-9, mode=mode) == planned(None, mode=mode)


def test_more_value_never_buys_less() -> None:
    random = Random(5)
    for _ in range(60):
        names = "abcd"
        made = [
            candidate(
                name,
                {random.uniform(0.1, 8.0): random.random() for _ in range(5)},
                random.uniform(0.3, 0.5),
                after_s=random.random(),
                raced_after_s=random.random(),
            )
            for name in names
        ]
        alike = dict.fromkeys(names, PRICE)
        own = {name: Price(random.uniform(1e-7, 1e-5), random.uniform(1e-6, 3e-5)) for name in names}
        holds, bills = random.random() < 0.3, frozenset(name for name in names if random.random() < 0.2)
        for prices in (alike, own):
            found = offered(line_up(made), terms(prices=prices, holds=holds, bills_losers=bills))
            saved_s, usd, starts = 0.0, -1.0, 0.0
            for value in (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 1.0, 100.0):
                chosen = best(found, value, 1.0)
                now_s = 0.0 if chosen is None else chosen.starts * chosen.saved_s
                now_usd = -1.0 if chosen is None else chosen.starts * chosen.usd
                share = 0.0 if chosen is None else chosen.starts
                assert now_s >= saved_s - 1e-12
                assert now_usd >= usd - 1e-12
                if prices is alike and not bills and not holds:
                    assert share >= starts - 1e-12
                saved_s, usd, starts = now_s, now_usd, share


def test_with_a_budget_for_some_calls_only_those_that_need_it_most_are_bought() -> None:
    at_once, hedge = Offer("b", 0.0, 1.0, 0.7, 0.001), Offer("b", 0.3, 0.5, 1.2, 0.001)
    assert best([at_once, hedge], 1000.0, 1.0) is at_once
    assert best([at_once, hedge], 1000.0, 0.5) is hedge  # half of the calls gain 1.2 s, not 0.7
    assert extra(planned(1000.0, budget=0.0)) == []


def test_the_attempts_that_start_are_those_the_budget_and_the_day_have_dollars_for() -> None:
    for race in ({"budget": 0.1}, {"budget": 0.5}, {"budget": 1.0, "usd_per_day": 0.01}):
        replica = VirtualReplica(("a", "b"))
        replica.warm_up(a=0.3, b=0.35)
        settings = RaceSettings.model_validate({"value_usd_per_s": 1000.0, **race})
        started, usd = 0, 0.0
        for _ in range(200):
            made = replica.plan(prices={"a": PRICE, "b": PRICE}, value_usd_per_s=1000.0, holds=False, **race)  # type: ignore[arg-type] # passed on by name
            for launch in made.launches:
                cost_usd = made.cost_usd.get(launch.deployment)
                if launch.role not in {Role.RACE, Role.HEDGE}:
                    continue
                if replica.steering.draw_extra(MODEL, launch, settings, cost_usd=cost_usd) is None:
                    started, usd = started + 1, usd + (cost_usd or 0.0)
        assert 0 < started <= 20 + 200 * race["budget"]
        assert usd <= race.get("usd_per_day", 1.0)


def test_a_long_prompt_is_only_hedged() -> None:
    assert all(each.starts <= 0.5 for each in offered(is_long=True))
    assert not any(each.delay_s == 0 for each in offered(is_long=True))


def test_prompts_are_paid_for_so_a_short_one_is_raced_where_a_long_one_waits() -> None:
    value = 4 * PROMPT_USD
    short = msgspec.structs.replace(terms(), prompt_tokens=100)
    long = msgspec.structs.replace(terms(), prompt_tokens=15_000)
    assert [role for _, role, _ in extra(planned(value, short))] == [Role.RACE]
    assert [role for _, role, _ in extra(planned(value, long))] != [Role.RACE]


def test_what_a_cut_attempt_costs_is_counted() -> None:
    [usual] = [each.usd for each in offered() if not each.delay_s]
    answer_usd = 100 * PRICE.output_usd
    [loser] = [each.usd for each in offered(None, terms(bills_losers=frozenset({"b"}))) if not each.delay_s]
    [both] = [each.usd for each in offered(None, terms(bills_losers=frozenset({"a", "b"}))) if not each.delay_s]
    assert loser == pytest.approx(usual + 0.5 * answer_usd)  # in the half of the calls that it loses
    assert both == pytest.approx(usual + answer_usd)
    judged = terms(answer_kind=AnswerKind.JSON)
    [whole] = [each.usd for each in offered(None, judged, win_on=WinOn.VALID) if not each.delay_s]
    assert whole == pytest.approx(usual + answer_usd)
    dear = terms(prices={"a": PRICE, "b": Price(PRICE.input_usd, 3 * PRICE.output_usd)})
    [winner] = [each.usd for each in offered(None, dear) if not each.delay_s]
    assert winner == pytest.approx(usual + 0.5 * 2 * answer_usd)


def test_one_without_a_price_costs_as_much_as_the_most_expensive() -> None:
    [usual] = [each.usd for each in offered(None, terms(prices={"a": PRICE})) if not each.delay_s]
    assert usual == pytest.approx(PROMPT_USD)


def test_an_offer_is_kept_for_answers_of_the_same_length_only() -> None:
    lineup, prices = line_up((PRIMARY, OTHER)), {"a": PRICE, "b": Price(PRICE.input_usd, 3 * PRICE.output_usd)}
    short, long, again = (
        offered(lineup, terms(prices=prices, answer_tokens=tokens))[0].usd for tokens in (100.0, 1000.0, 100.0)
    )
    assert short == again < long


def test_of_whole_answers_the_seconds_of_the_whole_count() -> None:
    fast = candidate("b", {0.5: 1.0}, 1.0, after_s=1.0, decode_tps=100.0)
    slow = candidate("a", {0.25: 0.5, 2.0: 0.5}, 0.2, after_s=4.0, decode_tps=25.0)
    lineup = line_up((slow, fast))
    [held] = [each for each in offered(lineup, terms(holds=True)) if not each.delay_s]
    # The whole answers take 4.25 or 6 s, and 1.5 s.
    assert held.saved_s == pytest.approx(0.5 * 4.25 + 0.5 * 6 - 1.5, rel=0.06)
    [slower] = [
        each
        for each in offered(line_up((msgspec.structs.replace(slow, after_s=0.0), fast)), terms(holds=True))
        if not each.delay_s
    ]
    assert slower.saved_s == pytest.approx(0.5 * (2.0 - 1.5), rel=0.2)


def test_a_held_loser_is_paid_for_as_long_as_it_was_held_and_not_for_all_that_it_could_have_been() -> None:
    soon_s, other_s = (mid_s(bucket(seconds)) for seconds in (0.25, 0.5))
    answer_usd = 100 * PRICE.output_usd
    fast = candidate("b", {0.5: 1.0}, 1.0, after_s=1.0, decode_tps=100.0)
    slow = candidate("a", {0.25: 0.5, 2.0: 0.5}, 0.2, after_s=4.0, decode_tps=25.0)
    [primary] = [each for each in offered(line_up((slow, fast)), terms(holds=True)) if not each.delay_s]
    # In half of the calls the primary begins, and is cut when the other one does: after 0.25 s of its four.
    assert primary.usd == pytest.approx(PROMPT_USD + 0.5 * (other_s - soon_s) / 4.0 * answer_usd)

    often_soon = candidate("a", {0.5: 0.5, 8.0: 0.5}, 0.1, after_s=1.0, decode_tps=100.0)
    slower = candidate("b", {0.125: 1.0}, 1.0, after_s=2.0, decode_tps=50.0)
    [racer] = [each for each in offered(line_up((often_soon, slower)), terms(holds=True)) if not each.delay_s]
    # It always begins. In half of the calls it is cut after 0.375 s of its two; in the others its answer ends first.
    paid = 0.5 * 0.375 / 2.0
    assert racer.usd == pytest.approx(PROMPT_USD + paid * answer_usd, abs=0.02 * answer_usd)


def test_what_a_faster_answer_saves_is_as_sure_as_its_speed_whatever_audits_say_of_first_tokens() -> None:
    fast = candidate("b", {0.25: 1.0}, 1.0, after_s=1.0, decode_tps=100.0)
    slow = candidate("a", {0.25: 1.0}, 0.2, after_s=4.0, decode_tps=25.0)
    for kept in (1.0, 0.25):
        [held] = [each for each in offered(line_up((slow, fast)), terms(holds=True), kept=kept) if not each.delay_s]
        assert held.saved_s == pytest.approx(3.0, rel=0.1)


def test_a_canary_is_raced_where_that_is_worth_it() -> None:
    replica = VirtualReplica(("a", "canary"))
    replica.warm_up(a=0.3, canary=0.5)
    prices = {"a": PRICE, "canary": PRICE}
    made = replica.plan(prices=prices, value_usd_per_s=1000.0, holds=False, canaries={"canary": 1.0})
    assert made.launches[0].deployment == "canary"
    assert extra(made) == [("a", Role.RACE, 0.0)]
    assert made.launches[1].why is Why.VALUE


def audited(
    seen_ms: float,
    *,
    predicted_ms: float = 1500.0,
    outcome: Outcome = Outcome.SUPERSEDED,
    thought_from_ms: float | None = None,
) -> AttemptRecord:
    """A primary that was overtaken at 500 ms; what could win the call came at ``seen_ms``."""
    return AttemptRecord(
        id="1",
        call_id="call",
        number=1,
        started_at=EPOCH,
        role=Role.PRIMARY,
        provider="a",
        deployment="a",
        launch_offset_ms=0.0,
        outcome=outcome,
        audited=True,
        ttft_ms=seen_ms if thought_from_ms is None else thought_from_ms,
        token_ms=seen_ms,
        predicted_ms=predicted_ms,
        overtaken_at_ms=500.0,
    )


def test_audits_say_how_many_of_the_seconds_are_saved() -> None:
    kept = ConfirmedShare()
    assert kept.share == KEPT_PRIOR
    for _ in range(30):
        kept.learn(audited(750.0))  # 250 ms of the 1,000 that were predicted
    assert kept.share == pytest.approx(0.5)  # halfway between the prior and what was seen
    for _ in range(3000):
        kept.learn(audited(750.0))
    assert kept.share == pytest.approx(0.25, abs=0.051)  # in steps
    for _ in range(3000):
        kept.learn(audited(3500.0))
    assert kept.share == 1.0  # at most as if attempts were independent


def test_where_thinking_does_not_win_audits_say_when_the_answer_began() -> None:
    kept = ConfirmedShare()
    for _ in range(3000):
        kept.learn(audited(1500.0, thought_from_ms=100.0))
    assert kept.share == 1.0


def test_where_too_little_was_known_for_a_prediction_an_audit_says_nothing_of_it() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(3, a=0.5, b=0.5)
    primary = replica.plan().primary
    assert primary is not None
    kept = ConfirmedShare()
    for _ in range(3):
        kept.learn(audited(900.0, predicted_ms=round(1000 * primary.expected_s(0.5), 3)))
    assert kept.share == KEPT_PRIOR


def test_a_primary_that_fails_after_it_was_overtaken_would_have_saved_nothing() -> None:
    kept = ConfirmedShare()
    for _ in range(3000):
        kept.learn(audited(900.0, outcome=Outcome.FAILED))
    assert kept.share == 0.05


def test_what_audits_say_decides_how_much_is_bought() -> None:
    whole, half = (next(each for each in offered(kept=kept) if not each.delay_s) for kept in (1.0, 0.5))
    assert half.saved_s == pytest.approx(whole.saved_s / 2)
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.3, b=0.35)
    asked = {"prices": {"a": PRICE, "b": PRICE}, "value_usd_per_s": 1000.0, "holds": False}
    before = replica.plan(**asked)  # type: ignore[arg-type] # passed on by name
    for _ in range(300):
        replica.steering.attempt_ended(MODEL, SHORT, audited(500.0))
    after = replica.plan(**asked)  # type: ignore[arg-type]
    assert before.offer is not None
    assert after.offer is not None
    assert after.offer.saved_s < before.offer.saved_s


def test_the_reason_is_explained_with_its_figures() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.3, b=0.35)
    made = replica.plan(prices={"a": PRICE, "b": PRICE}, value_usd_per_s=5.0, holds=False, explain=True)
    assert made.offer is not None
    assert made.explanation is not None
    assert made.explanation.value_usd_per_s == 5.0
    [why] = [each.why for each in made.explanation.launches if each.role in {Role.RACE, Role.HEDGE}]
    offer = made.offer
    assert f"expected {offer.saved_s:.2g} s saved x 5 = ${5 * offer.saved_s:.2g} > ${offer.usd:.2g}" in why
