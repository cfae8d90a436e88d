"""Running servers on free ports until a block ends: in general, the mock upstream, and the pass-through baseline."""

import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]  # of the checkout
START_LIMIT_S = 30.0
STOP_LIMIT_S = 10.0
_LOOK_S = 0.002
_SETTLE_S = 0.05
_LOOKS_PER_WORKER = 6


class Server(msgspec.Struct, frozen=True):
    """A server that is listening.

    ``workers`` of a gateway, each with a ledger of its own, has work left after its last answer; others have none.
    """

    name: str
    pid: int
    port: int
    headers: Mapping[str, str] = {}
    workers: int = 0

    def settle(self) -> int:
        """Wait until what the calls so far left to do is done: rows on their way to SQL are part of a call's price.

        Returns how often that was looked for. Each look costs the server CPU, see ``cpu_meter``.
        """
        made = idle = 0
        enough = 1 if self.workers == 1 else _LOOKS_PER_WORKER * self.workers  # each is answered by any of them
        while idle < enough and self.workers:
            made += 1
            if self.look():
                idle = 0
                time.sleep(_SETTLE_S)
            else:
                idle += 1
        return made

    def look(self) -> bool:
        """Tell whether rows are on their way to SQL, in the worker that answers."""
        return bool(get_json(self.port, "/health/ready")["database"]["pending"])


def get_json(port: int, path: str) -> Any:
    """Return the JSON answer to a GET."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_LIMIT_S)
    try:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def count(upstream: Server, what: str) -> int:
    """Return one of the mock upstream's counts."""
    return int(get_json(upstream.port, "/counts").get(what, 0))


def free_port() -> int:
    """Return a port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str] | None = None, output: BinaryIO | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``command`` until the block ends; what it says goes to ``output``, or nowhere."""
    heard = subprocess.DEVNULL if output is None else output
    process = subprocess.Popen(command, stdout=heard, stderr=heard, env=environment)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until_listening(process: subprocess.Popen[bytes], port: int, limit_s: float = START_LIMIT_S) -> None:
    """Wait for ``process`` to accept connections.

    Raises:
        RuntimeError: it ends, or never does.

    """

    def listening() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            return False
        return True

    if not wait_for(listening, process, limit_s):
        raise RuntimeError(f"did not start: {process.args!r}")


def wait_for(ready: Callable[[], bool], process: subprocess.Popen[bytes], limit_s: float) -> bool:
    """Tell whether ``process`` became ready within the limit, and before it ended."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and process.poll() is None:
        if ready():
            return True
        time.sleep(_LOOK_S)
    return False


@contextmanager
def upstream() -> Iterator[Server]:
    """Run the mock upstream."""
    port = free_port()
    with running([sys.executable, str(FOLDER / "mock_upstream.py"), str(port)]) as process:
        wait_until_listening(process, port)
        yield Server("upstream", process.pid, port)


@contextmanager
def passthrough(upstream_port: int) -> Iterator[Server]:
    """Run the baseline."""
    port = free_port()
    command = [sys.executable, str(FOLDER / "passthrough.py"), str(port), f"http://127.0.0.1:{upstream_port}"]
    with running(command) as process:
        wait_until_listening(process, port)
        yield Server("pass-through", process.pid, port)
