"""Who else uses this machine: a figure that somebody else had a part in says little."""

import os
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from benchmarks.harness import machine

CALM = 0.15  # cores that others may use; what the kernel does for us, but not in our name, is among it
_T = TypeVar("_T")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_USED = (0, 1, 2, 5, 6, 7)  # of a line in /proc/stat: user, nice, system, irq, softirq, steal


class Company:
    """The cores that others use, from its making until ``cores`` is asked. ``pids`` are servers of our own."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._began = (time.monotonic(), self._others_s())

    def cores(self) -> float:
        """Return how many cores others have used, on average; the kernel's own work for us is among it."""
        began, others_s = self._began
        return (self._others_s() - others_s) / (time.monotonic() - began)

    def _others_s(self) -> float:
        line = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        own_s = sum(each.ru_utime + each.ru_stime for each in used) + sum(map(machine.cpu_s, self._pids))
        return sum(int(line[number]) for number in _USED) * _TICK_S - own_s


class Quiet:
    """Measures again when others used the machine meanwhile, up to ``tries`` times."""

    def __init__(self, pids: Sequence[int], tries: int, say: Callable[[str], None]) -> None:
        self._pids = pids
        self._tries = tries
        self._say = say

    def measured(self, measure: Callable[[], _T]) -> tuple[_T, float]:
        """Return what the calmest try measured, and how many cores others used then."""
        found: list[tuple[float, _T]] = []
        while len(found) < self._tries:
            company = Company(self._pids)
            result = measure()
            found.append((company.cores(), result))
            if found[-1][0] <= CALM:
                break
            self._say(f"others used {found[-1][0]:.2f} cores")
        others, result = min(found, key=lambda each: each[0])
        return result, others
