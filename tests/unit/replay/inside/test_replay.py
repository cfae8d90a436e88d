"""Replays of calls whose every draw is known, and the parts they are made of."""

from collections.abc import Sequence
from functools import cache
from itertools import combinations
from math import inf, sqrt
from random import Random
from statistics import fmean

import msgspec
import pytest

from gateway.replay import Figure, Replayed, ReplayedCall, SettingOutcome, Try, advice, race_yaml, replay, settings
from gateway.replay.rows import CAP_MS
from gateway.replay.sample import AUDITS_FOR_TAIL, audits, margins, needs, sampled
from gateway.replay.variants import SortedValues
from gateway.replay.world import DrawnAttempt, loadings, play
from tests.support.replayed import RATE_S, WORLDS, Drawing, World, ledger, truth

SHARED = next(each for each in WORLDS if each.name == "shared 60 %")
PLAIN = World(name="plain", tail=0.0, failures=0.0, difficulty=0.5)


@cache
def calls(
    world: World, count: int, audit_share: float, seed: int = 4
) -> tuple[list[ReplayedCall], list[list[DrawnAttempt]]]:
    drawn = Drawing(world, seed).calls(count)
    return ledger(drawn, audit_share, Random(seed)), drawn


def answered(
    rows: Sequence[ReplayedCall], without: tuple[str, ...] = (), budgets: tuple[float, ...] = (0.1,)
) -> Replayed:
    return replay(rows, settings(budgets), Random(1), window_s=len(rows) * RATE_S, without=without)


@cache
def shared() -> Replayed:
    """Return what is found in the same calls by three tests: it takes seconds."""
    return answered(calls(SHARED, 9_000, 0.5, seed=2)[0])


def at(values: Sequence[float], share: float) -> float:
    return sorted(values)[int(share * len(values))]


def test_every_setting_is_within_ten_percent_of_what_it_would_have_done() -> None:
    _, drawn = calls(SHARED, 9_000, 0.5, seed=2)
    found = shared()
    assert found.is_enough
    for setting, outcome in zip(settings((0.1,)), found.outcomes, strict=True):
        true_ms = truth(drawn, setting, Random(2))
        for name, share in (("p50", 0.5), ("p95", 0.95)):
            assert outcome.ttft[name].value == pytest.approx(at(true_ms, share), rel=0.1), (setting.name, name)


def test_without_a_provider_its_calls_go_to_the_others() -> None:
    rows, drawn = calls(SHARED, 9_000, 0.5, seed=2)
    left_out = "provider1"
    others = [[each for each in call if not each.deployment.startswith(left_out)] for call in drawn]
    found = answered(rows, without=(left_out,))
    assert found.deployments == [name for name in found.deployments if not name.startswith(left_out)]
    single, *_, two, three = found.outcomes
    for setting, outcome in ((settings(())[0], single), (settings(())[1], two)):
        true_ms = truth(others, setting, Random(2))
        assert outcome.ttft["p95"].value == pytest.approx(at(true_ms, 0.95), rel=0.1), setting.name
    assert three.ttft["p50"].value is None  # there are only two


def test_the_same_rows_give_the_same_figures() -> None:
    rows, _ = calls(SHARED, 1_000, 0.5)
    assert answered(rows) == answered(rows)


def test_too_few_audits_give_no_tail_but_say_how_many_more() -> None:
    rows, _ = calls(PLAIN, 3_000, 0.1)
    found = answered(rows)
    assert not found.is_enough
    single = found.outcomes[0]
    assert single.ttft["p50"].value is not None
    assert single.ttft["p95"].value is None
    assert single.saved_p95_ms.value is None
    told = advice(found)
    assert told.setting is None
    for need in found.needs:
        assert need.more == AUDITS_FOR_TAIL - need.audits > 0
    assert f"{len(found.needs)} deployments have fewer than 500 audited losers." in told.why


def test_where_most_losers_were_watched_p95_needs_no_more_of_them() -> None:
    rows, _ = calls(PLAIN, 200, 0.9)
    found = answered(rows)
    assert all(need.audits < AUDITS_FOR_TAIL and need.more == 0 for need in found.needs)
    assert found.outcomes[0].ttft["p95"].value is not None
    assert not answered(calls(PLAIN, 200, 0.5)[0]).is_enough


def test_a_quantile_beyond_which_hardly_a_call_was_is_not_told() -> None:
    few, more = (answered(calls(PLAIN, count, 1.0)[0]).outcomes[0].ttft for count in (300, 700))
    assert few["p95"].value is not None
    assert few["p99"].value is None
    assert more["p99"].value is not None


