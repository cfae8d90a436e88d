"""The order of the candidates, and how long it is kept."""

from random import Random
from typing import Any, cast

import msgspec
import pytest

from gateway.core.calls import Mode, Objective
from gateway.core.prompt_classes import MeasuredApi, answer_class
from gateway.settings import RaceSettings
from gateway.steering import Condition, Health, Terms, event
from gateway.steering.candidates import Candidate, Lineup, Lineups, candidates, line_up
from gateway.steering.constants import LINEUPS_KEPT
from gateway.steering.counts import read_evidence
from gateway.steering.estimates import Standings, standings
from gateway.steering.planner import Means, plan
from gateway.steering.prediction import size_of
from providers import Price

ANSWERS = MeasuredApi.ANSWERS

NAMES = ("a", "b", "c", "d")
KIND = ("llama", answer_class(0), 0)
RACE = RaceSettings()
TERMS = Terms(Objective.FIRST_TOKEN, 100)
PRICES = tuple(
    {name: Price(input_usd=usd, output_usd=3 * usd) for name, usd in zip(NAMES, usds, strict=True)}
    for usds in ((1e-6, 3e-6, 2e-6, 1e-6), (4e-6, 1e-6, 2e-6, 1e-6))
)


def answering(**ttft_s: float) -> Standings:
    counts = {event(name, ANSWERS, seconds): 40.0 for name, seconds in ttft_s.items()}
    return standings(read_evidence(counts | {f"{name}|n": 40.0 for name in ttft_s}))


STANDINGS = answering(a=0.3, b=0.35, c=0.5, d=2.0)


def conditions(healths: dict[str, Health], now_s: float = 0.0) -> dict[str, Condition]:
    return {name: health.condition(now_s) for name, health in healths.items()}


def ranked(lineup: Lineup) -> list[str]:
    return [each.deployment for each in lineup.ranked]


def told(each: Candidate) -> tuple[object, ...]:
    return each.deployment, each.score_s, each.tier, each.weight, each.canary, each.condition.in_flight


@pytest.fixture
def healths() -> dict[str, Health]:
    return {name: Health() for name in NAMES}


def test_the_order_is_kept_while_attempts_come_and_go_and_knows_what_is_in_flight(healths: dict[str, Health]) -> None:
    lineups = Lineups()
    before = lineups.of(KIND, conditions(healths), STANDINGS, (RACE, TERMS))
    healths["b"].launched(0.0)
    healths["b"].launched(0.0)
    healths["b"].ended()
    after = lineups.of(KIND, conditions(healths), STANDINGS, (RACE, TERMS))
    assert after is before
    assert {each.deployment: each.condition.in_flight for each in after.ranked} == {"a": 0, "b": 1, "c": 0, "d": 0}


# What an order depends on: another value of each, and an objective under which it makes another order.
CHANGED: dict[str, tuple[object, Objective]] = {
    "objective": (Objective.COMPLETION, Objective.FIRST_TOKEN),
    "max_tokens": (1, Objective.COMPLETION),
    "answer_tokens": (5000.0, Objective.COMPLETION),
    "prices": (PRICES[0], Objective.COST),
    "limits": ({"a": 0}, Objective.FIRST_TOKEN),
    "weights": ({"a": 0.5}, Objective.FIRST_TOKEN),
    "canaries": ({"a": 0.5}, Objective.FIRST_TOKEN),
    "flawed": ({"a": "cut short"}, Objective.FIRST_TOKEN),
    "second": ({"a": "adapted"}, Objective.FIRST_TOKEN),
    "holds": (True, Objective.READING),
}
BY_SIZE = {"prompt_tokens"}  # an order is kept for each size of prompts


