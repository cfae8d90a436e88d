"""Owns and counts the tasks of attempts. An audited one may outlive its call; no task outlives the gateway."""

import asyncio
from collections.abc import Collection, Coroutine
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from gateway.fleet.deployment import Deployment

if TYPE_CHECKING:
    from gateway.attempt_records import AttemptStart


class HasDeployment(Protocol):
    """An attempt, as far as it is counted here."""

    @property
    def deployment(self) -> Deployment:
        """Where it runs."""


AttemptT = TypeVar("AttemptT", bound=HasDeployment)
CallT = TypeVar("CallT")


class AttemptTasks(Generic[AttemptT, CallT]):
    """The tasks of all running attempts. ``close`` cancels and awaits them.

    ``relayed`` are the running attempts without a task of their own, with their calls, by what counts them.
    """

    def __init__(self) -> None:
        self.relayed: dict[object, tuple[CallT, AttemptStart]] = {}
        self._tasks: dict[asyncio.Task[None], AttemptT] = {}
        self._in_flight: dict[str, int] = {}  # by deployment
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the tasks: the one running at the first access.

        On Python 3.11 each ``get_running_loop`` takes a system call.
        """
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def start(
        self, work: Coroutine[Any, Any, None], attempt: AttemptT, loop: asyncio.AbstractEventLoop
    ) -> asyncio.Task[None]:
        """Run ``work`` of an attempt, which handles its own errors, as a task of the running ``loop``."""
        task = loop.create_task(work)
        deployment = attempt.deployment.name
        self._tasks[task] = attempt
        self._in_flight[deployment] = self._in_flight.get(deployment, 0) + 1
        task.add_done_callback(self._ended)
        return task

    def entered(self, deployment: str) -> None:
        """Count an attempt at ``deployment`` that has no task of its own, until ``left``."""
        self._in_flight[deployment] = self._in_flight.get(deployment, 0) + 1

    def left(self, deployment: str) -> None:
        """Stop counting it."""
        left = self._in_flight[deployment] - 1
        if left:
            self._in_flight[deployment] = left
        else:
            del self._in_flight[deployment]

    @property
    def attempts(self) -> Collection[AttemptT]:
        """The attempts whose tasks run."""
        return self._tasks.values()

    @property
    def number(self) -> int:
        """The number of running tasks."""
        return len(self._tasks)

    def in_flight(self, deployment: str) -> int:
        """Return the number of running attempts at ``deployment`` in this process."""
        return self._in_flight.get(deployment, 0)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.left(self._tasks.pop(task).deployment.name)

    async def close(self) -> None:
        """Cancel and await every task."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))
