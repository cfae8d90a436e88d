"""The estimator by numbers: buckets, Kaplan-Meier, standings."""

from math import inf, isclose, sqrt
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.prompt_classes import Measured, MeasuredApi, answer_class
from gateway.steering import BUCKETS, edge_s, event, event_field
from gateway.steering.counts import Evidence, add_counts, bucket, lognormal_masses, mid_s, read_evidence, read_tallies
from gateway.steering.estimates import standings
from gateway.steering.survival import dense, kaplan_meier

ANSWERS = MeasuredApi.ANSWERS

NOBODY = [0.0] * BUCKETS
histograms = st.dictionaries(st.integers(0, BUCKETS - 1), st.integers(1, 50), max_size=12)


def test_bucket_edges_double_every_eight_buckets_from_ten_milliseconds() -> None:
    assert edge_s(0) == 0.010
    assert edge_s(8) == 0.020
    assert isclose(edge_s(BUCKETS), 163.84)
    assert isclose(mid_s(3), sqrt(edge_s(3) * edge_s(4)))


def test_what_is_beyond_either_end_falls_into_the_last_bucket_there() -> None:
    assert bucket(0.0) == bucket(0.010) == 0
    assert bucket(163.84) == bucket(10_000) == BUCKETS - 1


@pytest.mark.parametrize("index", range(BUCKETS))
def test_an_edge_belongs_to_the_bucket_above_it(index: int) -> None:
    assert bucket(edge_s(index)) == index
    assert bucket(mid_s(index)) == index


def test_the_fixed_prior_sums_to_one_and_has_its_median_where_it_says() -> None:
    masses = lognormal_masses(0.6, 1.0)
    assert isclose(sum(masses), 1.0)
    assert kaplan_meier(masses, NOBODY).quantile_s(0.5) == pytest.approx(0.6, rel=0.01)
    assert kaplan_meier(masses, NOBODY).quantile_s(0.84134) == pytest.approx(0.6 * 2.71828, rel=0.01)


def test_the_fixed_prior_piles_nothing_up_at_its_ends() -> None:
    masses = lognormal_masses(0.6, 1.0)
    assert masses[0] < 2 * masses[1]
    assert masses[-1] < masses[-2]


def test_kaplan_meier_by_hand() -> None:
    # at risk 4: one event (3/4 survive); one cut; at risk 2: one event (3/8 survive); one cut
    events = dense({10: 1, 20: 1})
    curve = kaplan_meier(events, dense({15: 1, 30: 1}))
    assert curve.reached[9] == 0
    assert curve.reached[10] == 0.25
    assert curve.reached[19] == 0.25
    assert curve.reached[20] == curve.reached[-1] == 0.625
    assert curve.quantile_s(0.25) == edge_s(11)
    assert curve.quantile_s(0.5) == pytest.approx(edge_s(20 + 0.25 / 0.375))
    assert curve.quantile_s(0.625) == edge_s(21)
    assert curve.quantile_s(0.63) == inf
    assert curve.mean().at(1.0) == pytest.approx(0.25 * mid_s(10) + 0.375 * mid_s(20) + 0.375 * 30.0)


def test_in_one_bucket_events_come_before_cut_attempts() -> None:
    assert kaplan_meier(dense({5: 1}), dense({5: 1})).reached[5] == 0.5


def test_the_mean_is_restricted_to_thirty_seconds() -> None:
    assert kaplan_meier(dense({BUCKETS - 1: 1}), NOBODY).mean().at(1.0) == 30.0
    assert kaplan_meier(NOBODY, dense({3: 5})).mean().at(1.0) == 30.0


@given(histograms.filter(bool))
def test_without_cut_attempts_kaplan_meier_is_the_empirical_distribution(events: dict[int, int]) -> None:
    curve = kaplan_meier(dense(events), NOBODY)
    total = sum(events.values())
    for index in range(BUCKETS):
        assert curve.reached[index] == pytest.approx(sum(n for i, n in events.items() if i <= index) / total)


@given(histograms, histograms, st.floats(0.01, 0.99), st.floats(0.01, 0.99))
@example({92: 2, 93: 16}, {0: 1, 93: 1}, 0.5, 0.5)  # a mean that rounding would put beyond its cap
def test_a_curve_rises_within_bounds_and_so_do_its_quantiles(
    events: dict[int, int], censored: dict[int, int], one: float, other: float
) -> None:
    curve = kaplan_meier(dense(events), dense(censored))
    assert all(0 <= reached <= 1 for reached in curve.reached)
    assert list(curve.reached) == sorted(curve.reached)
    assert curve.quantile_s(min(one, other)) <= curve.quantile_s(max(one, other))
    assert 0 < curve.mean().at(1.0) <= 30.0


