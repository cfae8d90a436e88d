"""Everything that is measured, as processes of their own: providers, Postgres, Redis and the gateways between them.

All are stopped when the block ends, and die with this process however it ends (the kernel sees to it on Linux).
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.fleet.world import FLEET, World
from benchmarks.harness import replicas
from benchmarks.harness.replicas import Replicas
from tests.support.measured.gateways import Stores, production, provider
from tests.support.measured.servers import Child

REPLICAS = 4
POLICIES: Mapping[str, Mapping[str, object]] = {"budget-1.0": {"budget": 1.0}, "budget-0.1": {"budget": 0.1}}
AUDITED = "audited"  # raced by all six, and every attempt watched to its first token


class Installation(Replicas):
    """The whole installation, running. The last of the gateways is for the model whose every attempt is audited."""

    def __init__(self, providers: list[Child], gateways: list[Child], stores: Stores) -> None:
        super().__init__(gateways, stores)
        self.providers = {process.name: process for process in providers}
        *self.replicas, self.auditor = gateways

    def fault(self, provider: str, fault: str) -> None:
        """Have a provider misbehave: ``hang``, ``limit`` or, again, ``none``."""
        self.providers[provider].ask(f"/_fault/{fault}", "POST")


@contextmanager
def installation(world: World, epoch_s: float, folder: Path) -> Iterator[Installation]:
    """Run everything; logs and spools go to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        stores = production(stack)
        names = [persona.name for persona in FLEET]
        asked = [str(epoch_s), world.climate, str(world.seed)]
        providers = [replicas.child(name, folder, "benchmarks.fleet.provider", name, *asked) for name in names]
        audited = {"mode": "race", "width": len(providers), "budget": len(providers), "audit_share": 1.0}
        races = {**POLICIES, AUDITED: audited}
        deployments = [f"{name}/fleet-model" for name in names]
        settings = {
            "providers": {each.name: provider(f"http://127.0.0.1:{each.port}/v1", "sk-fleet") for each in providers},
            "models": {model: {"deployments": deployments, "race": dict(race)} for model, race in races.items()},
        }
        gateways = [replicas.replica(f"replica-{number}", folder, settings, stores) for number in range(REPLICAS + 1)]
        replicas.start(stack, (*providers, *gateways))
        yield Installation(providers, gateways, stores)
