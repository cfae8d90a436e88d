"""The fleet benchmark's arithmetic: quantiles, standings, the published against the true, recovery."""

from benchmarks.fleet.course import AUDITED, SINGLE, Answer, Entry, Fault, Look, Observation
from benchmarks.fleet.findings import lateness, published, recoveries, standings
from benchmarks.fleet.world import World
from benchmarks.harness.report import known_quantile, weighted_quantile

WORLD = World("calm", 3)
ARM = "budget-1.0"


def observed(number: int, due_s: float, ttft_s: float | None, arm: str = ARM) -> Observation:
    answer = Answer(status=200, whole=ttft_s is not None, ttft_s=ttft_s, launched=2, overhead_ms=0.5)
    return Observation(arm, number, due_s, answer)


def test_a_quantile_is_the_least_value_that_enough_weight_does_not_exceed() -> None:
    assert known_quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert weighted_quantile([(1.0, 3.0), (2.0, 1.0)], 0.75) == 1.0
    assert weighted_quantile([(1.0, 3.0), (2.0, 1.0)], 0.76) == 2.0
    assert known_quantile([], 0.5) is None


def test_who_is_always_as_fast_as_the_best_stands_beside_the_oracle() -> None:
    seen = [observed(0, 0.0, 1.0)]
    seen += [observed(number, 20.0 + number, WORLD.best_ttft_s(number, 0.0)) for number in range(1, 100)]

    standing, one, two = standings(seen, WORLD, until_s=500.0)

    assert standing.calls == 99  # the first came while the leaderboard was empty
    assert standing.ttft_ms == standing.oracle_ms
    assert (standing.failed, standing.attempts_per_call) == (0, 2.0)
    assert [one.attempts_per_call, two.attempts_per_call] == [1, 2]
    assert two.ttft_ms < one.ttft_ms  # two in hindsight are better than one, and no better than all
    assert two.ttft_ms >= two.oracle_ms


def test_a_published_quantile_is_compared_with_the_draws_of_every_call_of_its_model() -> None:
    seen = [observed(number, 1.0, 0.5) for number in range(200)]
    true_ms = [WORLD.draw("alpha", number, 1.0).ttft_s * 1000 for number in range(200)]
    row = {
        "deployment": "alpha/fleet-model",
        "events": 90,
        "censored": 10,
        "biased": True,
        "ttft_p50_ms": 300.0,
        "ttft_p50_low_ms": min(true_ms),
        "ttft_p50_high_ms": max(true_ms),
        "ttft_p95_ms": None,
    }
    entries = [Entry(ARM, "alpha", prompt_class, attempts=100) for prompt_class in (0, 1)]
    look = Look(at_s=10.0, leaderboards={ARM: [row]}, replicas_agree=True, entries=entries, cpu_share={})

    half, tail = published(seen, look, WORLD)

    assert half.true_ms is not None
    assert half.error == 300.0 / half.true_ms - 1
    assert half.inside is True
    assert (tail.error, tail.inside) == (None, None)


def test_all_is_well_again_after_the_last_slow_window_of_a_fault() -> None:
    steady = [observed(number, 20.0 + number / 10, 0.3) for number in range(300)]
    faulty = [observed(number, 100.0 + number / 10, 3.0 if number < 80 else 0.3) for number in range(300)]
    fault = Fault("alpha hangs", 100.0, 115.0, "alpha")

    found = recoveries([*steady, *faulty], (fault,), standings(steady, WORLD, 60.0), WORLD)
    recovery = next(each for each in found if each.arm == ARM)

    assert recovery.worst_p95_ms == 3000.0
    assert recovery.recovered_s == 12.0  # the window from 7 to 12 s still holds calls of the first 8 s
    assert recovery.calls == 300


def test_what_the_machine_adds_is_measured_against_the_draws() -> None:
    best_s = WORLD.best_ttft_s(4, 1.0)
    assert best_s is not None
    seen = [
        observed(4, 1.0, WORLD.draw("alpha", 4, 1.0).ttft_s + 0.002, SINGLE),
        observed(4, 1.0, best_s + 0.003, AUDITED),
        observed(4, 1.0, 9.0),
    ]

    direct, raced = lateness(seen, WORLD)

    assert (direct.calls, direct.late_ms[0]) == (1, 2.0)
    assert (raced.calls, raced.late_ms[0]) == (1, 3.0)
