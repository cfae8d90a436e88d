import itertools
from functools import cache
from statistics import fmean

import pytest
from msgspec.structs import replace

from benchmarks.steering import contest, report
from benchmarks.steering.baselines import BASELINES
from benchmarks.steering.race import Result
from benchmarks.steering.simulation import Contender, Setting, be_quiet, setting, simulate, warm
from benchmarks.steering.targets import targets
from benchmarks.steering.worlds import WORLDS
from gateway.core.calls import Objective
from gateway.steering import BURST_TOKENS
from tests.support.searched import some

CALLS = 500
OURS = [contest.RACES, contest.ECONOMY, contest.COMPLETION, contest.COMPLETION_RACES]


def named(each: Contender | str) -> str:
    return each if isinstance(each, str) else each.label


@pytest.fixture(autouse=True)
def _quiet() -> None:
    be_quiet()


@cache
def where(world: str, calls: int = CALLS) -> Setting:
    return setting(WORLDS[world], calls, 7)


@cache
def results_in(world: str, contender: Contender, calls: int = CALLS) -> list[Result]:
    """Return the results of a run that several tests look at: it is the same each time."""
    return simulate(where(world, calls), contender)


def mean_ttft_s(results: list[Result]) -> float:
    return fmean(result.ttft_s for result in results if result.ttft_s is not None)


def mean_total_s(results: list[Result]) -> float:
    return fmean(result.total_s for result in results if result.total_s is not None)


def mean_wait_s(results: list[Result]) -> float:
    return fmean(result.waited_s for result in results if result.waited_s is not None)


def test_a_seed_gives_the_same_run_twice() -> None:
    first, again = results_in("herd", contest.RACES), simulate(setting(WORLDS["herd"], CALLS, 7), contest.RACES)
    other = simulate(setting(WORLDS["herd"], CALLS, 8), contest.RACES)
    assert first == again
    assert first != other


def test_every_call_is_answered_for_once() -> None:
    for contender in some(contest.contenders(WORLDS["calm"]), 2, 2):
        assert [result.index for result in results_in("calm", contender)] == list(range(CALLS))


@pytest.mark.parametrize("name", some(BASELINES, 1, 2))
def test_nobody_beats_the_oracle_in_its_own_objective(name: str) -> None:
    first, whole = results_in("calm", contest.ORACLE), results_in("calm", contest.COMPLETION_ORACLE)
    assert mean_ttft_s(first) <= mean_ttft_s(results_in("calm", Contender(name, Objective.FIRST_TOKEN)))
    assert mean_total_s(whole) <= mean_total_s(results_in("calm", Contender(name, Objective.COMPLETION)))


@pytest.mark.parametrize("contender", some(OURS, 1, 1), ids=named)
def test_nor_does_the_gateway(contender: Contender) -> None:
    own = results_in("calm", contender)
    assert mean_ttft_s(results_in("calm", contest.ORACLE)) <= mean_ttft_s(own)
    assert mean_total_s(results_in("calm", contest.COMPLETION_ORACLE)) <= mean_total_s(own)


def test_racing_everybody_where_nothing_queues_is_as_fast_as_the_oracle_call_by_call() -> None:
    providers = tuple(replace(each, error_share=0.0) for each in WORLDS["calm"].providers)  # nobody is replaced
    calm = setting(replace(WORLDS["calm"], providers=providers), CALLS, 7)
    everybody = simulate(calm, Contender("race all", Objective.FIRST_TOKEN))
    oracle = simulate(calm, contest.ORACLE)
    for own, best in zip(everybody, oracle, strict=True):
        if own.extra == len(calm.world.providers) - 1:  # nobody was cooling down
            assert own.ttft_s == pytest.approx(best.ttft_s)


@pytest.mark.parametrize(
    ("world", "contender"), some(itertools.product(["calm", "outage", "herd"], OURS), 1, 4), ids=named
)
def test_the_budget_is_kept(world: str, contender: Contender) -> None:
    extra = sum(result.extra for result in results_in(world, contender))
    assert contender.budget is not None
    assert extra <= contender.budget * CALLS + 2 * BURST_TOKENS * WORLDS[world].replicas


def test_no_call_fails_while_somebody_is_well() -> None:
    assert any(any(faults) for faults in where("outage", 3 * CALLS).weather.fault)
    for contender in some(OURS, 1, 1):
        assert all(result.total_s is not None for result in results_in("outage", contender, 3 * CALLS))