def test_a_race_of_two_that_was_run_is_seen_whole() -> None:
    rows, drawn = calls(PLAIN, 3_000, 0.1)
    two = next(each for each in answered(rows).outcomes if each.setting == "race of 2")
    true_ms = truth(drawn, settings(())[1], Random(2))
    assert two.ttft["p95"].value == pytest.approx(at(true_ms, 0.95), rel=0.03)


def test_no_audit_at_all_says_nothing_of_one_attempt_alone() -> None:
    rows, _ = calls(PLAIN, 1_000, 0.0)
    found = answered(rows)
    assert found.outcomes == ()
    assert found.note is not None
    assert "audited" in advice(found).why
    assert all(need.days is None for need in found.needs)


def test_calls_that_ran_alone_say_nothing_of_two() -> None:
    drawn = Drawing(PLAIN, 4).calls(1_000)
    found = answered(ledger(drawn, 0.5, Random(4), width=1))
    single, *others = found.outcomes
    assert single.ttft["p95"].value == pytest.approx(at(truth(drawn, settings(())[0], Random(1)), 0.95), rel=1e-3)
    assert {each.ttft["p50"].value for each in others} == {None}


def test_few_calls_are_too_few() -> None:
    rows, _ = calls(PLAIN, 40, 1.0)
    assert answered(rows).note == "40 calls are too few, 100 are needed"
    alone, _ = calls(PLAIN, 1, 1.0)
    assert answered(alone).note == "1 call is too few, 100 are needed"


def test_more_audits_narrow_the_interval() -> None:
    widths = []
    for audit_share in (0.2, 1.0):
        rows, _ = calls(SHARED, 3_000, audit_share)
        figure = answered(rows).outcomes[0].ttft["p50"]
        assert figure.low is not None
        assert figure.high is not None
        widths.append(figure.high - figure.low)
    assert widths[1] < widths[0]


def test_audited_losers_stand_for_those_that_were_cut() -> None:
    rows, drawn = calls(PLAIN, 6_000, 0.3)
    often = [1.0] * len(rows)
    found = margins(rows, often, audits(rows, often))
    for name, margin in found.items():
        true_ms = [each.ms for call in drawn for each in call[:2] if each.deployment == name]
        assert margin.quantile_ms(0.9) == pytest.approx(at(true_ms, 0.9), rel=0.05)


@pytest.mark.parametrize("difficulty", [0.0, 0.5])
def test_what_two_attempts_of_a_call_share_is_found_though_losers_are_cut(difficulty: float) -> None:
    world = World(name=f"plain {difficulty}", tail=0.0, failures=0.0, difficulty=difficulty)
    rows, _ = calls(world, 8_000, 0.1)
    often = [1.0] * len(rows)
    found = loadings(rows, often, margins(rows, often, audits(rows, often)))
    pairs = [found[one] * found[other] for one, other in combinations(sorted(found), 2)]
    assert fmean(pairs) == pytest.approx(difficulty, abs=0.06)


def test_each_stratum_weighs_what_was_overtaken_in_it() -> None:
    rows, _ = calls(PLAIN, 4_000, 0.2)
    sample = sampled(rows)
    assert sum(sample.weights()) == pytest.approx(len(rows))
    assert sample.unknown == 0
    ends = [each.end for each in sample.strata]
    assert [each.start for each in sample.strata] == [sample.free, *ends[:-1]]
    assert ends[-1] == len(sample.calls)


def test_needs_tell_the_share_that_brings_them_in_a_week() -> None:
    lost = Try("a/m", "a", "primary", 0.0, overtaken_ms=100.0, cut_ms=100.0)
    seen = Try("a/m", "a", "primary", 0.0, audited=True, overtaken_ms=100.0, token_ms=300.0)
    rows = [ReplayedCall(float(n), [seen if n % 10 == 0 else lost], 100.0, 200.0) for n in range(1000)]
    [need] = needs(rows, 86_400.0)
    assert (need.audits, need.more) == (100, 400)
    assert need.days == pytest.approx(4.0)
    assert need.audit_share == pytest.approx(400 / 7000)


def test_an_audit_without_a_token_counts_as_half_a_minute() -> None:
    assert Try("a/m", "a", "race", 0.0, audited=True, overtaken_ms=90.0, cut_ms=30_004.0).seen_ms == CAP_MS
    assert Try("a/m", "a", "race", 0.0, overtaken_ms=90.0, cut_ms=90.0).seen_ms is None


