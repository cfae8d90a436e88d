"""The tasks of a gateway that belong to no call: its timers, and what is done behind a change."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class BackgroundTasks:
    """Owns tasks that handle their own errors; ``close`` cancels and awaits them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._later: list[Callable[[], Coroutine[Any, Any, None]]] = []

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` as a task of the running loop."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def later(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run ``work`` once ``start_later_ones`` is called."""
        self._later.append(work)

    def start_later_ones(self) -> None:
        """Start what was to run later."""
        for work in self._later:
            self.start(work())
        self._later.clear()

    async def close(self) -> None:
        """Cancel and await all of them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
