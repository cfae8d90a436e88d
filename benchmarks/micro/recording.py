"""What one recorded call costs: a race of two, as everybody hears of it who keeps a record of calls.

    python -m benchmarks.micro.recording [calls]

Microseconds of CPU per call by process time, the best of seven rounds, the making of the records not counted. Nothing
is shipped here (``ledger_rows``) and no Redis is told (``planning``); the log goes to a file.
"""

import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import uvloop

from gateway.core.calls import CallRecord, CallStart, Objective
from gateway.core.ids import new_id
from gateway.ledger.spool import Spool
from gateway.settings import RaceSettings
from gateway.steering import MemoryBoard, Steering, Terms
from gateway.watching import logs
from gateway.watching.metrics import Metrics
from tests.support.recorded import MODEL, SHORT, Race, begun, deployments, ended, races

ROUNDS = 7
NAMES = deployments(3)
RACE = RaceSettings()


def cost_us(made: list[Race], act: Callable[[CallStart, CallRecord], object]) -> float:
    """The least CPU time of a round, microseconds for each of ``made``."""
    rounds = []
    for _ in range(ROUNDS):
        before_s = time.process_time()
        for start, record in made:
            act(start, record)
        rounds.append(time.process_time() - before_s)
    return min(rounds) / len(made) * 1e6


def measure(made: list[Race], folder: Path) -> dict[str, float]:
    table: dict[str, float] = {}
    spool = Spool(folder / "worker", now_s=0.0)
    table["spool: start"] = cost_us(made, lambda start, _record: spool.call_started(start))
    table["spool: end"] = cost_us(made, lambda _start, record: spool.call_finished(record))
    spool.close(remove=True)
    steering = Steering(MemoryBoard(), clock=time.monotonic, unix_clock=time.time, random=Random(1))
    known: dict[str, object] = {MODEL: None}
    metrics = Metrics(lambda: known)

    def heard(start: CallStart, record: CallRecord) -> None:
        begun(steering, start)
        ended(steering, start, record)

    def planned(_start: CallStart, _record: CallRecord) -> None:
        steering.plan(MODEL, NAMES, RACE, Terms(Objective.FIRST_TOKEN, prompt_tokens=812), SHORT)

    def counted(start: CallStart, record: CallRecord) -> None:
        for started in start.attempts:
            metrics.attempt_started(MODEL, started)
        for each in record.attempts:
            metrics.attempt_ended(MODEL, each)
        metrics.call_finished(record)

    table["steering: board and health"] = cost_us(made, heard)
    table["steering: plan"] = cost_us(made, planned)
    table["metrics"] = cost_us(made, counted)
    table["ids: three"] = cost_us(made, lambda _start, _record: (new_id(), new_id(), new_id()))
    table["log line"] = uvloop.run(logged(made, folder / "log"))
    return table


async def logged(made: list[Race], file: Path) -> float:
    """The log line, written where standard error goes, on a loop."""
    own = os.dup(2)
    with file.open("wb") as written:
        os.dup2(written.fileno(), 2)
        try:
            logs.configure("info", "json")
            log = logs.CallLog()
            return cost_us(made, lambda _start, record: log.call_finished(record))
        finally:
            logging.shutdown()  # what is held goes there too
            os.dup2(own, 2)
            os.close(own)


def main() -> None:
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    made = list(races(number, Random(1), NAMES))
    with tempfile.TemporaryDirectory(prefix="holeshot-recording-") as folder:
        table = measure(made, Path(folder))
    nothing_us = cost_us(made, lambda _start, _record: None)
    print("what one recorded call costs, two attempts, µs of CPU")
    for name, us in table.items():
        print(f"  {name:<28}{us - nothing_us:8.2f}")
    print(f"  {'in all':<28}{sum(table.values()) - len(table) * nothing_us:8.2f}")


if __name__ == "__main__":
    main()
