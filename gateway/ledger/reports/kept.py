"""Answers that several people who look at the same page share: each is asked for once, and kept for some seconds."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from math import inf
from typing import Any, TypeVar

KEPT_S = 5.0  # the page asks every 15 or 30 seconds
MOST_KEPT = 64  # of a few hundred kB at most
T = TypeVar("T")


class Kept:
    """Answers by what was asked. Who goes away while others wait for the same answer does not take it from them."""

    def __init__(self, *, clock: Callable[[], float], kept_s: float = KEPT_S, times: float | None = None) -> None:
        """``clock``: monotonic seconds. An answer is kept for ``kept_s``, or ``times`` as long as it took, if less."""
        self._clock = clock
        self._kept_s = kept_s
        self._times = times
        self._answers: dict[Hashable, _Answer] = {}  # the oldest first

    async def get(self, key: Hashable, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what ``ask`` returned some seconds ago, or returns; ``key`` names the question.

        Raises:
            Exception: what ``ask`` raises; the next one asks again.

        """
        answer = self._answers.get(key)
        if answer is None or self._is_stale(answer):
            self._make_room()
            answer = self._answers[key] = _Answer(asyncio.create_task(ask(), name="reports.ask"), self._clock)
        answer.waiting += 1
        try:
            return await asyncio.shield(answer.task)
        finally:
            answer.waiting -= 1
            if not answer.waiting and not answer.task.done():
                answer.task.cancel()
                if self._answers.get(key) is answer:
                    del self._answers[key]

    async def aclose(self) -> None:
        """Cancel what is asked, and forget all answers."""
        tasks = [answer.task for answer in self._answers.values()]
        self._answers.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _is_stale(self, answer: "_Answer") -> bool:
        if not answer.task.done():
            return False
        failed = answer.task.cancelled() or answer.task.exception() is not None
        kept_s = self._kept_s if self._times is None else min(self._kept_s, self._times * answer.took_s)
        return failed or self._clock() - answer.asked_at >= kept_s

    def _make_room(self) -> None:
        ended = [key for key, answer in self._answers.items() if answer.task.done()]
        stale = [key for key in ended if self._is_stale(self._answers[key])]
        for key in stale or ended[: max(0, len(self._answers) - MOST_KEPT + 1)]:
            del self._answers[key]


class _Answer:
    __slots__ = ("_clock", "asked_at", "task", "took_s", "waiting")

    def __init__(self, task: asyncio.Task[Any], clock: Callable[[], float]) -> None:
        self.task = task
        self._clock = clock
        self.asked_at = clock()
        self.took_s = inf  # until it has ended
        self.waiting = 0
        task.add_done_callback(self._ended)

    def _ended(self, _: asyncio.Task[Any]) -> None:
        self.took_s = self._clock() - self.asked_at
