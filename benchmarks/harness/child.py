"""Child processes that listen on ports of their own, can be killed and started again, and die with this one."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness.servers import ROOT, wait_until_listening
from tests.services.servers import LAUNCHER

# Below those that outgoing connections are given: the port of a killed server must stay free (and a client that knocks
# there could be given that very port, and reach itself).
PORTS = range(20_000, 32_000)
REQUEST_LIMIT_S = 30.0
STOP_LIMIT_S = 10.0


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
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_LIMIT_S)
        try:
            connection.request(method, path)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()


def free_ports() -> Iterator[int]:
    """Yield ports that nobody listens on, each once."""
    for port in PORTS:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        yield port
