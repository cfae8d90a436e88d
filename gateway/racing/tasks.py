"""Who owns the tasks of attempts: an audited one may outlive its call, none outlives the gateway."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class AttemptTasks:
    """The tasks of all attempts under way. ``close`` cancels and awaits whatever is left."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> asyncio.Task[None]:
        """Run ``work``, which handles its own errors, as a task of ``loop``, the running one."""
        task = loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Cancel and await every task."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))
