"""A whole gateway under random schedules: the first hundred, and a hundred by the seed. A failing seed is shrunk.

``SCHEDULES=10000`` runs the first ten thousand instead, ``make test WHAT=all`` the first five hundred. The first 300
find each defect of ``mutations.py`` but one, which only schedule 1,640 is known to find; ``test_mutations.py`` runs
that one without a defect, too.
"""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.schedules.__main__ import told
from tests.schedules.scenario import drawn, read
from tests.support.searched import SEED, WHOLE

ALWAYS, DRAWN = 100, 100
FAILED_ONCE = (4_005_188, 4_006_619, 4_006_636, 4_007_125)  # seeds beyond those that always run
SCHEDULES = int(os.environ.get("SCHEDULES", "500" if WHOLE else str(ALWAYS)))
FIRST_DRAWN = 10_000 + SEED % 100_000 * DRAWN


def result(*options: int | str) -> dict[str, object]:
    """Return what runs came to: in a process of their own, where nothing else changes the order of things."""
    command = [sys.executable, "-m", "tests.schedules", "--json", *map(str, options)]
    ordered = {**os.environ, "PYTHONHASHSEED": "0"}  # as it would set it itself, once it has imported all
    done = subprocess.run(command, env=ordered, stdout=subprocess.PIPE, text=True, check=False)
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("first", "count"),
    [(1, SCHEDULES), *([] if WHOLE else [(FIRST_DRAWN, DRAWN)]), *((seed, 1) for seed in FAILED_ONCE)],
)
def test_every_schedule_ends_as_it_must(first: int, count: int) -> None:
    if "SCHEDULES" in os.environ:
        signal.setitimer(signal.ITIMER_REAL, 0)  # so many may take hours: see tests/conftest.py
    came = result("--first", first, "--count", count)
    failed: dict[str, list[str]] = dict(came["failed"])  # type: ignore[call-overload] # JSON
    assert not failed, "".join(told(int(seed), failed[seed]) for seed in list(failed)[:2])
    assert came["scenarios"] == count
    assert int(str(came["calls"])) > count or count == 1


def test_a_scenario_is_what_was_written_of_it() -> None:
    assert all(read(drawn(seed).written()) == drawn(seed) for seed in range(50))
