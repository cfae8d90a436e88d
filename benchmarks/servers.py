"""The servers that are measured, and the upstream behind them: started on free ports, stopped at the end."""

import hashlib
import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml

FOLDER = Path(__file__).parent
KEY = "hs-benchmark"
START_LIMIT_S = 30.0
STOP_LIMIT_S = 10.0
_LOOK_S = 0.002
_SETTLE_S = 0.05


class Server(msgspec.Struct, frozen=True):
    """A server that is listening. ``keeps_a_ledger``: it has work left after its last answer."""

    name: str
    pid: int
    port: int
    key: str | None = None
    keeps_a_ledger: bool = False

    def settle(self) -> None:
        """Wait until what the calls so far left to do is done: rows on their way to SQL are part of a call's price."""
        while self.keeps_a_ledger and get_json(self.port, "/health/ready")["database"]["pending"]:
            time.sleep(_SETTLE_S)


def get_json(port: int, path: str) -> Any:
    """Return the JSON answer to a GET."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_LIMIT_S)
    try:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def free_port() -> int:
    """Return a port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``command``, what it says going nowhere, until the block ends."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until_listening(process: subprocess.Popen[bytes], port: int) -> None:
    """Wait for ``process`` to accept connections.

    Raises:
        RuntimeError: it ends, or never does.

    """
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(_LOOK_S)
        else:
            return
    raise RuntimeError(f"did not start: {process.args!r}")


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
        yield Server("passthrough", process.pid, port)


@contextmanager
def gateway(upstream_port: int, folder: Path) -> Iterator[Server]:
    """Run the gateway as its users do, ledger, leaderboard, metrics, log line and client keys on."""
    port = free_port()
    with running(gateway_command(write_config(folder, upstream_port, port))) as process:
        wait_until_listening(process, port)
        yield Server("gateway", process.pid, port, KEY, keeps_a_ledger=True)


def gateway_command(config: Path) -> list[str]:
    """Return the command of the gateway installed beside this Python."""
    return [str(Path(sys.executable).parent / "holeshot"), "serve", "--config", str(config)]


def write_config(folder: Path, upstream_port: int, port: int) -> Path:
    """Write the gateway's configuration and return its path; ledger and spool lie beside it.

    A provider for each behaviour of the mock; a model for each way of racing them.
    """
    behaviours = {name: name for name in ("burst", "soon", "late", "paced")} | {
        "soon-too": "soon",
        "paced-too": "paced",
    }

    def model(mode: str, *providers: str) -> dict[str, Any]:
        return {"deployments": [f"{name}/benchmark-model" for name in providers], "race": {"mode": mode}}

    config = {
        "port": port,
        "database_url": f"sqlite:///{folder / 'ledger.db'}",
        "spool_dir": str(folder / "spool"),
        "log_format": "json",
        "clients": {"benchmark": {"key_sha256": hashlib.sha256(KEY.encode()).hexdigest()}},
        "providers": {
            name: {
                "kind": "openai_compatible",
                "base_url": f"http://127.0.0.1:{upstream_port}/{behaviour}/v1",
                "api_key": f"sk-mock-{name}-0123456789abcdef",
            }
            for name, behaviour in behaviours.items()
        },
        "models": {
            "single": model("single", "burst"),
            "burst-race": model("race", "burst", "late"),
            "soon-single": model("single", "soon"),
            "soon-race": model("race", "soon", "late"),
            "soon-tie": model("race", "soon", "soon-too"),
            "paced-single": model("single", "paced"),
            "paced-race": model("race", "paced", "paced-too"),
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "gateway.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path