def test_winners_alone_look_a_fifth_too_fast_and_kaplan_meier_does_not() -> None:
    """Two equal providers race; each call's loser is cut at the winner's first token."""
    random = Random(7)
    true_median_s = 0.4
    events: dict[int, float] = {}
    censored: dict[int, float] = {}
    winners = []
    for _ in range(4000):
        mine, theirs = (true_median_s * random.lognormvariate(0, 0.5) for _ in range(2))
        into = events if mine < theirs else censored
        into[bucket(min(mine, theirs))] = into.get(bucket(min(mine, theirs)), 0) + 1
        if mine < theirs:
            winners.append(mine)
    winners_median_s = sorted(winners)[len(winners) // 2]
    assert winners_median_s < 0.81 * true_median_s
    assert kaplan_meier(dense(events), dense(censored)).quantile_s(0.5) == pytest.approx(true_median_s, rel=0.03)


def test_a_deployment_never_seen_is_expected_to_answer_like_the_models_others() -> None:
    fast = read_evidence({event("a", ANSWERS, 0.1): 1000.0, "a|n": 1000.0})
    slow = read_evidence({event("a", ANSWERS, 3.0): 1000.0, "a|n": 1000.0})
    assert standings(fast).of("new").curve.quantile_s(0.5) == pytest.approx(0.1, rel=0.1)
    assert standings(slow).of("new").curve.quantile_s(0.5) == pytest.approx(3.0, rel=0.1)


def test_a_model_never_seen_is_expected_to_answer_like_the_prior() -> None:
    assert standings({}).unseen.curve.quantile_s(0.5) == pytest.approx(0.7, rel=0.01)


def test_the_pool_outweighs_one_lucky_sample_and_not_forty() -> None:
    others = {event("a", ANSWERS, 1.0): 200.0, "a|n": 200.0}
    lucky = standings(read_evidence({**others, event("b", ANSWERS, 0.1): 1.0}))
    quick = standings(read_evidence({**others, event("b", ANSWERS, 0.1): 40.0}))
    assert lucky.of("b").curve.quantile_s(0.5) > 0.9
    assert quick.of("b").curve.quantile_s(0.5) < 0.12
    assert lucky.of("b").events == 1


def test_errors_lengthen_a_score_by_the_tries_they_cost_at_most_tenfold() -> None:
    def score_s(n: float, err: float) -> float:
        tally = Evidence(n=n, err=err, events={ANSWERS: {30: 100.0}})
        return standings({"a": tally}).of("a").score_s

    mean_s = standings({"a": Evidence(events={ANSWERS: {30: 100.0}})}).of("a").curve.mean().at(1.0)
    assert score_s(0, 0) == pytest.approx(mean_s / 0.99)
    assert score_s(95, 49.95) == pytest.approx(mean_s / 0.5)
    assert score_s(1000, 1000) == pytest.approx(mean_s * 10)


def test_kinds_of_calls_are_populations_of_their_own() -> None:
    known = read_evidence({event("a", ANSWERS, 0.1): 100.0, event("a", MeasuredApi.MODERATIONS, 4.0): 100.0})
    assert standings(known, api=ANSWERS).of("a").curve.quantile_s(0.5) == pytest.approx(0.1, rel=0.1)
    assert standings(known, api=MeasuredApi.MODERATIONS).of("a").curve.quantile_s(0.5) == pytest.approx(4.0, rel=0.1)


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.floats(0.001, 200)), max_size=30),
    st.integers(0, 30),
)
def test_reading_merged_counts_is_reading_all_samples_of_both(samples: list[tuple[str, int, float]], cut: int) -> None:
    def counted(part: list[tuple[str, int, float]]) -> dict[str, float]:
        counts: dict[str, float] = {}
        for deployment, size, ttft_s in part:
            add_counts(counts, {event_field(deployment, answer_class(size), ttft_s): 1.0})
        return counts

    merged = counted(samples[:cut])
    add_counts(merged, counted(samples[cut:]))
    assert read_tallies(merged) == read_tallies(counted(samples))


def test_fields_of_a_newer_version_are_passed_over() -> None:
    assert read_tallies({"a|0|xe17": 3.0, "a|good_ttft": 2.0, "req": 9.0, "x|y|e": 1.0}) == {}


def test_a_deployments_name_may_contain_anything() -> None:
    tallies = read_tallies({"groq/a|b:free|0|e3": 2.0, "groq/a|b:free|n": 2.0})
    assert tallies["groq/a|b:free"].events == {answer_class(0): {3: 2.0}}


def test_what_is_expected_of_an_attempt_grows_with_its_age() -> None:
    curve = kaplan_meier(dense({bucket(0.1): 50.0, bucket(1.0): 40.0, bucket(4.0): 10.0}), dense({}))
    beyond_s = curve.expected_beyond_s()
    assert beyond_s[bucket(0.1)] == pytest.approx(0.8 * mid_s(bucket(1.0)) + 0.2 * mid_s(bucket(4.0)))
    assert beyond_s[bucket(1.0)] == pytest.approx(mid_s(bucket(4.0)))
    assert beyond_s[bucket(4.0)] == 0.0


def test_what_outlived_all_that_was_watched_is_taken_to_end_with_the_last_first_token() -> None:
    cut = kaplan_meier(dense({bucket(0.1): 50.0, bucket(1.0): 10.0}), dense({bucket(1.1): 40.0}))
    assert cut.expected_beyond_s()[bucket(0.1)] == pytest.approx(mid_s(bucket(1.0)))


