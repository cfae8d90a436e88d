"""The estimate of what racing saves, against fleets whose draws are known."""

from statistics import fmean

import pytest

from tests.support.savings import Held, Overtaken, Rivals, World, held, measured, saved


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
    assert estimate.low_ms is not None
    assert estimate.high_ms is not None
    assert estimate.low_ms < estimate.ms < estimate.high_ms


AUDITED = ((0.05, 2_500), (0.05, 5_000), (0.9, 100), (0.9, 200), (0.9, 1_000))  # the default and the demo's, and calls


def figures(rivals: Rivals, world: World = World.LOGNORMAL) -> list[Held]:
    return [held(rivals, calls, share, world=world, fleets=6, each=10) for share, calls in AUDITED]


@pytest.mark.parametrize("rivals", [Rivals.SOMETIMES, Rivals.OFTEN])
def test_intervals_hold_what_racing_saves_and_are_hardly_wider_than_the_best_estimate_is_off(rivals: Rivals) -> None:
    found = [each for world in (World.LOGNORMAL, World.BIMODAL) for each in figures(rivals, world)]
    assert fmean(each.covered for each in found) >= 0.93
    assert min(each.covered for each in found) >= 0.85  # of sixty each, of which some have none
    assert fmean(each.half_width / each.best for each in found) <= 1.3
    assert all(each.told == 1.0 for each, (share, _) in zip(found, 2 * AUDITED, strict=True) if share > 0.5)


def test_where_rivals_never_win_an_interval_is_narrow_and_holds_nothing() -> None:
    found = figures(Rivals.NEVER)
    assert [each.told for each in found] == [each.covered for each in found] == [1.0] * len(AUDITED)
    assert all(each.width_ms <= 5 for each, (_, calls) in zip(found, AUDITED, strict=True) if calls >= 200)
