"""A gateway before providers, each with scripts of its own."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from providers.simulator import ScriptedProvider
from tests.app.gateway.relayed.samples import EMBEDDINGS, Open, Script, says
from tests.app.gateway.running_gateway import RunningGateway, Serve


@pytest.fixture
def opened(serve: Serve) -> Open:
    """Serve a gateway before providers: ``async with opened(alpha=[says(…)]) as (running, upstreams)``.

    A provider takes its scripts in turn, the last one again and again; without any it answers with vectors.
    """

    @asynccontextmanager
    async def start(
        *, config: Mapping[str, Any] | None = None, key: str = "unused", **scripts: list[Script]
    ) -> AsyncIterator[tuple[RunningGateway, Mapping[str, ScriptedProvider]]]:
        in_turn = {name: each or [says(EMBEDDINGS)] for name, each in (scripts or {"alpha": []}).items()}
        last = {name: each[-1] for name, each in in_turn.items()}
        async with serve(config=config or {}, key=key, **last) as running:
            for name, each in in_turn.items():
                for script in each[:-1]:
                    running[name].once(script)
            yield running, running.providers

    return start
