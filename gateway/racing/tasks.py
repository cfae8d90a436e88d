"""Who owns the tasks of attempts, and counts those under way: an audited one may outlive its call, none the gateway."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class AttemptTasks:
    """The tasks of all attempts under way. ``close`` cancels and awaits whatever is left."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._in_flight: dict[str, int] = {}  # by deployment
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop they run on, which is the one running when this is first asked for.

        On Python 3.11 asking for the running loop takes a system call each time.
        """
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def start(
        self, work: Coroutine[Any, Any, None], deployment: str, loop: asyncio.AbstractEventLoop
    ) -> asyncio.Task[None]:
        """Run ``work``, which handles its own errors, as a task of ``loop``, the running one."""
        task = loop.create_task(work)
        self._tasks[task] = deployment
        self._in_flight[deployment] = self._in_flight.get(deployment, 0) + 1
        task.add_done_callback(self._ended)
        return task

    def entered(self, deployment: str) -> None:
        """Count in an attempt at ``deployment`` that is no task of its own; ``left`` counts it out."""
        self._in_flight[deployment] = self._in_flight.get(deployment, 0) + 1

    def left(self, deployment: str) -> None:
        """Count it out."""
        left = self._in_flight[deployment] - 1
        if left:
            self._in_flight[deployment] = left
        else:
            del self._in_flight[deployment]

    def in_flight(self, deployment: str) -> int:
        """Return how many attempts at ``deployment`` are under way in this process."""
        return self._in_flight.get(deployment, 0)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.left(self._tasks.pop(task))

    async def close(self) -> None:
        """Cancel and await every task."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))