class Watched:
    """Terms that note which of their fields are read."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.read = set[str]()

    def __getattr__(self, name: str) -> object:
        self.read.add(name)
        return getattr(self.terms, name)


@pytest.mark.parametrize("name", CHANGED)
def test_an_order_is_kept_for_no_call_for_which_it_would_be_another(healths: dict[str, Health], name: str) -> None:
    value, objective = CHANGED[name]
    race, before = RaceSettings(mode=Mode.RACE), msgspec.structs.replace(TERMS, objective=objective)
    changes: dict[str, Any] = {name: value}
    terms, lineups = msgspec.structs.replace(before, **changes), Lineups()

    def made(lineups: Lineups, terms: Terms) -> list[object]:
        lineup = lineups.of(KIND, conditions(healths), STANDINGS, (race, terms))
        return [*((each.score_s, each.raced_after_s, told(each)) for each in lineup.candidates), *ranked(lineup)]

    assert made(lineups, before) != made(Lineups(), terms), f"candidates() is not choosy by Terms.{name}"
    assert made(lineups, terms) == made(Lineups(), terms), f"compare Terms.{name} in _Known.fits of candidates.py"


@pytest.mark.parametrize("objective", [each for each in Objective if each is not Objective.AUTO])
def test_an_order_depends_on_nothing_else(healths: dict[str, Health], objective: Objective) -> None:
    watched = Watched(msgspec.structs.replace(TERMS, objective=objective, prices=PRICES[0]))
    race = RaceSettings(mode=Mode.RACE, ttft_ms=400, min_tok_s=1)
    candidates(conditions(healths), STANDINGS, race, cast("Terms", watched))
    assert watched.read <= {*CHANGED, *BY_SIZE}, "add to CHANGED another value of what is read, as above"


def test_a_thousand_calls_of_one_instant_share_an_order_and_are_spread_over_five_equal_deployments() -> None:
    five = {name: Health() for name in "abcde"}
    table, lineups, random = answering(**dict.fromkeys(five, 0.3)), Lineups(), Random(1)
    alone = RaceSettings(mode=Mode.SINGLE)
    first = lineups.of(KIND, conditions(five), table, (alone, TERMS))
    for _ in range(1000):
        lineup = lineups.of(KIND, conditions(five), table, (alone, TERMS))
        assert lineup is first
        five[plan(lineup, alone, TERMS, Means(0.0), random=random).launches[0].deployment].launched(0.0)

    assert all(health.in_flight == pytest.approx(200, abs=5) for health in five.values())


def test_whoever_cools_down_is_out_at_once_and_back_at_once(healths: dict[str, Health]) -> None:
    lineups = Lineups()
    assert ranked(lineups.of(KIND, conditions(healths), STANDINGS, (RACE, TERMS))) == ["a", "b", "c", "d"]
    healths["a"].cool(5.0, 0.0)
    assert ranked(lineups.of(KIND, conditions(healths), STANDINGS, (RACE, TERMS))) == ["b", "c", "d"]
    assert ranked(lineups.of(KIND, conditions(healths, 5.0), STANDINGS, (RACE, TERMS))) == ["a", "b", "c", "d"]


def test_new_standings_make_a_new_order(healths: dict[str, Health]) -> None:
    lineups = Lineups()
    lineups.of(KIND, conditions(healths), STANDINGS, (RACE, TERMS))
    swapped = answering(a=0.35, b=0.3, c=0.5, d=2.0)
    assert ranked(lineups.of(KIND, conditions(healths), swapped, (RACE, TERMS))) == ["b", "a", "c", "d"]


def test_a_call_that_may_be_answered_by_fewer_has_an_order_of_its_own(healths: dict[str, Health]) -> None:
    lineups = Lineups()
    lineups.of(KIND, conditions(healths), STANDINGS, (RACE, TERMS))
    some = {name: healths[name] for name in ("c", "a")}
    assert ranked(lineups.of(KIND, conditions(some), STANDINGS, (RACE, TERMS))) == ["a", "c"]


def test_who_may_have_no_more_in_flight_is_last_from_that_instant(healths: dict[str, Health]) -> None:
    lineups, terms = Lineups(), Terms(Objective.FIRST_TOKEN, 100, limits={"a": 1})
    assert ranked(lineups.of(KIND, conditions(healths), STANDINGS, (RACE, terms)))[0] == "a"
    healths["a"].launched(0.0)
    assert ranked(lineups.of(KIND, conditions(healths), STANDINGS, (RACE, terms)))[-1] == "a"


def test_a_kept_order_is_the_one_that_would_be_made_anew() -> None:
    random, lineups = Random(3), Lineups()
    healths = {name: Health() for name in NAMES}
    tables = [STANDINGS, answering(a=0.6, b=0.35, c=0.5, d=0.4)]
    table = tables[0]
    for step in range(3000):
        now_s, health = step * 0.1, healths[random.choice(NAMES)]
        match random.randrange(12):
            case 0:
                health.rate_limited(random.choice([None, 2.0]), now_s)
            case 1:
                health.strike(now_s)
            case 2:
                health.limit_left(random.random(), now_s)
            case 3:
                table = random.choice(tables)
            case 4 | 5 | 6:
                health.launched(0.0)
            case 7 | 8:
                health.ended()
            case _:
                health.answered(
                    answer_class(0), health.in_flight, random.lognormvariate(health.in_flight / 4, 0.3), now_s
                )
                health.delivered(0.3, 1.0, now_s)
        terms = Terms(
            random.choice([Objective.FIRST_TOKEN, Objective.COMPLETION, Objective.COST]),
            random.choice([64, 60]),  # both count as 64
            random.choice([None, 50]),
            prices=random.choice((*PRICES, {"b": PRICES[0]["b"], "c": PRICES[0]["c"]})),
            weights=random.choice([None, {"a": 2.0}]),
            canaries=random.choice([None, {"b": 0.1}, {"b": 0.2, "d": 0.1}]),
        )
        race = RaceSettings(min_tok_s=random.choice([None, 70.0]))
        known = conditions(healths, now_s)
        kept = lineups.of(KIND, known, table, (race, terms))
        everyone = candidates(conditions(healths, now_s), table, race, msgspec.structs.replace(terms, prompt_tokens=64))
        again = line_up(everyone, [each for each in everyone if each.canary])
        for one, other in (
            (kept.ranked, again.ranked),
            (kept.near, again.near),
            (kept.tripped, again.tripped),
            (kept.reserve, again.reserve),
            (kept.canaries, again.canaries),
        ):
            assert [told(each) for each in one] == [told(each) for each in other]
        assert kept.weights_up_to == again.weights_up_to
        for primary, late in ((again.ranked[0], False), (again.ranked[-1], True)) if again.ranked else ():
            assert [(told(each.candidate), each.gain_s) for each in kept.racers(primary, late=late)] == [
                (told(each.candidate), each.gain_s) for each in again.racers(primary, late=late)
            ]
        assert [told(each) for each in kept.rivals] == [told(each) for each in again.rivals]


def test_what_others_add_is_computed_again_only_for_those_that_changed(healths: dict[str, Health]) -> None:
    lineups = Lineups()
    before = lineups.of(KIND, conditions(healths), STANDINGS, (RACE, TERMS))
    gains = {each.candidate.deployment: each for each in before.racers(before.ranked[0], late=False)}
    healths["c"].limit_left(0.5, 0.0)
    after = lineups.of(KIND, conditions(healths), STANDINGS, (RACE, TERMS))
    assert after is not before
    again = {each.candidate.deployment: each for each in after.racers(after.ranked[0], late=False)}
    assert {name for name, each in again.items() if each is not gains[name]} == {"c"}


def test_the_order_by_cost_is_kept_for_calls_of_about_the_same_size(healths: dict[str, Health]) -> None:
    lineups = Lineups()
    known, kind = conditions(healths), (*KIND[:2], size_of(1000))
    of_cost = [Terms(Objective.COST, tokens, prices=PRICES[0]) for tokens in (1000, 1010)]
    before, after = (lineups.of(kind, known, STANDINGS, (RACE, terms)) for terms in of_cost)
    assert after is before
    dearer = Terms(Objective.COST, 1000, prices=PRICES[1])
    assert lineups.of(kind, known, STANDINGS, (RACE, dearer)) is not before


def test_where_only_the_first_token_counts_answers_of_all_lengths_share_an_order(healths: dict[str, Health]) -> None:
    lineups, known = Lineups(), conditions(healths)

    def of(objective: Objective, tokens: float, **race: float) -> Lineup:
        settings = RaceSettings.model_validate(race)
        return lineups.of(KIND, known, STANDINGS, (settings, Terms(objective, 100, answer_tokens=tokens)))

    assert of(Objective.FIRST_TOKEN, 20.0) is of(Objective.FIRST_TOKEN, 2000.0)
    assert of(Objective.READING, 20.0) is not of(Objective.READING, 2000.0)
    assert of(Objective.FIRST_TOKEN, 20.0, min_tok_s=30.0) is not of(Objective.FIRST_TOKEN, 2000.0, min_tok_s=30.0)


def test_orders_of_calls_that_different_deployments_can_answer_are_kept_beside_each_other(
    healths: dict[str, Health],
) -> None:
    lineups = Lineups()
    known = conditions(healths)
    some = {name: known[name] for name in ("c", "a")}
    before = [lineups.of(KIND, each, STANDINGS, (RACE, TERMS)) for each in (known, some)]
    assert [lineups.of(KIND, each, STANDINGS, (RACE, TERMS)) for each in (known, some)] == before
    assert all(
        lineups.of(KIND, each, STANDINGS, (RACE, TERMS)) is old for each, old in zip((known, some), before, strict=True)
    )


def test_no_more_orders_are_kept_than_there_is_room_for(healths: dict[str, Health]) -> None:
    lineups = Lineups()
    for number in range(2 * LINEUPS_KEPT):
        lineups.of((str(number), answer_class(0), 0), conditions(healths), STANDINGS, (RACE, TERMS))
        assert len(lineups._known) <= LINEUPS_KEPT


def test_models_that_nobody_calls_any_more_are_forgotten(healths: dict[str, Health]) -> None:
    lineups = Lineups()
    before = lineups.of(KIND, conditions(healths), STANDINGS, (RACE, TERMS))
    lineups.keep({"llama"})
    assert lineups.of(KIND, conditions(healths), STANDINGS, (RACE, TERMS)) is before
    lineups.keep(set())
    assert lineups.of(KIND, conditions(healths), STANDINGS, (RACE, TERMS)) is not before


def test_racers_are_ranked_beside_the_best_that_can_run(healths: dict[str, Health]) -> None:
    """Beside a deployment of 10 ms nobody adds anything: one that is broken, or gone, must not decide."""
    counts = {event("gone", ANSWERS, 0.01): 400.0, event("a", ANSWERS, 0.3): 400.0}
    for ttft_s, times in ((0.28, 300.0), (6.0, 100.0)):  # often quick, sometimes very slow
        counts[event("b", ANSWERS, ttft_s)] = times
    counts[event("c", ANSWERS, 0.5)] = 400.0
    known = standings(read_evidence(counts | {f"{name}|n": 400.0 for name in ("gone", "a", "b", "c")}))
    three = {name: Health() for name in ("a", "b", "c")}
    lineup = Lineups().of(KIND, conditions(three), known, (RACE, TERMS))
    assert ranked(lineup) == ["a", "c", "b"]
    assert [each.deployment for each in lineup.rivals if each.deployment != "a"] == ["b", "c"]
    broken = three | {"gone": Health()}
    for _ in range(4):
        broken["gone"].strike(0.0)
    lineup = Lineups().of(KIND, conditions(broken), known, (RACE, TERMS))
    assert [each.deployment for each in lineup.rivals if each.deployment != "a"] == ["b", "c"]


def test_a_flood_of_different_deadlines_drops_no_lineup_that_is_used(healths: dict[str, Health]) -> None:
    lineups, usual = Lineups(), conditions(healths)
    kept = lineups.of(KIND, usual, STANDINGS, (RACE, TERMS))
    for number in range(3 * LINEUPS_KEPT):
        lineups.of(KIND, usual, STANDINGS, (RaceSettings(ttft_ms=1000 + number), TERMS))
        if number % 500 == 0:
            assert lineups.of(KIND, usual, STANDINGS, (RACE, TERMS)) is kept
    assert len(lineups._known) + len(lineups._older) <= LINEUPS_KEPT
