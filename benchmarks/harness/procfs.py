"""What the kernel knows of a process and its children: CPU time and memory. Linux only."""

import time
from pathlib import Path

_PROCESS_CPU_CLOCK = 2  # CPUCLOCK_SCHED of linux/posix-timers.h


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