@pytest.mark.parametrize("world", some(["limited", "told", "refilled"], 1, 1))
def test_racing_fails_no_call_where_all_are_limited_once_a_minute_has_shown_how_much(world: str) -> None:
    """Together they admit a quarter more than the calls need: one attempt a call fails none."""
    results = results_in(world, contest.RACES, 1200)
    failed = [result.index for result in results if result.at_s >= 60.0 and result.ttft_s is None]
    assert len(failed) <= 1
    assert fmean(result.launched for result in results) > 1.05  # and it still hedges and races


def test_single_fails_no_call_and_asks_hardly_more_where_half_of_the_deployments_hang() -> None:
    results = results_in("halfhang", contest.SINGLE, 1600)
    assert any(any(faults) for faults in where("halfhang", 1600).weather.fault)
    assert all(result.ttft_s is not None and result.ttft_s < 15.0 for result in results)
    assert fmean(result.extra for result in results) < 0.1


@pytest.mark.parametrize("seed", [101, 102])
def test_single_fails_no_call_of_a_model_of_which_half_thinks_unseen_and_asks_hardly_more(seed: int) -> None:
    unseen = setting(WORLDS["unseen"], 600, seed)
    own, best = warm(unseen, simulate(unseen, contest.SINGLE)), warm(unseen, simulate(unseen, contest.ORACLE))
    assert all(result.ttft_s is not None for result in own)
    assert fmean(result.extra for result in own) < 0.05
    assert mean_ttft_s(own) < 1.9 * mean_ttft_s(best)


def test_some_calls_race_on_where_half_of_the_deployments_are_unlimited() -> None:
    results = results_in("ratelimit", contest.RACES, 1600)
    assert fmean(result.extra for result in results if result.at_s >= 120.0) > 0.25


def test_a_newcomer_is_found_and_used() -> None:
    winners = [result.deployment for result in results_in("newcomer", contest.RACES, 3 * CALLS)]
    assert "ginkgo" not in winners[:CALLS]
    assert winners[-CALLS:].count("ginkgo") > CALLS / 2


def test_the_report_shows_every_world_that_was_run() -> None:
    ticks: list[str] = []
    standings = contest.run(["calm", "prices"], 50, [7], 1, ticks.append)
    reached = targets({standing.world: standing.figures for standing in standings})
    assert ticks == ["calm", "prices"]
    assert {target.world for target in reached} == {"calm", "prices"}
    told = report.told(standings, reached, calls=50, seeds=[7])
    assert [grid.title.split(" ")[0] for grid in told.grids] == ["calm", "prices", "first", "targets:"]


def test_knowing_kinds_of_calls_is_about_as_good_as_being_told_each_length() -> None:
    told, by_kind, by_model = (
        mean_total_s(warm(where("kinds", 2400), results_in("kinds", contender, 2400)))
        for contender in (contest.TOLD_LENGTHS, contest.COMPLETION, contest.ONE_LENGTH)
    )
    assert by_kind < 1.05 * told
    assert by_model > 1.2 * told


@pytest.mark.parametrize(
    "contender", some([contest.RACES, contest.ECONOMY, contest.READING, contest.READING_RACES], 1, 1), ids=named
)
def test_a_quick_starter_that_stalls_is_avoided(contender: Contender) -> None:
    peak, own = (warm(where("stalls", 1200), results_in("stalls", each, 1200)) for each in (contest.PEAK, contender))
    assert sum(each.stall_s > 0 for each in own) <= 0.02 * len(own)
    assert mean_total_s(own) < mean_total_s(peak)


@pytest.mark.parametrize("contender", some([contest.ECONOMY, contest.RACES], 0, 1), ids=named)
def test_a_fast_starter_whose_answers_are_of_no_use_hardly_answers_any_more(contender: Contender) -> None:
    providers = WORLDS["flawed"].providers
    fastest = providers[0]
    assert fastest.median_s == min(each.median_s for each in providers)
    results = results_in("flawed", contender, 3000)
    two = results_in("flawed", Contender("race two", Objective.FIRST_TOKEN), 3000)
    before = sum(each.is_flawed for each in two[1500:])
    assert sum(each.is_flawed for each in results[1500:]) < before / 5
    assert sum(each.deployment == fastest.name for each in results[1500:]) > 0  # it is tried again now and then


def test_an_early_slow_decoder_seldom_answers_readers_who_wait_no_longer_than_with_holds() -> None:
    calm = WORLDS["calm"]
    slow, *others = calm.providers
    early = replace(slow, median_s=0.15, tok_s=12.0)
    early_slow = setting(replace(calm, providers=(early, *others)), 1200, 7)
    at_once, held = (
        warm(early_slow, simulate(early_slow, each)) for each in (contest.READING_RACES, contest.READING_RACES_HELD)
    )
    assert sum(each.deployment == early.name for each in at_once) < 0.1 * len(at_once)
    assert mean_wait_s(at_once) < 1.05 * mean_wait_s(held)
