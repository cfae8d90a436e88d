"""The checker is checked: a deliberate defect of the engine is found within a few hundred schedules."""

import gc
import inspect
import re
import sys
from collections.abc import Iterator
from inspect import Parameter
from math import inf
from typing import Any

import pytest

from tests.schedules.checks import wrong
from tests.schedules.loop import StuckError
from tests.schedules.mutations import MUTATIONS, Mutation
from tests.schedules.scenario import drawn
from tests.schedules.simulation import run
from tests.support.searched import some

MOST_SCHEDULES = 300
# What is raised by a defect that was written for an engine with other names, or for other arguments.
STALE = re.compile(r"nothing_crashed: .*(AttributeError|NameError|TypeError)\(", re.DOTALL)
# The first schedules that find the rarest defects. They only come first: if one no longer does, all are tried.
KNOWN = {
    "a_body_is_drained_for_as_long_as_it_is_open": 50,
    "a_client_that_leaves_is_not_noticed": 7,
    "a_hold_is_never_released": 9,
    "a_rival_is_not_called": 1640,
    "a_rival_runs_on_when_it_is_not_needed": 56,
    "a_seat_is_given_back_too_soon": 32,
    "a_slow_one_is_cut_before_another_goes_on": 31,
    "a_timer_is_left": 10,
    "a_token_is_held_without_being_asked_for": 181,
    "a_word_at_the_seam_is_sent_twice": 21,
    "an_answer_is_not_checked": 265,
    "an_attempt_outlives_the_gateway": 168,
    "an_invalid_answer_is_let_through": 388,
    "more_calls_are_taken_on_than_may_be": 23,
    "no_rival_is_kept": 22,
    "the_first_token_counts_as_decoded": 7,
    "what_is_to_be_held_back_is_sent": 21,
    "what_was_held_back_is_lost": 31,
}


@pytest.fixture(scope="module", autouse=True)
def collect_only_what_is_new() -> Iterator[None]:
    """Keep what other tests have left out of the collections, which took five times as long as the schedules."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()  # what lives on, as when the tests were collected


def caught_by(mutation: Mutation) -> str | None:
    """Return what a schedule said of the defect, None if none did.

    Raises:
        Exception: the defect does not fit the engine, so it is not the one that is meant.

    """
    with pytest.MonkeyPatch.context() as patch:
        mutation(patch)
        for seed in (KNOWN.get(mutation.__name__, 1), *range(1, 1 + MOST_SCHEDULES)):
            try:
                problems = wrong(run(drawn(seed)))
            except StuckError as error:
                return repr(error)
            if stale := next(filter(STALE.match, problems), None):
                raise AssertionError(stale)
            if problems:
                return problems[0]
    return None


@pytest.mark.parametrize("seed", sorted(set(KNOWN.values())))
def test_without_a_defect_nothing_is_caught(seed: int) -> None:
    assert wrong(run(drawn(seed))) == []


def takes(function: Any) -> tuple[float, set[str]]:
    """Return how many arguments it takes by position, and which by name alone; "**" stands for any."""
    kinds = [(each.name, each.kind) for each in inspect.signature(function).parameters.values()]
    number = {Parameter.POSITIONAL_ONLY: 1.0, Parameter.POSITIONAL_OR_KEYWORD: 1.0, Parameter.VAR_POSITIONAL: inf}
    placed = sum(number[kind] for _, kind in kinds if kind in number)
    named = {name for name, kind in kinds if kind is Parameter.KEYWORD_ONLY}
    return placed, named | {"**" for _, kind in kinds if kind is Parameter.VAR_KEYWORD}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_defect_takes_what_its_original_does(mutation: Mutation) -> None:
    """Each, each day: those that are drawn tell only then that the engine has gone on without them."""
    with pytest.MonkeyPatch.context() as patch:
        mutation(patch)
        for owner, name, original in patch._setattr:
            (placed, named), (placed_here, named_here) = takes(original), takes(getattr(owner, name))
            assert placed_here >= placed, name
            assert named <= named_here or "**" in named_here, name


@pytest.mark.parametrize("mutation", some(MUTATIONS, always=0, drawn=16), ids=lambda mutation: mutation.__name__)
def test_a_defect_is_caught(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    # A run without an end leaves coroutines that cannot be closed: no other test shall meet them.
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    caught = caught_by(mutation)
    for _ in range(3):  # the end of one frees others
        gc.collect()
    assert caught is not None
