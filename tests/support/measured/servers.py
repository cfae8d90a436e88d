"""Servers in processes of their own: until a block ends, or to be killed and started again."""

import argparse
import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from tests.support.servers import LAUNCHER, free_port

FILES = 16_384  # descriptors of a process
FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[2]  # of the checkout
START_LIMIT_S = 30.0
REQUEST_LIMIT_S = 30.0
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

        Returns how often that was looked for. Each look costs the server CPU, see ``machine.metered``.
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


def fetch(
    port: int, path: str, headers: Mapping[str, str] = {}, *, method: str = "GET", limit_s: float = REQUEST_LIMIT_S
) -> bytes:
    """Return the body of an answer, whatever its status.

    Raises:
        OSError: there is none.

    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=limit_s)
    try:
        connection.request(method, path, headers=dict(headers))
        return connection.getresponse().read()
    except http.client.HTTPException as error:
        raise OSError(f"{path}: {error!r}") from error
    finally:
        connection.close()


def get_json(port: int, path: str) -> Any:
    """Return the JSON answer to a GET."""
    return json.loads(fetch(port, path))


def gauges(page: str, names: Sequence[str]) -> list[float]:
    """Return the values of gauges on a page of metrics.

    Raises:
        LookupError: one is not there.

    """
    found = dict(line.rsplit(" ", 1) for line in page.splitlines() if line.startswith(tuple(names)))
    return [float(found[name]) for name in names]


def count(upstream: Server, what: str) -> int:
    """Return one of the mock upstream's counts."""
    return int(get_json(upstream.port, "/counts").get(what, 0))


@contextmanager
def running(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    output: BinaryIO | None = None,
    folder: Path | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``command`` in ``folder`` until the block ends; what it says goes to ``output``, or nowhere."""
    heard = subprocess.DEVNULL if output is None else output
    process = subprocess.Popen(command, stdout=heard, stderr=heard, env=environment, cwd=folder, process_group=0)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with its workers
            process.wait()


def wait_until_listening(
    process: subprocess.Popen[bytes], port: int, limit_s: float = START_LIMIT_S, log: Path | None = None
) -> None:
    """Wait for ``process`` to accept connections; ``log`` is where it writes.

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
        said = "" if log is None else f": {log.read_text(errors='replace')[-2000:]}"
        raise RuntimeError(f"did not start: {process.args!r}{said}")


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


class Child:
    """A server in a process of its own."""

    def __init__(self, name: str, port: int, command: list[str], log: Path) -> None:
        self.name = name
        self.port = port
        self._command = command
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process's id."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, from the main thread: it dies with the thread that started it. ``ready`` waits until it listens."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLESHOT_")}
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", LAUNCHER, "", str(int(signal.SIGKILL)), *self._command],
                cwd=ROOT,
                env={**environment, "PYTHONPATH": str(ROOT), "NO_PROXY": "127.0.0.1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # an interrupt at the terminal is for the benchmark, which stops them in order
            )

    def ready(self) -> None:
        """Wait until it listens.

        Raises:
            RuntimeError: it ends, or never does.

        """
        assert self._process is not None
        try:
            wait_until_listening(self._process, self.port)
        except RuntimeError as error:
            raise RuntimeError(f"{self.name} did not start: {self._log.read_text(errors='replace')[-2000:]}") from error

    def kill(self) -> None:
        """End it without a word."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Have it end in order; kill it if it does not."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def ask(self, path: str, method: str = "GET") -> Any:
        """Return the JSON answer to a request."""
        return json.loads(fetch(self.port, path, method=method))


def prepare(parser: argparse.ArgumentParser) -> None:
    """See that this is Linux, that a crowd gets its sockets, and that servers are stopped when we are."""
    if sys.platform != "linux":
        parser.exit(1, "CPU time and memory are read from Linux's /proc; run it on Linux, or in a container\n")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, FILES), most))  # inherited by the servers
