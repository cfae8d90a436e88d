"""The memory that this process may use, and how many calls at once it is enough for."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# A race of two takes 55 KB with its connections, 171 KB if they are TLS with HTTP/1.1 (docs/performance.md); the rest
# is for its prompt, as it was sent and as it is sent on. max_body_mb limits prompts that are much longer.
BYTES_PER_CALL = 256 * 1024
IDLE_BYTES = 128 * 1024 * 1024  # a gateway at rest
SHARE_FOR_CALLS = 0.5  # of the rest
# The other half is for rows, caches and long prompts: a long prompt is in memory as it was sent and, while it is raced,
# as it is sent on, so a quarter is the budget of bodies.
SHARE_FOR_BODIES = 0.25
FEWEST_CALLS = 64
FEWEST_BODY_BYTES = 16 * 1024 * 1024

_PROC_CGROUP = Path("/proc/self/cgroup")
_CGROUP_MOUNT = Path("/sys/fs/cgroup")


def calls_in(memory_bytes: int, workers: int = 1) -> int:
    """Return how many calls at once each of ``workers`` processes has memory for."""
    each = memory_bytes / workers - IDLE_BYTES
    return max(FEWEST_CALLS, int(each * SHARE_FOR_CALLS / BYTES_PER_CALL))


def body_bytes_in(memory_bytes: int, workers: int = 1) -> int:
    """Return how many bytes of bodies, unpacked, each of ``workers`` processes has memory for."""
    return max(FEWEST_BODY_BYTES, int((memory_bytes / workers - IDLE_BYTES) * SHARE_FOR_BODIES))


def memory_limit(proc_cgroup: Path = _PROC_CGROUP, mount: Path = _CGROUP_MOUNT) -> int:
    """Return the bytes of memory that this process may use: the machine's, or the limit of its cgroup or one above."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *_cgroup_limits(proc_cgroup, mount)])


def _cgroup_limits(proc_cgroup: Path, mount: Path) -> Iterator[int]:
    for path in _limit_files(proc_cgroup, mount):
        try:
            text = path.read_text().strip()
        except OSError:  # this kernel or container has none there
            continue
        if text.isdecimal():  # else "max"
            yield int(text)


def _limit_files(proc_cgroup: Path, mount: Path) -> Iterator[Path]:
    """Yield where limits may be, with both versions of cgroups."""
    groups = [("", "/"), ("memory", "/")]  # in a container its own cgroup may be at the mount
    with suppress(OSError):
        for line in proc_cgroup.read_text().splitlines():
            _, controllers, group = line.split(":", 2)  # version 2 names no controllers
            if not controllers or "memory" in controllers.split(","):
                groups.append((controllers, group))
    for controllers, group in groups:
        own = Path(group.lstrip("/"))
        for each in (own, *own.parents):
            yield mount / "memory" / each / "memory.limit_in_bytes" if controllers else mount / each / "memory.max"
