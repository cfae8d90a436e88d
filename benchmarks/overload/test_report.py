"""When the goal of overload control is reached, and when it is not."""

from typing import Any

from benchmarks.overload.report import Swept, doubts, missed
from benchmarks.overload.sweep import Seen, Step, Unloaded, Workload

WORKLOAD = Workload("tokens", "steady-single", "steady")


def step(times: float, good_per_s: float, ttft_p99_ms: float | None = 500.0, **more: Any) -> Step:
    facts = {
        "offered_per_s": times * 100,
        "answered_per_s": good_per_s,
        "refused_per_s": 0.0,
        "ttft_p50_ms": ttft_p99_ms,
        "refusal_p50_ms": None,
        "refusal_p99_ms": None,
        "unended": 0,
        "seen": Seen(0.005, 30.0, 40.0, 0.99),
        **more,
    }
    return Step(times=times, good_per_s=good_per_s, ttft_p99_ms=ttft_p99_ms, **facts)


def swept(*controlled: Step, uncontrolled: tuple[Step, ...] = ()) -> Swept:
    return Swept(WORKLOAD, Unloaded(300.0, 310.0, 50.0), 100.0, controlled, uncontrolled)


def test_as_many_good_answers_as_at_the_peak_and_in_time_is_the_goal() -> None:
    assert list(missed(swept(step(1.0, 100.0), step(2.0, 90.0, 600.0)))) == []


def test_too_few_good_answers_miss_it() -> None:
    [problem] = missed(swept(step(1.0, 100.0), step(2.0, 89.0)))
    assert "89% of the peak" in problem


def test_the_peak_may_be_one_without_overload_control() -> None:
    assert list(missed(swept(step(2.0, 90.0), uncontrolled=(step(1.0, 101.0),))))


def test_late_answers_miss_it_and_so_do_none() -> None:
    for ttft_p99_ms, found in ((601.0, "601 ms"), (None, "no answer")):
        [problem] = missed(swept(step(1.0, 100.0), step(2.0, 95.0, ttft_p99_ms)))
        assert found in problem
        assert "600 ms" in problem


def test_a_gateway_that_did_not_have_its_core_is_doubted() -> None:
    starved = Seen(None, None, None, 0.5)
    [doubt] = doubts(swept(step(1.0, 100.0, seen=starved), step(2.0, 95.0, seen=starved)))
    assert "50% of its core" in doubt
    [doubt] = doubts(swept(step(1.0, 95.0, others=0.6)))
    assert "others used 0.60 cores" in doubt
    assert list(doubts(swept(step(2.0, 95.0)))) == []


def test_a_run_without_that_step_is_not_judged() -> None:
    assert list(missed(swept(step(1.0, 100.0)))) == []
