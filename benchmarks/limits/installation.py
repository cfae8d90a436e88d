"""Everything that is measured, as processes of their own: a provider, Postgres, Redis, four gateways."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.harness import replicas
from benchmarks.harness.replicas import Replicas
from benchmarks.limits.provider import Seen
from benchmarks.limits.trials import OF_MODEL, PLAIN_MODEL, USD_PER_MTOK, Trial
from tests.support.measured.gateways import Stores, hashed, production, provider
from tests.support.measured.servers import Child

WEIGHTS = (4, 3, 2, 1)  # of the calls that each replica gets: a balancer is never quite fair
KILLED = 0  # the replica that is killed, see ``Replicas``: the busiest
WARM_UP_KEY = "hs-warm-up"


class Installation(Replicas):
    """The whole installation, running."""

    def __init__(self, gateways: Sequence[Child], provider: Child, stores: Stores) -> None:
        super().__init__(gateways, stores)
        self._provider = provider

    def seen(self) -> list[Seen]:
        """Return the calls that the provider has seen since the last time."""
        return msgspec.convert(self._provider.ask("/_seen"), list[Seen])


@contextmanager
def installation(tried: Sequence[Trial], folder: Path) -> Iterator[Installation]:
    """Run everything for these trials; logs and spools go to ``folder``."""
    with ExitStack() as stack:
        stores = production(stack)
        own = replicas.child("provider", folder, "benchmarks.limits.provider")
        settings = _settings(tried, own.port)
        gateways = [
            replicas.replica(f"replica-{number + 1}", folder, settings, stores) for number in range(len(WEIGHTS))
        ]
        replicas.start(stack, (own, *gateways))
        installed = Installation(gateways, own, stores)
        stack.callback(installed.end, "hang")  # whatever happens meanwhile: a stopped server does not end
        yield installed


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
