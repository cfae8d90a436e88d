"""The estimate of what racing saves, against fleets whose draws are known."""

import pytest

from benchmarks.steering.savings import Overtaken, measured, saved


@pytest.mark.parametrize("difficulty", [0.0, 0.3, 0.6])
def test_the_estimate_is_unbiased_and_its_interval_holds_however_much_calls_share(difficulty: float) -> None:
    figures = measured(difficulty, 4_000, 0.25, fleets=12)
    assert abs(figures["bias"]) < 0.05
    assert figures["covered"] >= 10 / 12


def test_without_audits_there_is_the_bare_prediction_and_no_interval() -> None:
    calls = [Overtaken(ttft_ms=200.0, alone_ms=900.0, predicted_ms=600.0, audited=False)] * 50
    assert (saved(calls).ms, saved(calls).low_ms, saved(calls).high_ms) == (20_000.0, None, None)


def test_predictions_are_corrected_by_what_audits_saw() -> None:
    calls = [Overtaken(200.0, 900.0 + 10 * n, 550.0 + 5 * n, audited=n % 2 == 0) for n in range(200)]
    estimate = saved(calls)
    assert estimate.ms == pytest.approx(sum(call.alone_ms - call.ttft_ms for call in calls))
    assert estimate.low_ms == pytest.approx(estimate.ms)
    assert estimate.high_ms == pytest.approx(estimate.ms)