def test_beyond_all_that_was_seen_a_first_token_is_expected_a_little_later() -> None:
    known = standings({"a": Evidence(n=10.0, events={ANSWERS: {bucket(0.1): 10.0}})})
    assert known.of("a").expected_s(170.0) == pytest.approx(170.0 * 1.02)


def test_of_a_deployment_that_is_hardly_known_next_to_nothing_is_expected() -> None:
    few, many = (standings({"a": Evidence(n=n, events={ANSWERS: {bucket(0.1): n}})}).of("a") for n in (29.0, 31.0))
    assert few.expected_s(0.05) == pytest.approx(0.05 * 1.02)
    assert many.expected_s(0.05) > 0.09


@given(histograms, histograms)
def test_how_a_race_ends_is_the_sum_over_all_pairs(one: dict[int, int], other: dict[int, int]) -> None:
    mine, its = (kaplan_meier(dense(each), NOBODY) for each in (one, other))
    ways = [
        (share * its_share, index, its_index)
        for index, share in [*enumerate(mine.masses()), (BUCKETS, 1.0 - mine.reached[-1])]
        for its_index, its_share in [*enumerate(its.masses()), (BUCKETS, 1.0 - its.reached[-1])]
        if share * its_share > 0
    ]
    first = sum(share * (1.0 if at < its_at else 0.5) for share, at, its_at in ways if at <= its_at and at < BUCKETS)
    earlier_s = sum(share * min(30.0, mid_s(min(at, its_at))) for share, at, its_at in ways)
    found = mine.beside(its)
    assert found.first == pytest.approx(first, abs=1e-9)
    assert found.earlier_s == pytest.approx(earlier_s, abs=1e-6)


@given(histograms, histograms)
def test_the_earlier_first_token_alone_is_that_of_the_race(one: dict[int, int], other: dict[int, int]) -> None:
    table = standings(
        {
            name: Evidence(n=9.0, events={ANSWERS: {at: float(seen) for at, seen in each.items()}})
            for name, each in (("a", one), ("b", other))
        }
    )
    for primary, racer in (("a", "b"), ("b", "a"), ("a", "a"), ("b", "unseen")):
        together_s = table.of(racer).curve.beside(table.of(primary).curve).earlier_s
        assert table.earlier_s(primary, racer) == pytest.approx(together_s, abs=1e-9)


def test_what_is_left_of_a_first_token_that_is_late() -> None:
    curve = kaplan_meier(dense({bucket(0.2): 90, bucket(2.0): 10}), NOBODY)
    left = curve.left_at(0.9)
    assert left.quantile_s(0.5) == pytest.approx(1.8, rel=0.1)
    assert curve.left_at(0.95).quantile_s(0.5) == pytest.approx(0.01, abs=0.01)


@pytest.mark.parametrize("factor", [0.25, 1.0, 3.0, 1e9])
def test_times_are_multiplied(factor: float) -> None:
    curve = kaplan_meier(lognormal_masses(0.6, 0.3), NOBODY)
    expected_s = 0.6 * factor
    if factor < 100:
        assert curve.times(factor).quantile_s(0.5) == pytest.approx(expected_s, rel=0.06)
    else:
        assert curve.times(factor).quantile_s(0.5) == inf


@pytest.mark.parametrize(("median_s", "sooner_s", "later_s"), [(0.05, 0.6, 0.6), (0.6, 1.8, 3.0), (60.0, 180.0, 300.0)])
def test_a_known_deployment_is_overdue_after_three_times_its_q90(
    median_s: float, sooner_s: float, later_s: float
) -> None:
    of = standings({"a": Evidence(n=100.0, events={ANSWERS: {bucket(median_s): 100.0}})}).of("a")
    assert sooner_s <= of.overdue_s <= later_s


def test_nothing_is_overdue_within_ten_seconds_while_little_is_known() -> None:
    assert standings({}).of("a").overdue_s == 10.0
    assert standings({"a": Evidence(n=9.0, events={ANSWERS: {bucket(0.3): 9.0}})}).of("a").overdue_s == 10.0
    assert standings({"a": Evidence(n=10.0, events={ANSWERS: {bucket(0.3): 10.0}})}).of("a").overdue_s < 3.0


def test_one_first_token_that_came_late_teaches_patience_but_attempts_that_never_answered_do_not() -> None:
    cut: dict[Measured, dict[int, float]] = {ANSWERS: {bucket(10.5): 3.0}}
    assert standings({"a": Evidence(censored=cut)}).of("a").overdue_s == 10.0
    came = standings({"a": Evidence(n=1.0, events={ANSWERS: {bucket(30.0): 1.0}}, censored=cut)}).of("a")
    assert came.overdue_s > 60.0
    hangs = Evidence(n=90.0, events={ANSWERS: {bucket(0.5): 90.0}}, censored={ANSWERS: {bucket(1.8): 30.0}})
    of = standings({"a": hangs}).of("a")
    assert of.q95_s > 4.0
    assert of.overdue_s < 3.0
    assert of.hangs_s == 7.3
