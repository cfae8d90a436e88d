"""A gateway before upstreams of their own scripts."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from tests.app.gateway.fake_upstream import FakeUpstream, Script
from tests.app.gateway.relayed.samples import Open
from tests.app.gateway.running_gateway import RunningGateway, Serve


@pytest.fixture
def opened(serve: Serve) -> Open:
    """Serve a gateway before upstreams: ``async with opened(alpha=[says(…)]) as (running, upstreams)``."""

    @asynccontextmanager
    async def start(
        *, config: Mapping[str, Any] | None = None, key: str = "unused", **scripts: list[Script]
    ) -> AsyncIterator[tuple[RunningGateway, dict[str, FakeUpstream]]]:
        async with AsyncExitStack() as stack:
            upstreams = {
                name: await stack.enter_async_context(FakeUpstream(*script))
                for name, script in (scripts or {"alpha": []}).items()
            }
            settings = dict(config or {})
            own = settings.pop("providers", {})
            settings["providers"] = {
                name: {"base_url": each.base_url, **own.get(name, {})} for name, each in upstreams.items()
            }
            names = dict.fromkeys(upstreams)
            running = await stack.enter_async_context(serve(config=settings, key=key, **names))
            yield running, upstreams

    return start
