"""What the metrics say of the process itself, by the names that Prometheus' client libraries use."""

import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path

from gateway import __version__
from gateway.watching.metrics import Metrics
from gateway.watching.series import Family

BUILD = Family("holeshot_build_info", "The running version; always 1.", "gauge", ("python", "version"), merge="max")
WORKERS = Family("holeshot_workers", "Worker processes that are running.", "gauge")
STARTED = Family("process_start_time_seconds", "Unix time at which the oldest worker started.", "gauge", merge="min")
CPU = Family("process_cpu_seconds_total", "CPU time, user and system, of all workers.", "counter")
MEMORY = Family("process_resident_memory_bytes", "Resident memory of all workers; Linux only.", "gauge")

_STATM = Path("/proc/self/statm")


def add_process_figures(metrics: Metrics) -> None:
    """Add the figures of this process to ``metrics``."""
    started_s = time.time()
    build = (platform.python_version(), __version__)
    metrics.read_series(BUILD, lambda: {build: 1.0})
    metrics.read_series(WORKERS, lambda: {(): 1.0})
    metrics.read_series(STARTED, lambda: {(): started_s})
    metrics.read_series(CPU, lambda: {(): time.process_time()})
    metrics.read_series(MEMORY, _memory)


def _memory() -> Mapping[tuple[str, ...], float]:
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[1])
    except OSError:
        return {}
    return {(): float(pages * os.sysconf("SC_PAGE_SIZE"))}
