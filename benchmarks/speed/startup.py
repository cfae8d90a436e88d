"""How long the gateway takes from its start to its first answer, and how much memory it holds when idle."""

import http.client
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.harness import machine
from benchmarks.harness.report import Row, row
from benchmarks.speed.scenarios import Effort
from tests.support.measured import gateways
from tests.support.measured.gateways import MeasuredServers, Stores
from tests.support.measured.servers import START_LIMIT_S, running, wait_for
from tests.support.servers import free_port

NAME = "start"
STARTS, QUICK_STARTS = 5, 2
FIRST_ANSWER_S, IDLE_MB = 0.6, 95.0
IDLE_S = 2.0  # for the first looks of the background tasks to be over


class Start(msgspec.Struct, frozen=True):
    """One start: seconds from exec to the first whole answer; 10^6 bytes some seconds later."""

    first_answer_s: float
    rss_mb: float
    pss_mb: float


def rows(measured: MeasuredServers, effort: Effort) -> Iterator[Row]:
    """Measure starts with the stores of production, and the first one of somebody who has none."""
    upstream_port, stores = measured.upstream.port, measured.stores()
    with tempfile.TemporaryDirectory(prefix="holeshot-start-") as name:
        folder = Path(name)
        bytecode = folder / "bytecode"
        effort.say(f"{NAME}: compiling")
        measure_start(upstream_port, folder / "compiled", stores, bytecode)
        starts = []
        for number in range(1, (QUICK_STARTS if effort.quick else STARTS) + 1):
            effort.say(f"{NAME}: number {number}")
            starts.append(measure_start(upstream_port, folder / "started", stores, bytecode))
        effort.say(f"{NAME}: with a new database")
        new = measure_start(upstream_port, folder / "new", gateways.sqlite(folder / "new"), bytecode)
    pss_mb = median(start.pss_mb for start in starts)
    yield row("start to first answer", [start.first_answer_s for start in starts], "s", at_most=FIRST_ANSWER_S)
    yield Row(title="start to first answer, making an SQLite database", value=new.first_answer_s, unit="s")
    yield row(
        "memory of one idle worker (resident)",
        [start.rss_mb for start in starts],
        "MB",
        at_most=IDLE_MB,
        detail=f"proportional: {pss_mb:.0f} MB",
    )


def measure_start(upstream_port: int, folder: Path, stores: Stores, bytecode: Path) -> Start:
    """Start a gateway in ``folder``, call it once, look at it, stop it.

    Modules are compiled into ``bytecode`` by the first start that uses it, as pip does when it installs.
    """
    port = free_port()
    command = gateways.gateway_command(gateways.write_config(folder, upstream_port, port, stores))
    began = time.monotonic()
    environment = gateways.environment() | {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(bytecode)}
    with running(command, environment) as process:
        _first_answer(process, port)
        first_answer_s = time.monotonic() - began
        time.sleep(IDLE_S)
        return Start(first_answer_s, machine.memory_mb(process.pid, "Rss"), machine.memory_mb(process.pid, "Pss"))


def _first_answer(process: subprocess.Popen[bytes], port: int) -> None:
    body = msgspec.json.encode({"model": "burst-single", "messages": [{"role": "user", "content": "hi"}]})

    def answers() -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_LIMIT_S)
        try:
            connection.request("POST", gateways.PATH, body, {"content-type": "application/json", **gateways.HEADERS})
            return connection.getresponse().status == 200
        except ConnectionRefusedError:
            return False
        finally:
            connection.close()

    if not wait_for(answers, process, START_LIMIT_S):
        raise RuntimeError("the gateway did not start, or did not answer")
