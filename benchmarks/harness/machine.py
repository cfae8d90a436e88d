"""What the kernel knows of processes, CPU time and memory, and of a server under load. Linux only."""

import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_USED = (0, 1, 2, 5, 6, 7)  # of a line in /proc/stat: user, nice, system, irq, softirq, steal
_PROCESS_CPU_CLOCK = 2  # CPUCLOCK_SCHED of linux/posix-timers.h
LOOKS = 30  # that the cost of one is taken from


def tree(pid: int) -> list[int]:
    """Return ``pid`` and all its descendants that are alive."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += tree(int(child))
    return found


def cpu_s(pid: int) -> float:
    """Return the CPU seconds, user and system, used so far by ``pid`` and its living descendants, all threads.

    Read from each process's own CPU clock, which counts nanoseconds; /proc/PID/stat counts in steps of 10 ms.
    """
    return sum(time.clock_gettime((~each << 3) | _PROCESS_CPU_CLOCK) for each in tree(pid))


def memory_mb(pid: int, kind: str = "Rss") -> float:
    """Return the resident (``Rss``) or proportional (``Pss``) memory of ``pid`` and its descendants, in 10^6 bytes."""
    return sum(_rollup_kb(each, kind) for each in tree(pid)) * 1024 / 1e6


def descriptors(pid: int) -> int:
    """Return how many descriptors ``pid`` and its descendants have open."""
    return sum(len(list(Path(f"/proc/{each}/fd").iterdir())) for each in tree(pid))


def forget_peak(pid: int) -> None:
    """Have ``peak_mb`` count from now."""
    for each in tree(pid):
        Path(f"/proc/{each}/clear_refs").write_text("5")


def peak_mb(pid: int) -> float:
    """Return the most memory that was resident at a time, of ``pid`` and its descendants, in 10^6 bytes."""
    return sum(_peak_kb(each) for each in tree(pid)) * 1024 / 1e6


def _peak_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise LookupError(f"the kernel tells no peak of process {pid}")


def _rollup_kb(pid: int, kind: str) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == kind:
            return int(value.split()[0])
    raise LookupError(f"the kernel tells no {kind} of process {pid}")


class Settling(Protocol):
    """A server that can be asked whether it has work left; each look costs it CPU."""

    @property
    def pid(self) -> int:
        """Its process; its children count."""

    @property
    def workers(self) -> int:
        """Who looks: none, and it has never work left and is never looked at."""

    def settle(self) -> int:
        """Wait until no work is left, and return how often that was looked for."""

    def look(self) -> bool:
        """Tell whether work is left."""


class Spent:
    """What a load took. ``cpu_s`` is known once its block has ended."""

    def __init__(self) -> None:
        self.cpu_s = 0.0


@contextmanager
def metered(server: Settling, cpu_s: Callable[[int], float] = cpu_s) -> Iterator[Spent]:
    """Measure the CPU seconds that ``server`` takes for the load of the block and for what is left to do after it.

    What a look costs is measured before the block, while nothing else is going on, and is taken off for each.
    """
    server.settle()
    look_s = _look_s(server, cpu_s)
    spent = Spent()
    before_s = cpu_s(server.pid)
    yield spent
    looks = server.settle()
    spent.cpu_s = cpu_s(server.pid) - before_s - looks * look_s


def _look_s(server: Settling, cpu_s: Callable[[int], float]) -> float:
    if not server.workers:
        return 0.0
    before_s = cpu_s(server.pid)
    for _ in range(LOOKS):
        server.look()
    return (cpu_s(server.pid) - before_s) / LOOKS


class Company:
    """The cores that other programs of this machine use, from its making until ``cores`` is asked."""

    def __init__(self) -> None:
        self._began = (time.monotonic(), _others_s())

    def cores(self) -> float:
        """Return how many, on average; what the kernel does for us, but not in our name, is among it."""
        began, others_s = self._began
        return max(0.0, (_others_s() - others_s) / (time.monotonic() - began))


def _others_s() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    while True:
        line = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
        with suppress(OSError):  # a child ended while it was read
            own_s = cpu_s(os.getpid()) + ended.ru_utime + ended.ru_stime
            return sum(int(line[number]) for number in _USED) * _TICK_S - own_s
