"""What is published: figures over plain counts, with their intervals, and what they rest on."""

from bisect import bisect_left
from collections import Counter
from math import exp, inf, log
from random import Random
from statistics import NormalDist
from typing import Any

import pytest

from gateway.core.attempts import AnswerKind, Flaw
from gateway.core.prompt_classes import answer_class
from gateway.steering import BUCKETS, Condition, HealthState, Row, edge_s, event_field, of_counts
from gateway.steering.counts import Counts, bucket
from gateway.steering.health import Trouble
from gateway.steering.leaderboard import rank, read_window, row
from gateway.steering.survival import dense, quantiles, wilson
from tests.unit.steering.virtual_replica import MODEL, VirtualReplica

NOBODY = [0.0] * BUCKETS
CALM = Condition(HealthState.OK, 0.0, probe_due=False, in_flight=2, price_s=0.0)
COOLING = Condition(HealthState.COOLING, 3.24, probe_due=False, in_flight=0, price_s=0.0, headroom=0.0)


TRIED = Condition(HealthState.OK, 0.0, probe_due=False, in_flight=0, price_s=0.0, trial_in_s=0.0)


def one(counts: Counts, name: str = "a") -> Row:
    return row(name, read_window({0: counts}))


def histogram(samples: list[float]) -> list[float]:
    return dense({index: float(amount) for index, amount in Counter(map(bucket, samples)).items()})


@pytest.mark.parametrize("share", [0.5, 0.95])
@pytest.mark.parametrize("censoring", [False, True])
def test_the_interval_holds_the_true_quantile_nineteen_times_in_twenty(share: float, censoring: bool) -> None:
    random = Random(5)
    true_s = exp(log(0.4) + 0.5 * NormalDist().inv_cdf(share))
    held = 0
    for _ in range(150):
        events: list[float] = []
        censored: list[float] = []
        for _ in range(150):
            ttft_s = random.lognormvariate(log(0.4), 0.5)
            rival_s = random.lognormvariate(log(0.7), 0.8) if censoring else inf
            (events if ttft_s < rival_s else censored).append(min(ttft_s, rival_s))
        (quantile,) = quantiles(histogram(events), histogram(censored), [share])
        held += quantile.low_s <= true_s <= quantile.high_s
    assert held >= 0.94 * 150


def test_the_interval_is_about_that_of_the_order_statistics() -> None:
    random = Random(3)
    samples = sorted(random.lognormvariate(log(0.4), 0.5) for _ in range(1000))
    (p95,) = quantiles(histogram(samples), NOBODY, [0.95])
    ranks = [bisect_left(samples, edge) for edge in (p95.low_s, p95.high_s)]
    assert 910 < ranks[0] < 940
    assert 960 < ranks[1] < 985  # 950 -+ 13.5, and the width of a bucket at either end


def test_what_few_samples_cannot_bound_is_unbounded() -> None:
    (p50, p99) = quantiles(dense({5: 10}), NOBODY, [0.5, 0.99])
    assert p50.low_s == p99.low_s == edge_s(5)
    assert p99.high_s == inf
    (p50,) = quantiles(dense({5: 1}), dense({6: 10}), [0.5])
    assert (p50.value_s, p50.high_s) == (inf, inf)


def test_below_three_first_tokens_nothing_is_published_of_them() -> None:
    two, three = ({event_field("a", answer_class(0), 0.2): n, "a|n": n} for n in (2.0, 3.0))
    assert (one(two).ttft_p50_ms, one(two).rank, one(two).n) == (None, None, 2)
    assert one(three).ttft_p50_ms == pytest.approx(200, rel=0.05)
    assert one({}).error_rate is one({}).win_share is one({}).decode_tps is None


RACED = {"a|0|e20": 20.0, "a|0|e30": 30.0, "a|0|c20": 30.0, "a|0|ae30": 29.0, "a|over": 60.0, "a|aud": 30.0}


def test_from_thirty_audits_on_these_stand_for_all_that_were_overtaken() -> None:
    told = one(RACED)
    assert (told.basis, told.is_biased, told.n_audited) == ("audited", False, 29)
    assert (told.n_first_token, told.n_censored) == (50, 30)
    assert told.ttft_p50_ms == pytest.approx(edge_s(30.3) * 1000, rel=0.05)  # 21 were not overtaken, 58 of 79 are late


def test_until_then_all_speak_and_are_marked_biased() -> None:
    told = one({**RACED, "a|aud": 29.0})
    assert (told.basis, told.is_biased) == ("all", True)
    assert told.ttft_p50_ms is not None


def test_hedges_and_failovers_are_no_fair_sample() -> None:
    fair = one({**RACED, "a|0|e40": 500.0, "a|0|l40": 500.0})
    assert fair.ttft_p50_ms == one(RACED).ttft_p50_ms


