"""Everything that is measured, as processes of their own: providers, Postgres, Redis and the gateways between them.

All are stopped when the block ends, and die with this process however it ends (the kernel sees to it on Linux).
"""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml
from redis import Redis

from benchmarks.fleet.world import FLEET, World
from benchmarks.harness.servers import wait_until_listening
from tests.services.servers import LAUNCHER, postgres, redis_server

ROOT = Path(__file__).absolute().parents[2]
REPLICAS = 4
STOP_LIMIT_S = 10.0
# Below those that outgoing connections are given: the port of a killed replica must stay free (and a client that knocks
# there could be given that very port, and reach itself).
PORTS = range(20_000, 32_000)
REQUEST_LIMIT_S = 30.0
POLICIES: Mapping[str, Mapping[str, object]] = {
    "budget-1.0": {"budget": 1.0},
    "budget-0.1": {"budget": 0.1},
}
AUDITED = "audited"  # raced by all six, and every attempt watched to its first token


class Process:
    """A child on a port of its own, which can be killed and started again."""

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


class Installation:
    """The whole installation, running."""

    def __init__(
        self, providers: list[Process], gateways: list[Process], auditor: Process, database_url: str, redis_url: str
    ) -> None:
        self.providers = {process.name: process for process in providers}
        self.gateways = gateways
        self.auditor = auditor  # a fifth gateway, for the model whose every attempt is audited
        self.database_url = database_url
        self._redis_url = redis_url

    def fault(self, provider: str, fault: str) -> None:
        """Have a provider misbehave: ``hang``, ``limit`` or, again, ``none``."""
        self.providers[provider].ask(f"/_fault/{fault}", "POST")

    def counts(self) -> dict[str, dict[str, int]]:
        """Return what each provider saw."""
        return {name: process.ask("/_counts") for name, process in self.providers.items()}

    def flush_redis(self) -> None:
        """Make Redis forget everything."""
        with Redis.from_url(self._redis_url) as redis:
            redis.flushall()

    def settle(self) -> None:
        """Wait until every row is in SQL."""
        deadline = time.monotonic() + REQUEST_LIMIT_S
        for gateway in [*self.gateways, self.auditor]:
            gateway.ready()
            while gateway.ask("/health/ready")["database"]["pending"] and time.monotonic() < deadline:
                time.sleep(0.05)


@contextmanager
def installation(world: World, epoch_s: float, folder: Path) -> Iterator[Installation]:
    """Run everything; logs and spools go to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        redis_url = stack.enter_context(redis_server())
        database_url = stack.enter_context(postgres())
        _migrate(database_url)
        ports = _free_ports()
        providers = [_provider(persona.name, next(ports), world, epoch_s, folder) for persona in FLEET]
        settings = _settings(providers, database_url, redis_url)
        gateways = [
            _gateway(f"replica-{number}", next(ports), "gateway.cli", settings, folder)
            for number in range(1, REPLICAS + 1)
        ]
        auditor = _gateway("auditor", next(ports), "benchmarks.fleet.auditor", settings, folder)
        for process in (*providers, *gateways, auditor):
            stack.callback(process.stop)
            process.start()
        for process in (*providers, *gateways, auditor):
            process.ready()
        yield Installation(providers, gateways, auditor, database_url, redis_url)


def draws_file(folder: Path, provider: str) -> Path:
    """Return where a provider logs its draws."""
    return folder / f"draws-{provider}.csv"


def _provider(name: str, port: int, world: World, epoch_s: float, folder: Path) -> Process:
    options = {"port": port, "climate": world.climate, "seed": world.seed, "epoch": epoch_s}
    command = [sys.executable, "-m", "benchmarks.fleet.provider", name, "--log", str(draws_file(folder, name))]
    for option, value in options.items():
        command += [f"--{option}", str(value)]
    return Process(name, port, command, folder / f"{name}.log")


def _gateway(name: str, port: int, module: str, settings: Mapping[str, object], folder: Path) -> Process:
    config = folder / f"{name}.yaml"
    own = {"port": port, "replica": name, "spool_dir": str(folder / f"spool-{name}"), "lame_duck_s": 0}
    config.write_text(yaml.safe_dump({**own, **settings}, sort_keys=False))
    command = [sys.executable, "-m", module, "serve", "--config", str(config)]
    return Process(name, port, command, folder / f"{name}.log")


def _settings(providers: Sequence[Process], database_url: str, redis_url: str) -> dict[str, object]:
    """Return what all gateways have in common: the six providers, and a model for each way of racing them."""
    races = {**POLICIES, AUDITED: {"mode": "race", "width": len(providers), "budget": len(providers)}}
    return {
        "database_url": database_url,
        "redis_url": redis_url,
        "log_level": "warning",
        "log_format": "json",
        "providers": {
            each.name: {
                "kind": "openai_compatible",
                "base_url": f"http://127.0.0.1:{each.port}/v1",
                "api_key": "sk-fleet",
            }
            for each in providers
        },
        "models": {
            model: {"deployments": [f"{each.name}/fleet-model" for each in providers], "race": dict(race)}
            for model, race in races.items()
        },
    }


def _free_ports() -> Iterator[int]:
    for port in PORTS:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        yield port


def _migrate(database_url: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "gateway.cli", "migrate"],
        cwd=ROOT,
        env={**os.environ, "HOLESHOT_DATABASE_URL": database_url, "PYTHONPATH": str(ROOT)},
        check=True,
        stdout=subprocess.DEVNULL,
    )
