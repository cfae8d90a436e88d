"""The speed benchmark's arithmetic: ratios within a round, promises, and what cannot be measured."""

from benchmarks.harness.report import row
from benchmarks.speed.scenarios import Comparison, Limit, Sample, Samples, Scenario, Subject, cpu_rows, latency_rows

OWN, BASE = Subject("own", "gateway", "/"), Subject("base", "nginx", "/")
SCENARIO = Scenario(
    name="stream",
    calls=10,
    concurrency=1,
    subjects=(BASE, OWN),
    comparisons=(Comparison("own / base", "own", "base", 2.0), Comparison("own", "own", at_most=0.35)),
)


def samples(own_us: list[float], base_us: list[float]) -> Samples:
    return {name: [Sample(us, [], 0.0) for us in each] for name, each in (("own", own_us), ("base", base_us))}


def test_a_ratio_is_of_the_same_round_so_that_a_slow_machine_slows_both() -> None:
    ratio, absolute = cpu_rows(SCENARIO, samples([100, 300, 200], [50, 100, 100]))

    assert (ratio.value, ratio.low, ratio.high, ratio.unit) == (2.0, 2.0, 3.0, "x")
    assert ratio.detail == "200 / 100 µs of CPU per call"
    assert (absolute.value, absolute.unit) == (0.2, "ms")


def test_a_promise_is_kept_by_what_is_as_good_or_better() -> None:
    assert row("a", [0.6], "x", at_most=0.6).reached is True
    assert row("a", [0.61], "x", at_most=0.6).reached is False
    assert row("a", [0.61], "x").reached is None


def test_what_needs_a_missing_baseline_is_skipped_and_the_rest_is_measured() -> None:
    ratio, absolute = cpu_rows(SCENARIO, {"own": [Sample(200, [], 0.0)]})

    assert (ratio.value, ratio.reached, ratio.detail) == (None, None, "skipped: needs nginx")
    assert absolute.value == 0.2


def test_requests_cut_before_their_first_byte_are_told() -> None:
    (_, absolute) = cpu_rows(SCENARIO, {"own": [Sample(200, [], 1.0)], "base": [Sample(100, [], 0.0)]})

    assert absolute.detail == "of CPU per call; requests cut before their first byte: 1.00 per call"


def test_added_latency_is_the_difference_of_quantiles_of_the_same_round() -> None:
    taken = {"base": [Sample(0, [1.0, 2.0, 9.0], 0)], "own": [Sample(0, [1.5, 2.2, 9.9], 0)]}

    p50, p99 = latency_rows(SCENARIO, taken, {"own": Limit(0.3, 1.0)})

    assert (round(p50.value or 0, 3), p50.at_most, p50.reached) == (0.2, 0.3, True)
    assert (round(p99.value or 0, 3), p99.at_most, p99.reached) == (0.9, 1.0, True)
