"""The gateway under load, alone on a core: all else (load, mock upstream, this process) has the others."""

import http.client
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import fmean
from time import monotonic, sleep
from typing import Any

import msgspec
import yaml

from benchmarks.harness import gateways, machine
from benchmarks.harness.servers import Server, free_port, running, wait_until_listening

GAUGES = ("holeshot_loop_delay_seconds", "holeshot_calls_in_flight", "holeshot_calls_limit")
UNLIMITED: Mapping[str, Any] = {"max_in_flight": 1_000_000, "loop_delay_ms": 0}
_LOOK_S = 0.5
_PATIENCE_S = 30.0


class Seen(msgspec.Struct, frozen=True):
    """Means of what the gateway said of itself (None: it did not answer), and the share of its core that it used."""

    loop_delay_s: float | None
    in_flight: float | None
    limit: float | None
    core: float


def keep_a_core_free() -> int:
    """Leave one core to the gateway, for this process and all it starts; return the core.

    Raises:
        RuntimeError: there is only one.

    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise RuntimeError("it needs two cores: one for the gateway, one for all else")
    os.sched_setaffinity(0, cores[1:])
    return cores[0]


@contextmanager
def gateway(folder: Path, upstream_port: int, core: int, overload: Mapping[str, Any]) -> Iterator[Server]:
    """Run a gateway with these settings of overload on ``core``, until the block ends."""
    port, stores = free_port(), gateways.sqlite(folder)
    path = gateways.write_config(folder, upstream_port, port, stores)
    config = yaml.safe_load(path.read_text())
    config["overload"] = dict(overload)
    config["clients"]["benchmark"]["admin"] = True
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    gateways.migrate(stores.database_url)
    with running(gateways.gateway_command(path), {**gateways.environment(), "HOLESHOT_LAME_DUCK_S": "0"}) as process:
        os.sched_setaffinity(process.pid, {core})  # before it has other threads
        wait_until_listening(process, port)
        yield Server("gateway", process.pid, port, gateways.HEADERS, 1)


def settle(server: Server) -> None:
    """Wait until no call is in flight, and all rows are in SQL.

    Raises:
        RuntimeError: that does not happen.

    """
    end = monotonic() + _PATIENCE_S
    while _gauges(server)["holeshot_calls_in_flight"]:
        if monotonic() > end:
            raise RuntimeError("calls are still in flight, long after their clients have gone")
        sleep(_LOOK_S)
    server.settle()


@contextmanager
def watched(server: Server, after_s: float, window_s: float) -> Iterator[list[Seen]]:
    """Look at the gateway for ``window_s``, ``after_s`` from now; at the block's end the list has what was seen."""
    seen: list[Seen] = []
    looks: list[Mapping[str, float]] = []
    cpu_s: list[float] = []

    def look() -> None:
        sleep(after_s)
        ends = monotonic() + window_s
        cpu_s.append(machine.cpu_s(server.pid))
        while (left_s := ends - monotonic()) > 0:
            with suppress(OSError, http.client.HTTPException):  # without overload control it may not answer in time
                looks.append(_gauges(server, left_s))
            sleep(max(0.0, min(_LOOK_S, ends - monotonic())))
        cpu_s.append(machine.cpu_s(server.pid))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        thread.join()
    delay_s, in_flight, limit = (fmean(each[name] for each in looks) if looks else None for name in GAUGES)
    seen.append(Seen(delay_s, in_flight, limit, (cpu_s[1] - cpu_s[0]) / window_s))


def _gauges(server: Server, patience_s: float = _PATIENCE_S) -> Mapping[str, float]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=patience_s)
    try:
        connection.request("GET", "/metrics", headers=dict(server.headers))
        page = connection.getresponse().read().decode()
    finally:
        connection.close()
    lines = (line.rpartition(" ") for line in page.splitlines() if not line.startswith("#"))
    found = {name: float(value) for name, _, value in lines if name in GAUGES}
    if len(found) < len(GAUGES):
        raise http.client.HTTPException(f"not a page of metrics: {page[:200]!r}")
    return found
