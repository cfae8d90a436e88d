"""Everything that is measured, as processes of their own: a provider, Postgres, Redis behind a relay, four gateways."""

import asyncio
import hashlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml
from redis import Redis

from benchmarks.harness.gateways import migrate
from benchmarks.harness.servers import REQUEST_LIMIT_S, Child, free_ports
from benchmarks.limits.provider import Seen
from benchmarks.limits.redis_relay import HANG, RESUME
from benchmarks.limits.trials import OF_MODEL, PLAIN_MODEL, USD_PER_MTOK, Trial
from tests.services.servers import postgres, redis_server

WEIGHTS = (4, 3, 2, 1)  # of the calls that each replica gets: a balancer is never quite fair
KILLED = 0  # the replica that is killed: the busiest
WARM_UP_KEY = "hs-warm-up"


class Installation:
    """The whole installation, running."""

    def __init__(
        self, gateways: Sequence[Child], provider: Child, relay: Child, database_url: str, redis_url: str
    ) -> None:
        self.gateways = gateways
        self.database_url = database_url
        self._provider = provider
        self._relay = relay
        self._redis_url = redis_url

    def begin(self, fault: str | None) -> None:
        """Have something happen: ``kill``, ``hang``, ``flush``."""
        if fault == "kill":
            self.gateways[KILLED].kill()
        elif fault == "hang":
            os.kill(self._relay.pid, HANG)
        elif fault == "flush":
            with Redis.from_url(self._redis_url) as redis:
                redis.flushall()

    def end(self, fault: str | None) -> None:
        """End what lasts."""
        if fault == "hang":
            os.kill(self._relay.pid, RESUME)

    async def restore(self, fault: str | None) -> None:
        """Have all replicas again; call it from the main thread."""
        if fault == "kill":
            self.gateways[KILLED].start()
            await asyncio.to_thread(self.gateways[KILLED].ready)

    def seen(self) -> list[Seen]:
        """Return the calls that the provider has seen since the last time."""
        return msgspec.convert(self._provider.ask("/_seen"), list[Seen])

    def settle(self) -> None:
        """Wait until every row is in SQL."""
        deadline = time.monotonic() + REQUEST_LIMIT_S
        for gateway in self.gateways:
            while gateway.ask("/health/ready")["database"]["pending"] and time.monotonic() < deadline:
                time.sleep(0.05)


@contextmanager
def installation(tried: Sequence[Trial], folder: Path) -> Iterator[Installation]:
    """Run everything for these trials; logs and spools go to ``folder``."""
    with ExitStack() as stack:
        redis_url = stack.enter_context(redis_server())
        database_url = stack.enter_context(postgres())
        migrate(database_url)
        ports = free_ports()
        redis_port = str(urlsplit(redis_url).port)
        relay = _child("redis_relay", next(ports), folder, redis_port)
        provider = _child("provider", next(ports), folder)
        settings = _settings(tried, provider.port, database_url, f"redis://127.0.0.1:{relay.port}/0")
        gateways = [_gateway(f"replica-{number + 1}", next(ports), settings, folder) for number in range(len(WEIGHTS))]
        children = (relay, provider, *gateways)
        for child in children:
            stack.callback(child.stop)
            child.start()
            if child is relay:  # gateways that begin without Redis would begin with shares
                child.ready()
        for child in children:
            child.ready()
        yield Installation(gateways, provider, relay, database_url, redis_url)


def _child(name: str, port: int, folder: Path, *more: str) -> Child:
    command = [sys.executable, "-m", f"benchmarks.limits.{name}", str(port), *more]
    return Child(name, port, command, folder / f"{name}.log")


def _gateway(name: str, port: int, settings: Mapping[str, Any], folder: Path) -> Child:
    config = folder / f"{name}.yaml"
    own = {"port": port, "replica": name, "spool_dir": str(folder / f"spool-{name}"), "lame_duck_s": 0}
    config.write_text(yaml.safe_dump({**own, **settings}, sort_keys=False))
    command = [sys.executable, "-m", "gateway.cli", "serve", "--config", str(config)]
    return Child(name, port, command, folder / f"{name}.log")


def _settings(tried: Sequence[Trial], provider_port: int, database_url: str, redis_url: str) -> dict[str, Any]:
    """Return what all gateways have in common: a client for each trial, and a model for those of models."""
    model = {
        "deployments": [{"deployment": "one/limits-model", "price_per_mtok": USD_PER_MTOK}],
        "race": {"mode": "single"},
    }
    limited = {trial.model: {**model, "usd_per_day": trial.amount} for trial in tried if trial.limit == OF_MODEL}
    clients = {trial.client: {"key_sha256": _hashed(trial.key), **trial.client_limits} for trial in tried}
    return {
        "database_url": database_url,
        "redis_url": redis_url,
        "log_level": "warning",
        "log_format": "json",
        "connections": {"max_per_address": 4096},  # all calls come from one address
        "overload": {"max_in_flight": 1_000_000, "loop_delay_ms": 0},  # only limits refuse
        "clients": {**clients, "warm-up": {"key_sha256": _hashed(WARM_UP_KEY)}},
        "providers": {
            "one": {
                "kind": "openai_compatible",
                "base_url": f"http://127.0.0.1:{provider_port}/v1",
                "api_key": "sk-limits",
            }
        },
        "models": {PLAIN_MODEL: model, **limited},
    }


def _hashed(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
