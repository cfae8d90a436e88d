"""Everything that is measured, as processes of their own: providers, Postgres, Redis and the gateways between them.

All are stopped when the block ends, and die with this process however it ends (the kernel sees to it on Linux).
"""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import yaml
from redis import Redis

from benchmarks.fleet.world import FLEET, World
from benchmarks.harness.gateways import migrate
from benchmarks.harness.servers import REQUEST_LIMIT_S, Child, free_ports
from tests.services.servers import postgres, redis_server

REPLICAS = 4
POLICIES: Mapping[str, Mapping[str, object]] = {
    "budget-1.0": {"budget": 1.0},
    "budget-0.1": {"budget": 0.1},
}
AUDITED = "audited"  # raced by all six, and every attempt watched to its first token


class Installation:
    """The whole installation, running."""

    def __init__(
        self, providers: list[Child], gateways: list[Child], auditor: Child, database_url: str, redis_url: str
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
        migrate(database_url)
        ports = free_ports()
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


def _provider(name: str, port: int, world: World, epoch_s: float, folder: Path) -> Child:
    options = {"port": port, "climate": world.climate, "seed": world.seed, "epoch": epoch_s}
    command = [sys.executable, "-m", "benchmarks.fleet.provider", name, "--log", str(draws_file(folder, name))]
    for option, value in options.items():
        command += [f"--{option}", str(value)]
    return Child(name, port, command, folder / f"{name}.log")


def _gateway(name: str, port: int, module: str, settings: Mapping[str, object], folder: Path) -> Child:
    config = folder / f"{name}.yaml"
    own = {"port": port, "replica": name, "spool_dir": str(folder / f"spool-{name}"), "lame_duck_s": 0}
    config.write_text(yaml.safe_dump({**own, **settings}, sort_keys=False))
    command = [sys.executable, "-m", module, "serve", "--config", str(config)]
    return Child(name, port, command, folder / f"{name}.log")


def _settings(providers: Sequence[Child], database_url: str, redis_url: str) -> dict[str, object]:
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
