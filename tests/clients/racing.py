"""A ``Racer`` at a target: over the same providers as the gateway that has its name; none where there is no gateway."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from holeshot import Racer
from tests.clients.case import Target
from tests.clients.targets import GATEWAYS, configuration


@asynccontextmanager
async def racing(target: Target) -> AsyncIterator[Racer | None]:
    """Yield it while the block runs. Without one, a framework's own service is tried: at the upstream directly."""
    behind = GATEWAYS.get(target.name)
    if behind is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        found = configuration(behind, target.upstreams, Path(folder))
    async with Racer(providers=found["providers"], models=found["models"]) as racer:
        yield racer
