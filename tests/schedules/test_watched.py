"""Schedules with viewers attached: nothing else goes another way, and what is told is what the ledger has."""

import pytest

from tests.schedules.checks import wrong
from tests.schedules.mutations import UNTOLD, Mutation, what_was_told_is_kept
from tests.schedules.scenario import drawn
from tests.schedules.simulation import Evidence, run
from tests.schedules.spectators import Look
from tests.support.searched import some

SEEDS = some(range(1, 201), always=20, drawn=10)


def problems_of(evidence: Evidence) -> list[str]:
    """Return what is wrong with a run, and with what its viewers were told."""
    return wrong(evidence) + [problem for each in evidence.spectators for problem in each.wrong(evidence)]


@pytest.mark.parametrize("look", list(Look))
def test_every_schedule_ends_as_it_must_while_somebody_looks(look: Look) -> None:
    failed = {}
    calls = 0
    for seed in SEEDS:
        evidence = run(drawn(seed), look=look)
        calls += len(evidence.witness.finished)
        if problems := problems_of(evidence):
            failed[seed] = problems
    assert not failed
    assert calls > len(SEEDS)


@pytest.mark.parametrize("mutation", UNTOLD, ids=lambda mutation: mutation.__name__)
def test_what_is_not_told_is_noticed(mutation: Mutation) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mutation(patch)
        assert any(problems_of(run(drawn(seed), look=Look.READS)) for seed in range(1, 11))


def test_what_is_kept_when_nobody_looks_is_noticed() -> None:
    with pytest.MonkeyPatch.context() as patch:
        what_was_told_is_kept(patch)
        assert any(problems_of(run(drawn(seed), look=Look.COMES_AND_GOES)) for seed in SEEDS)
