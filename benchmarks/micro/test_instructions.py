"""Instructions that are counted: of which a verdict is made, under a clock that ticks alike."""

import subprocess
import sys

from benchmarks.micro.instructions import compared


def test_instructions_may_grow_by_half_a_per_cent_and_no_more() -> None:
    before = {"stream": 1000, "race": 1000}

    assert compared({"stream": 1005, "race": 900}, before, "HEAD^")[1] == []
    assert compared({"stream": 1006, "race": 900}, before, "HEAD^")[1] == ["stream: more than 0.5% more than at HEAD^"]


def test_a_way_that_was_not_counted_before_is_held_against_nothing() -> None:
    assert compared({"stream": 1000, "json": 5000}, {"stream": 1000}, "HEAD^")[1] == []


def test_a_ticking_clock_tells_the_same_time_for_the_same_readings() -> None:
    code = (
        "from benchmarks.micro import ticking; ticking.install(); import time; "
        "print([round(time.monotonic(), 5), round(time.perf_counter(), 5), time.monotonic_ns()])"
    )

    told = {subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout for _ in range(2)}

    assert told == {b"[0.0, 1e-05, 20000]\n"}
