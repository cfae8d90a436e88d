"""How long the gateway takes from its start to its first answer, and how much memory it holds when idle."""

import http.client
import os
import subprocess
import time
from pathlib import Path

import msgspec

from benchmarks import procfs
from benchmarks.servers import KEY, START_LIMIT_S, free_port, gateway_command, running, write_config

IDLE_S = 2.0  # for the first looks of the background tasks to be over
_LOOK_S = 0.002


class Start(msgspec.Struct, frozen=True):
    """One start: seconds from exec to the first whole answer; 10^6 bytes some seconds later."""

    first_answer_s: float
    rss_mb: float
    pss_mb: float


def measure_start(upstream_port: int, folder: Path, bytecode: Path) -> Start:
    """Start a gateway in ``folder`` (a new one: its database is made too), call it once, look at it, stop it.

    Modules are compiled into ``bytecode`` by the first start that uses it, as pip does when it installs.
    """
    port = free_port()
    command = gateway_command(write_config(folder, upstream_port, port))
    began = time.monotonic()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with running(command, {**environment, "PYTHONPYCACHEPREFIX": str(bytecode)}) as process:
        _first_answer(process, port)
        first_answer_s = time.monotonic() - began
        time.sleep(IDLE_S)
        return Start(first_answer_s, procfs.memory_mb(process.pid, "Rss"), procfs.memory_mb(process.pid, "Pss"))


def _first_answer(process: subprocess.Popen[bytes], port: int) -> None:
    body = msgspec.json.encode({"model": "single", "messages": [{"role": "user", "content": "hi"}]})
    headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_LIMIT_S)
        try:
            connection.request("POST", "/v1/chat/completions", body, headers)
            response = connection.getresponse()
        except ConnectionRefusedError:
            time.sleep(_LOOK_S)
            continue
        finally:
            connection.close()
        if response.status != 200:
            raise RuntimeError(f"the first answer was {response.status}")
        return
    raise RuntimeError("the gateway did not start")
