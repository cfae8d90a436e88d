"""A gateway's background tasks: who owns and ends them, how long a turn of each takes, and watched files."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from providers import FileStates, file_states


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
        """Run ``work`` after a call of ``start_later_ones``."""
        self._later.append(work)

    def start_later_ones(self) -> None:
        """Start the tasks given to ``later``."""
        for work in self._later:
            self.start(work())
        self._later.clear()

    async def close(self) -> None:
        """Cancel and await all tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def retrieve(task: asyncio.Future[Any]) -> None:
    """Fetch the exception of a task that is done, so that asyncio does not log it: the error is known elsewhere.

    Otherwise, on Python 3.13 and 3.14, a cancelled task may keep itself and its frames alive.
    """
    with suppress(asyncio.CancelledError):
        task.exception()


def forget_frames(task: asyncio.Task[Any]) -> None:
    """Call ``retrieve`` for a cancelled task, as its callback; an error of the task is left to its awaiter."""
    if task.cancelled():
        retrieve(task)


def end_if_cancelled() -> None:
    """Raise the running task's cancellation if a round of the task's loop has handled it as an error.

    redis-py does so while it connects, and code with ``asyncio.wait_for`` may before Python 3.12. A loop over a store
    calls this after each round: otherwise it would run until the process is killed.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def pause(seconds: float, until: asyncio.Event) -> None:
    """Wait so many seconds, or until the event is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await until.wait()


TURNS_WINDOW_S = 60.0


class LongestTurns:
    """The longest turns of the event loop in the last one to two minutes, in seconds by the work in them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._now: dict[str, float] = {}  # in this window, and in the one before
        self._before: dict[str, float] = {}
        self._window_ends_s = 0.0

    def note(self, work: str, began_s: float) -> None:
        """Count a turn, or a part of one, that has ended now."""
        now_s = self._clock()
        self._turn_window(now_s)
        self._now[work] = max(self._now.get(work, 0.0), now_s - began_s)

    def longest_s(self) -> dict[str, float]:
        """Return the longest turn of each kind of work."""
        self._turn_window(self._clock())
        return {
            work: max(self._now.get(work, 0.0), self._before.get(work, 0.0)) for work in {**self._before, **self._now}
        }

    def _turn_window(self, now_s: float) -> None:
        if now_s >= self._window_ends_s:
            self._before = self._now if now_s < self._window_ends_s + TURNS_WINDOW_S else {}
            self._now = {}
            self._window_ends_s = now_s + TURNS_WINDOW_S


# Detects changes of files by checking them from time to time.


class WatchedFiles:
    """Some files that belong together: a change of one is a change of all."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Watch ``paths``. Unless ``note`` is called, their current state is a change."""
        self._paths = paths
        self._taken: FileStates = ()
        self._last: FileStates = ()

    def note(self) -> None:
        """Record the files' current state as known. Must be called before the files are read."""
        self._taken = self._last = file_states(self._paths)

    def watch(self, paths: Sequence[Path]) -> None:
        """Watch ``paths`` instead; if they differ from the old ones, their current state is a change."""
        if paths != self._paths:
            self._paths, self._taken, self._last = paths, (), ()

    def have_changed(self) -> bool:
        """Return whether a file has changed, and none since the last check: no writer is at work any more."""
        state, last = file_states(self._paths), self._last
        self._last = state
        if state in (self._taken, ()) or state != last:
            return False
        self._taken = state
        return True
