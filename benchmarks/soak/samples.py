"""What is seen of the gateway from outside, each second."""

import http.client
from pathlib import Path

import msgspec

from benchmarks.harness import machine
from benchmarks.harness.servers import START_LIMIT_S, Server

GAUGES = ("holeshot_tasks", "holeshot_ledger_pending")


class Sample(msgspec.Struct, frozen=True):
    """One look. ``calls`` have ended by then; ``pending`` of them are not in SQL yet."""

    at_s: float  # since the first call
    rss_mb: float  # resident, 10^6 bytes
    descriptors: int
    tasks: int  # of its event loop, the one that answers included
    pending: int
    spool_kb: float  # on disk, 10^3 bytes
    calls: int = 0


def look(gateway: Server, spool: Path, at_s: float, calls: int = 0) -> Sample:
    """Return what is seen now.

    Raises:
        OSError: there is no such process, or it does not answer.

    """
    tasks, pending = (int(value) for value in gauges(_page(gateway)))
    return Sample(
        at_s=at_s,
        rss_mb=machine.memory_mb(gateway.pid),
        descriptors=machine.descriptors(gateway.pid),
        tasks=tasks,
        pending=pending,
        spool_kb=sum(_size(path) for path in spool.rglob("*")) / 1000,
        calls=calls,
    )


def gauges(page: str) -> list[float]:
    """Return the values of ``GAUGES`` on a page of metrics.

    Raises:
        LookupError: one is not there.

    """
    found = dict(line.rsplit(" ", 1) for line in page.splitlines() if line.startswith(GAUGES))
    return [float(found[name]) for name in GAUGES]


def _page(gateway: Server) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=START_LIMIT_S)
    try:
        connection.request("GET", "/metrics", headers=dict(gateway.headers))
        response = connection.getresponse()
        page = response.read().decode()
        if response.status != 200:
            raise OSError(f"/metrics: {response.status}, {page[:200]}")
        return page
    finally:
        connection.close()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:  # shipped meanwhile
        return 0
