"""How busy the machine is with other programs: latencies mean little where it is."""

import os
import time
from pathlib import Path

import msgspec

from benchmarks.harness.machine import cpu_s

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_IDLE = (3, 4)  # columns of /proc/stat: idle, waiting for a disk


class Reading(msgspec.Struct, frozen=True):
    """CPU seconds so far: of all programs, and of this one with its children; and when that was."""

    busy_s: float
    own_s: float
    at_s: float


def read() -> Reading | None:
    """Return a reading; None if a child ended while it was read."""
    ticks = [int(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    busy = sum(each for column, each in enumerate(ticks) if column not in _IDLE)
    try:
        own_s = cpu_s(os.getpid())
    except OSError:
        return None
    return Reading(busy / _TICKS_PER_S, own_s, time.monotonic())


def cores_of_others(before: Reading | None, after: Reading | None) -> float | None:
    """Return how many cores other programs had between two readings."""
    if before is None or after is None:
        return None
    taken_s = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return max(0.0, taken_s / (after.at_s - before.at_s))
