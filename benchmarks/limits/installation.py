"""Everything that is measured, as processes of their own: a provider, Postgres, Redis behind a relay, four gateways."""

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from benchmarks.harness import replicas
from benchmarks.harness.replicas import Replicas
from benchmarks.limits.provider import Seen
from benchmarks.limits.redis_relay import HANG, RESUME
from benchmarks.limits.trials import OF_MODEL, PLAIN_MODEL, USD_PER_MTOK, Trial
from tests.support.measured.gateways import Stores, hashed, production, provider
from tests.support.measured.servers import Child
from tests.support.servers import free_port

WEIGHTS = (4, 3, 2, 1)  # of the calls that each replica gets: a balancer is never quite fair
KILLED = 0  # the replica that is killed: the busiest
WARM_UP_KEY = "hs-warm-up"


class Installation(Replicas):
    """The whole installation, running."""

    def __init__(self, gateways: Sequence[Child], provider: Child, relay: Child, stores: Stores) -> None:
        super().__init__(gateways, stores)
        self._provider = provider
        self._relay = relay

    def begin(self, fault: str | None) -> None:
        """Have something happen: ``kill``, ``hang``, ``flush``."""
        if fault == "kill":
            self.gateways[KILLED].kill()
        elif fault == "hang":
            os.kill(self._relay.pid, HANG)
        elif fault == "flush":
            self.flush_redis()

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


@contextmanager
def installation(tried: Sequence[Trial], folder: Path) -> Iterator[Installation]:
    """Run everything for these trials; logs and spools go to ``folder``."""
    with ExitStack() as stack:
        stores = production(stack)
        redis_port = urlsplit(stores.redis_url).port
        relay = _child("redis_relay", free_port(), folder, str(redis_port))
        own = _child("provider", free_port(), folder)
        settings = _settings(tried, own.port)
        relayed = Stores(stores.database_url, f"redis://127.0.0.1:{relay.port}/0")
        gateways = [
            replicas.replica(f"replica-{number}", free_port(), folder, settings, relayed)
            for number in range(1, len(WEIGHTS) + 1)
        ]
        replicas.start(stack, [relay])  # gateways that begin without Redis would begin with shares
        replicas.start(stack, (own, *gateways))
        yield Installation(gateways, own, relay, stores)


def _child(name: str, port: int, folder: Path, *more: str) -> Child:
    return replicas.child(name, port, folder, f"benchmarks.limits.{name}", str(port), *more)


def _settings(tried: Sequence[Trial], provider_port: int) -> dict[str, Any]:
    """Return what all gateways have in common: a client for each trial, and a model for those of models."""
    model = {
        "deployments": [{"deployment": "one/limits-model", "price_per_mtok": USD_PER_MTOK}],
        "race": {"mode": "single"},
    }
    limited = {trial.model: {**model, "usd_per_day": trial.amount} for trial in tried if trial.limit == OF_MODEL}
    clients = {trial.client: {"key_sha256": hashed(trial.key), **trial.client_limits} for trial in tried}
    return {
        "connections": {"max_per_address": 4096},  # all calls come from one address
        "overload": {"max_in_flight": 1_000_000, "loop_delay_ms": 0},  # only limits refuse
        "clients": {**clients, "warm-up": {"key_sha256": hashed(WARM_UP_KEY)}},
        "providers": {"one": provider(f"http://127.0.0.1:{provider_port}/v1", "sk-limits")},
        "models": {PLAIN_MODEL: model, **limited},
    }
