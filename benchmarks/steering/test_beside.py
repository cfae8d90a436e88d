"""The simulated fallback beside a late model: silent calls are answered for, a model that thinks is waited for."""

from benchmarks.steering.beside import Outcome, run
from benchmarks.steering.worlds import BESIDE

WORLDS = {world.name: world for world in BESIDE}


def outcomes(world: str) -> list[Outcome]:
    return run(WORLDS[world], 250, 1)


def test_one_call_in_twenty_that_hangs_is_answered_for_within_seconds() -> None:
    seconds = sorted(each.ttft_s for each in outcomes("silent5"))
    assert seconds[round(0.99 * (len(seconds) - 1))] < 12.5


def test_a_model_that_thinks_for_half_a_minute_loses_no_call_once_it_is_known() -> None:
    later = outcomes("thinks")[100:]
    assert not any(each.lost for each in later)
    assert sum(each.beside for each in later) <= 1