@pytest.mark.parametrize(
    ("starts", "draws", "ttft_ms", "winner", "launched"),
    [
        ([0.0], [DrawnAttempt("a", 500), DrawnAttempt("b", 100)], 500, 0, [0]),
        ([0.0, 0.0], [DrawnAttempt("a", 500), DrawnAttempt("b", 100)], 100, 1, [0, 1]),
        ([0.0, 300.0], [DrawnAttempt("a", 500), DrawnAttempt("b", 100)], 400, 1, [0, 1]),
        ([0.0, 300.0], [DrawnAttempt("a", 200), DrawnAttempt("b", 100)], 200, 0, [0]),
        ([0.0], [DrawnAttempt("a", 50, failed=True), DrawnAttempt("b", 100)], 150, 1, [0, 1]),
        ([0.0, 300.0], [DrawnAttempt("a", 50, failed=True), DrawnAttempt("b", 100)], 150, 1, [0, 1]),
        (
            [0.0, 0.0],
            [DrawnAttempt("a", 50, failed=True), DrawnAttempt("b", 400), DrawnAttempt("c", 100)],
            150,
            2,
            [0, 1, 2],
        ),
        ([0.0], [DrawnAttempt("a", 50, failed=True)], inf, -1, [0]),
    ],
)
def test_a_call_is_played_as_a_race_runs(
    starts: list[float], draws: list[DrawnAttempt], ttft_ms: float, winner: int, launched: list[int]
) -> None:
    found = play(starts, lambda place: draws[place] if place < len(draws) else None)
    assert (found.ttft_ms, found.winner, list(found.launched)) == (ttft_ms, winner, launched)


def test_quantiles_count_weights() -> None:
    ordered = SortedValues([300.0, 100.0, 200.0])
    assert ordered.quantiles([1.0, 1.0, 1.0], (0.5,)) == [200.0]
    assert ordered.quantiles([1.0, 8.0, 1.0], (0.5, 0.95)) == [100.0, 300.0]


def test_a_setting_is_written_as_the_configuration_has_it() -> None:
    assert race_yaml("m: 1", {"mode": "race", "width": 3, "budget": 2.0}) == (
        'models:\n  "m: 1":\n    race:\n      mode: race\n      width: 3\n      budget: 2.0'
    )


def test_a_wider_race_must_be_worth_its_attempts() -> None:
    found = shared()
    told = advice(found)
    chosen = next(each for each in found.outcomes if each.setting == told.setting)
    single = found.outcomes[0]
    saved, p95 = chosen.saved_p95_ms.value, single.ttft["p95"].value
    assert saved is not None
    assert p95 is not None
    assert saved / p95 >= 0.1 * (chosen.attempts - single.attempts)
    assert sqrt(found.correlation or 0.0) > 0.5


def test_each_advice_has_its_price() -> None:
    found = shared()
    assert found.outcomes[0].cost_low_usd is None or "per 1,000 calls" in advice(found).why
    priced = [
        msgspec.structs.replace(each, cost_low_usd=0.001 * n, cost_high_usd=0.0015 * n)
        for n, each in enumerate(found.outcomes, start=1)
    ]
    assert "more per 1,000 calls than single" in advice(msgspec.structs.replace(found, outcomes=tuple(priced))).why


@cache
def known() -> Replayed:
    """Return what is found where all losers were watched."""
    return answered(calls(PLAIN, 3_000, 1.0)[0])


def decided(low_ms: float, high_ms: float, settings_known: int = 2) -> str | None:
    """The setting advised where the race of two takes so much off the p95 of one attempt, 1,000 ms."""
    single, *_, two, _ = known().outcomes

    def with_p95(outcome: SettingOutcome, ms: float, saved: Figure) -> SettingOutcome:
        return msgspec.structs.replace(outcome, ttft={**outcome.ttft, "p95": Figure(ms, ms, ms)}, saved_p95_ms=saved)

    both = with_p95(single, 1000.0, Figure(0.0, 0.0, 0.0)), with_p95(two, 900.0, Figure(100.0, low_ms, high_ms))
    return advice(msgspec.structs.replace(known(), outcomes=both[:settings_known])).setting


def test_what_is_not_known_yet_is_no_advice() -> None:
    assert decided(-50.0, 250.0) is None  # neither surely better, nor surely as good
    assert decided(0.0, 5.0) == "single"
    assert decided(-50.0, 250.0, settings_known=1) is None
