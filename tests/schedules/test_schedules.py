"""A whole gateway under five hundred schedules. ``SCHEDULES=10000`` runs more; a failing seed is printed, and shrunk.

The first 300 find each defect of ``mutations.py`` but one, which only schedule 1,640 is known to find;
``test_mutations.py`` runs that one without a defect, too.
"""

import json
import os
import subprocess
import sys

import pytest

from tests.schedules.__main__ import told
from tests.schedules.scenario import drawn, read

SCHEDULES = int(os.environ.get("SCHEDULES", "500"))
PROCESSES = 2  # side by side


@pytest.fixture(scope="module")
def results() -> list[dict[str, object]]:
    """What the runs came to: in processes of their own, where nothing else changes the order of things."""
    common = ("--json", "--step", str(PROCESSES), "--count", str(SCHEDULES // PROCESSES))
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.schedules", *common, "--first", str(1 + number)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    return [json.loads(process.communicate()[0]) for process in running]


def test_every_schedule_ends_as_it_must(results: list[dict[str, object]]) -> None:
    failed = {int(seed): problems for result in results for seed, problems in dict(result["failed"]).items()}  # type: ignore[call-overload] # JSON
    assert not failed, "".join(told(seed, failed[seed]) for seed in list(failed)[:2])
    assert sum(int(str(result["scenarios"])) for result in results) == SCHEDULES // PROCESSES * PROCESSES


def test_schedules_are_of_many_calls(results: list[dict[str, object]]) -> None:
    assert sum(int(str(result["calls"])) for result in results) > SCHEDULES


def test_a_scenario_is_what_was_written_of_it() -> None:
    assert all(read(drawn(seed).written()) == drawn(seed) for seed in range(50))
