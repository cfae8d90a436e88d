"""Measuring one scenario: its subjects take turns, so that a machine that grows slower grows slower for all."""

import subprocess
import sys
from collections.abc import Callable, Mapping

import msgspec

from benchmarks import procfs
from benchmarks.load import Order, Outcome
from benchmarks.scenarios import Scenario, Subject
from benchmarks.servers import FOLDER, Server, get_json

WARM_UP_SHARE = 0.2


class Sample(msgspec.Struct, frozen=True):
    """One subject in one round: CPU of the server's process tree per unit, and each call's latency.

    ``cut_share``: requests that the upstream saw cut before it had sent a byte, per call.
    """

    cpu_us: float
    latencies_ms: list[float]
    cut_share: float


Samples = dict[str, list[Sample]]  # by subject, one for each round


class LoadError(Exception):
    """The load generator found something broken."""


def measure(
    scenario: Scenario, servers: Mapping[str, Server], rounds: int, calls: int, progress: Callable[[str], None]
) -> Samples:
    """Measure every subject ``rounds`` times, ``calls`` calls each, after a warm-up.

    Raises:
        LoadError: an answer was not whole.

    """
    samples: Samples = {subject.name: [] for subject in scenario.subjects}
    for subject in scenario.subjects:
        progress(f"{scenario.name}: warming up {subject.name}")
        _run(scenario, subject, servers, max(scenario.concurrency, int(calls * WARM_UP_SHARE)))
    for number in range(1, rounds + 1):
        for subject in scenario.subjects:
            progress(f"{scenario.name}: round {number} of {rounds}, {subject.name}")
            samples[subject.name].append(_run(scenario, subject, servers, calls))
    return samples


def _run(scenario: Scenario, subject: Subject, servers: Mapping[str, Server], calls: int) -> Sample:
    server = servers[subject.server]
    order = Order(
        port=server.port,
        path=subject.path,
        model=subject.model,
        streamed=scenario.streamed,
        calls=calls,
        concurrency=scenario.concurrency,
        key=server.key,
        launched=subject.launched,
    )
    server.settle()
    cut_before = _cut(servers)
    before_s = procfs.cpu_s(server.pid)
    outcome = _load(order)
    server.settle()
    cpu_s = procfs.cpu_s(server.pid) - before_s
    return Sample(
        cpu_s / (calls * scenario.units_per_call) * 1e6, outcome.latencies_ms, (_cut(servers) - cut_before) / calls
    )


def _cut(servers: Mapping[str, Server]) -> int:
    return int(get_json(servers["upstream"].port, "/counts").get("cut_before_first_byte", 0))


def _load(order: Order) -> Outcome:
    command = [sys.executable, str(FOLDER / "load.py"), msgspec.json.encode(order).decode()]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise LoadError(done.stderr.decode().strip())
    return msgspec.json.decode(done.stdout, type=Outcome)
