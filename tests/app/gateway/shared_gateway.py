"""Gateways that the rows of a table share: a start costs more than most rows' calls.

Each row has providers and models of its own there, named with its number, so that what is learnt of a provider, its
health and its speed are of that row alone.
"""

import asyncio
import copy
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self

from providers.simulator import Step, answer
from tests.app.gateway.running_gateway import RunningGateway, serving
from tests.patience import PATIENCE_S

ROWS = 32  # of a gateway: each makes its start longer by a millisecond


class SharedGateways:
    """One running gateway for each configuration, and another when its rows are used up."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started = 0
        self._running: dict[str, tuple[RunningGateway, AsyncExitStack, list[str]]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for _running, stack, _free in self._running.values():
            await stack.aclose()

    @asynccontextmanager
    async def row(
        self, *, config: Mapping[str, Any] | None = None, **scripts: Sequence[Step] | None
    ) -> AsyncIterator[RunningGateway]:
        """Give a row a gateway with a provider for each script, as ``serve`` does: its ``suffix`` ends their names.

        ``config`` has ``models`` and ``providers`` alone.
        """
        async with asyncio.timeout(PATIENCE_S):
            running, free = await self._with_a_free_row(tuple(scripts), config or {})
            row = copy.copy(running)
            row.suffix = free.pop()
            for name, script in scripts.items():
                row[name].script = answer("Hello", " there", "!") if script is None else script
                row[name].answers = None
            try:
                yield row
            finally:
                await row.close()

    async def _with_a_free_row(
        self, names: Sequence[str], config: Mapping[str, Any]
    ) -> tuple[RunningGateway, list[str]]:
        key = repr((names, config))
        if key in self._running:
            running, stack, free = self._running[key]
            if free:
                return running, free
            await stack.aclose()
        stack, free = AsyncExitStack(), [f"-{number}" for number in range(ROWS)]
        self._started += 1
        folder = self._folder / str(self._started)
        folder.mkdir()
        running = await stack.enter_async_context(serving(folder, dict.fromkeys(names), rows=free, **config))
        self._running[key] = running, stack, free
        return running, free
