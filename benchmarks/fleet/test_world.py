"""The fleet benchmark's world: what is drawn is decided by its seed, and known for providers nobody asked."""

from benchmarks.fleet.course import Fault, silent
from benchmarks.fleet.world import PERSONAS, World, delivers


def test_a_draw_is_the_same_whenever_and_wherever_it_is_made() -> None:
    here, there = World("calm", 7), World("calm", 7)

    assert [here.draw("alpha", number, 1.0) for number in range(50)] == [
        there.draw("alpha", number, 99.0) for number in range(50)
    ]
    assert here.prompt_tokens(3) == there.prompt_tokens(3)


def test_providers_calls_and_seeds_draw_apart() -> None:
    world = World("calm", 7)
    draws = {world.draw(name, number, 0.0).ttft_s for name in PERSONAS for number in range(20)}

    assert len(draws) == 20 * len(PERSONAS)
    assert world.draw("alpha", 0, 0.0) != World("calm", 8).draw("alpha", 0, 0.0)


def test_only_in_a_drifting_climate_the_same_call_takes_longer_or_shorter_later() -> None:
    drifting = World("drift", 7)

    assert drifting.draw("alpha", 5, 0.0) == drifting.draw("alpha", 5, 0.9)
    assert drifting.draw("alpha", 5, 0.0) != drifting.draw("alpha", 5, 300.0)


def test_the_best_is_the_least_of_those_who_deliver_and_are_not_silent() -> None:
    world = World("calm", 7)
    runs = {name: world.draw(name, 11, 0.0) for name in PERSONAS}
    ranked = sorted((run.ttft_s, name) for name, run in runs.items() if delivers(run))

    assert world.best_ttft_s(11, 0.0) == ranked[0][0]
    assert world.best_ttft_s(11, 0.0, frozenset({ranked[0][1]})) == ranked[1][0]
    assert world.best_ttft_s(11, 0.0, frozenset(PERSONAS)) is None


def test_a_provider_is_silent_from_the_beginning_of_its_fault_to_the_end() -> None:
    faults = (Fault("replica killed", 5.0, 9.0, None), Fault("alpha hangs", 10.0, 20.0, "alpha"))

    assert [silent(faults, age_s) for age_s in (6.0, 9.9, 10.0, 19.9, 20.0)] == [
        frozenset(),
        frozenset(),
        frozenset({"alpha"}),
        frozenset({"alpha"}),
        frozenset(),
    ]
