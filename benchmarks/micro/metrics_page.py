"""What ``/metrics`` does to the loop: a page of 1,000 series, 200 of them histograms, alone and with several workers.

    python -m benchmarks.micro.metrics_page

Prints the CPU of a page, and the longest time for which nobody else on the loop got to run while it was made.
"""

import asyncio
import os
import shutil
import sys
import tempfile
import time
from itertools import product
from random import Random

import uvloop
from msgspec.structs import replace

from gateway.core.attempts import AttemptRecord, Outcome, Role
from gateway.core.calls import CallRecord
from gateway.watching.metrics import MULTIPROCESS_FOLDER, Metrics
from tests.support.recorded import deployments, race

MODELS = [f"model-{number}" for number in range(10)]
NAMES = deployments(95)
OUTCOMES = (Outcome.WON, Outcome.LOST, Outcome.FAILED, Outcome.TIMEOUT)
WORKERS = 4
PAGES = 10


def fed() -> Metrics:
    """Metrics with a series of each kind for every deployment."""
    known: dict[str, object] = dict.fromkeys(MODELS)
    metrics = Metrics(lambda: known)
    random = Random(1)
    for (number, model), (at, name) in product(enumerate(MODELS), enumerate(NAMES)):
        start, record = race(random, NAMES)
        metrics.attempt_started(model, replace(start.attempts[0], deployment=name))
        metrics.attempt_ended(model, of(record, name, Role.RACE, Outcome.WON))
        kind = at + number % 4
        role, outcome = list(Role)[kind % len(Role)], OUTCOMES[kind % len(OUTCOMES)]
        metrics.attempt_started(model, replace(start.attempts[0], deployment=name))
        metrics.attempt_ended(model, of(record, name, role, outcome))
        metrics.call_finished(replace(record, model=model))
    return metrics


def of(record: CallRecord, deployment: str, role: Role, outcome: Outcome) -> AttemptRecord:
    return replace(record.attempts[0], deployment=deployment, role=role, outcome=outcome)


class Loop:
    """The longest time between two turns of the loop."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def watch(self) -> None:
        last_s = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            now_s = time.perf_counter()
            self.longest_s = max(self.longest_s, now_s - last_s)
            last_s = now_s


async def measure(what: str, metrics: Metrics) -> None:
    page, _ = await metrics.render()
    cpu_s, gaps_ms = time.process_time(), []
    for _ in range(PAGES):
        await metrics.render()
    cpu_s = (time.process_time() - cpu_s) / PAGES
    for _ in range(PAGES):
        loop = Loop()
        watching = asyncio.create_task(loop.watch())
        await asyncio.sleep(0)
        await metrics.render()
        watching.cancel()
        gaps_ms.append(loop.longest_s * 1000)
    lines = [line for line in page.decode().splitlines() if not line.startswith("#")]
    histograms = sum('le="+Inf"' in line for line in lines)
    series = histograms + sum(
        not any(end in line.partition("{")[0] for end in ("_bucket", "_sum", "_count", "_created")) for line in lines
    )
    gaps_ms.sort()
    print(
        f"{what}: {series} series, {histograms} histograms, {len(page) / 1000:.0f} KB; {cpu_s * 1000:.1f} ms of CPU; "
        f"the loop waited {gaps_ms[PAGES // 2]:.2f} ms at most (median of {PAGES} pages; worst {gaps_ms[-1]:.2f})"
    )


def one_of_several(folder: str) -> None:
    """Feed as many workers as there are, this process the last."""
    os.environ[MULTIPROCESS_FOLDER] = folder
    for _ in range(WORKERS - 1):
        pid = os.fork()
        if not pid:
            fed()
            os._exit(0)
        os.waitpid(pid, 0)
    uvloop.run(measure(f"one of {WORKERS} workers", fed()))


def main() -> None:
    folder = os.environ.get(MULTIPROCESS_FOLDER)
    if folder is not None:
        one_of_several(folder)
        return
    uvloop.run(measure("one process", fed()))
    folder = tempfile.mkdtemp(prefix="holeshot-metrics-")
    try:
        os.spawnve(os.P_WAIT, sys.executable, [sys.executable, *sys.argv], {**os.environ, MULTIPROCESS_FOLDER: folder})
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
