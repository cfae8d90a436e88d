"""The checker is checked: a deliberate defect of the engine is found within a few hundred schedules."""

import pytest

from tests.schedules.checks import wrong
from tests.schedules.mutations import MUTATIONS, Mutation
from tests.schedules.scenario import drawn
from tests.schedules.simulation import run

MOST_SCHEDULES = 300


def caught_by(mutation: Mutation) -> str | None:
    """Return what a schedule said of the defect, None if none did."""
    with pytest.MonkeyPatch.context() as patch:
        mutation(patch)
        for seed in range(1, 1 + MOST_SCHEDULES):
            try:
                problems = wrong(run(drawn(seed)))
            except Exception as error:  # noqa: BLE001 - whatever it is, it was noticed
                return repr(error)
            if problems:
                return problems[0]
    return None


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_defect_is_caught(mutation: Mutation) -> None:
    assert caught_by(mutation) is not None
