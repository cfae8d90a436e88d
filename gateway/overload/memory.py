"""The memory open to this process, and the numbers of calls, bodies and connections computed from it."""

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# A race of two takes 55 KB with its connections, 171 KB with TLS and HTTP/1.1 (docs/performance.md); the rest is for
# its prompt, as received and as sent upstream. max_body_mb limits much longer prompts.
BYTES_PER_CALL = 256 * 1024
IDLE_BYTES = 128 * 1024 * 1024  # a gateway at rest
SHARE_FOR_CALLS = 0.5  # of the memory without ``IDLE_BYTES``
# The other half is for rows, caches and long prompts: a long prompt is in memory as received and, during the race, as
# sent upstream, so a quarter is the budget of bodies.
SHARE_FOR_BODIES = 0.25
FEWEST_CALLS = 64
SHARE_FOR_ANSWERS = 0.8  # of all memory: a process above it takes on no large answers
FEWEST_BODY_BYTES = 16 * 1024 * 1024
# The last quarter is for idle connections: a client with a key may open any number of connections.
BYTES_PER_CONNECTION = 32 * 1024
SHARE_FOR_CONNECTIONS = 0.25
FEWEST_CONNECTIONS = 1024
UNKNOWN_MEMORY_BYTES = 2 * 1024**3  # assumed where neither the machine nor a cgroup reports a figure

_PROC_CGROUP = Path("/proc/self/cgroup")
_CGROUP_MOUNT = Path("/sys/fs/cgroup")


# Of glibc's <malloc.h>. By default glibc keeps up to 64 MB of freed memory after a large body, and more per thread.
_MALLOPT = {
    -1: 4 * 2**20,  # a longer free end of the heap, in bytes, is returned
    -3: 2**20,  # a block of at least so many bytes is returned when it is freed
    -8: 1,  # threads share one heap, as they wait for the interpreter anyway
}


def return_freed_memory() -> None:
    """Have the C library return the memory of large bodies to the system, if the library can do so."""
    with suppress(ImportError, AttributeError):  # a Python without ctypes, a C library without mallopt
        import ctypes  # noqa: PLC0415 - some builds have none

        library = ctypes.CDLL(None)
        for which, value in _MALLOPT.items():
            library.mallopt(which, value)


def return_scattered_memory() -> None:
    """Return free memory between used blocks to the system, as after a crowd of connections: some milliseconds."""
    with suppress(ImportError, AttributeError):
        import ctypes  # noqa: PLC0415 - likewise

        ctypes.CDLL(None).malloc_trim(0)


def calls_in(memory_bytes: int, workers: int = 1) -> int:
    """Return the number of concurrent calls that fit into the memory of each of ``workers`` processes."""
    each = memory_bytes / workers - IDLE_BYTES
    return max(FEWEST_CALLS, int(each * SHARE_FOR_CALLS / BYTES_PER_CALL))


def body_bytes_in(memory_bytes: int, workers: int = 1) -> int:
    """Return the number of unpacked bytes of bodies that fit into the memory of each of ``workers`` processes."""
    return max(FEWEST_BODY_BYTES, int((memory_bytes / workers - IDLE_BYTES) * SHARE_FOR_BODIES))


def connections_in(memory_bytes: int, workers: int = 1) -> int:
    """Return the number of idle connections that fit into the memory of each of ``workers`` processes."""
    each = memory_bytes / workers - IDLE_BYTES
    return max(FEWEST_CONNECTIONS, int(each * SHARE_FOR_CONNECTIONS / BYTES_PER_CONNECTION))


def memory_limit(proc_cgroup: Path = _PROC_CGROUP, mount: Path = _CGROUP_MOUNT) -> int:
    """Return the bytes of memory open to this process: the least of the machine's, its own limits and its cgroups'.

    Figures that the system does not report are ignored; without any, ``UNKNOWN_MEMORY_BYTES``.
    """
    limits = [*_machines_memory(), *_own_limits(), *_cgroup_limits(proc_cgroup, mount)]
    return min(limits, default=UNKNOWN_MEMORY_BYTES)


def _own_limits() -> Iterator[int]:
    """Yield the limits set by ``ulimit -v`` and ``ulimit -d``."""
    for which in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, _ = resource.getrlimit(which)
        if soft != resource.RLIM_INFINITY:
            yield soft


def _machines_memory() -> Iterator[int]:
    with suppress(ValueError, OSError):  # the system has no such figure
        if (pages := os.sysconf("SC_PHYS_PAGES")) > 0:
            yield pages * os.sysconf("SC_PAGE_SIZE")


def _cgroup_limits(proc_cgroup: Path, mount: Path) -> Iterator[int]:
    for path in _limit_files(proc_cgroup, mount):
        try:
            text = path.read_text().strip()
        except OSError:  # this kernel or container has no such file
            continue
        if text.isdecimal():  # else "max"
            yield int(text)


def _limit_files(proc_cgroup: Path, mount: Path) -> Iterator[Path]:
    """Yield the files with a possible limit, for both versions of cgroups."""
    groups = [("", "/"), ("memory", "/")]  # a container's own cgroup may be at the mount
    with suppress(OSError):
        for line in proc_cgroup.read_text().splitlines():
            _, controllers, group = line.split(":", 2)  # version 2 names no controllers
            if not controllers or "memory" in controllers.split(","):
                groups.append((controllers, group))
    for controllers, group in groups:
        folder = Path(group.lstrip("/"))
        for each in (folder, *folder.parents):
            yield mount / "memory" / each / "memory.limit_in_bytes" if controllers else mount / each / "memory.max"