def test_where_nobody_was_cut_nothing_is_biased() -> None:
    assert not one({"a|0|e20": 40.0}).biased


def test_speeds_rates_and_shares_are_plain_ratios() -> None:
    told = one({
        "a|n": 50.0, "a|err": 2.0, "a|lim": 7.0, "a|won": 30.0, "b|won": 10.0,
        "a|tok": 900.0, "a|sec": 10.0, "a|etok": 1000.0, "a|esec": 20.0,
    })  # fmt: skip
    assert (told.decode_mean_tps, told.e2e_mean_tps) == (90.0, 50.0)
    assert (told.error_rate, told.n_rate_limited, told.win_share) == (0.04, 7, 0.75)


def answers(timed: float, bursts: float) -> Counts:
    return {"a|ans": timed, "a|burst": bursts}


@pytest.mark.parametrize(
    ("slots", "buffered"),
    [
        ({9: answers(20, 10)}, True),
        ({9: answers(20, 9)}, False),
        ({9: answers(15, 15), 8: answers(10, 0), 7: answers(100, 0)}, True),  # the oldest are beyond the last 20
        ({9: answers(20, 0), 8: answers(100, 100)}, False),  # it has stopped
        ({9: answers(2, 2)}, False),  # too few to tell
        ({9: answers(3, 3)}, True),
    ],
)
def test_buffered_is_who_sent_half_of_the_last_twenty_answers_at_once(slots: dict[int, Counts], buffered: bool) -> None:
    assert row("a", read_window(slots)).buffered is buffered


def test_a_buffered_deployment_is_ranked_by_end_to_end_speed() -> None:
    steady = {"a|tok": 100.0, "a|sec": 1.0, "a|etok": 100.0, "a|esec": 2.0}
    bursty = {"b|tok": 9000.0, "b|sec": 3.0, "b|etok": 100.0, "b|esec": 1.25, "b|ans": 20.0, "b|burst": 19.0}
    rows = of_counts("m", {0: steady | bursty}, 600).deployments
    assert {each.deployment: each.speed_rank for each in rows} == {"a": 1, "b": 2}  # 100 decode, 80 end to end
    assert [(each.decode_mean_tps, each.e2e_mean_tps) for each in rows if each.is_buffered] == [(3000.0, 80.0)]


def test_the_order_is_the_policys_the_ranks_are_those_of_the_figures() -> None:
    window = read_window({0: {"fast|0|e20": 9.0, "slow|0|e40": 9.0, "ill|0|e10": 9.0}})
    states: dict[str, dict[str, Any]] = {
        "fast": {"score_s": 2.0, "condition": CALM},  # scarce, so the policy holds it back
        "slow": {"score_s": 1.0, "condition": CALM},
        "ill": {"score_s": 0.1, "condition": COOLING},
        "new": {"score_s": 3.0, "condition": CALM},
    }
    rows = rank(row(name, window, **facts) for name, facts in states.items())
    assert [(each.deployment, each.rank) for each in rows] == [("slow", 3), ("fast", 2), ("new", None), ("ill", 1)]
    assert [(each.state, each.headroom, each.in_flight) for each in rows][-2:] == [
        ("ok", 1.0, 2),
        ("cooling 3.2 s", 0.0, 0),
    ]


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [(4, 40, 0.03957, 0.23053), (0, 10, 0.0, 0.27753), (10, 10, 0.72247, 1.0), (0, 0, 0.0, 1.0)],
)
def test_the_interval_of_a_share_is_wilsons(hits: int, n: int, low: float, high: float) -> None:
    assert wilson(hits, n) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


def test_the_leaderboard_says_how_many_of_the_judged_answers_are_flawed() -> None:
    replica = VirtualReplica()
    for number in range(20):
        replica.win("a", 0.3, judged_as=AnswerKind.TOOLS, flaw=None if number % 4 else Flaw.BAD_TOOL_CALL)
    replica.win("b", 0.3)
    rows = {row.deployment: row for row in replica.steering.leaderboard(MODEL).deployments}
    assert (rows["a"].judged, rows["a"].flaw_rate) == (20, 0.25)
    assert (rows["a"].flaw_rate_low, rows["a"].flaw_rate_high) == (
        pytest.approx(0.1119, abs=1e-4),
        pytest.approx(0.4687, abs=1e-4),
    )
    assert (rows["b"].judged, rows["b"].flaw_rate, rows["b"].flaw_rate_high) == (0, None, None)


def test_a_broken_deployment_without_calls_is_not_said_to_be_well() -> None:
    found = row("a", read_window({}), condition=TRIED, trouble=Trouble("connect_error"))
    assert (found.state, found.reason) == ("half-open", "connect_error")
    assert row("a", read_window({}), condition=CALM, trouble=Trouble("connect_error")).reason is None
