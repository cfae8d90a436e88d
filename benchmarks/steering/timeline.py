"""Simulated time: a heap of things to happen, and the instant it is."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count


class Timer:
    """Something that will happen, unless it is cancelled."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Let it not happen."""
        self.action = None


class Timeline:
    """The clock of a simulation; ``now_s`` counts from its start."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = count()

    def at(self, instant_s: float, action: Callable[[], None]) -> Timer:
        """Have ``action`` happen at an instant; what was asked for first happens first."""
        timer = Timer(action)
        heappush(self._heap, (max(instant_s, self.now_s), next(self._order), timer))
        return timer

    def after(self, delay_s: float, action: Callable[[], None]) -> Timer:
        """Have ``action`` happen after a delay."""
        return self.at(self.now_s + delay_s, action)

    def run(self) -> None:
        """Let everything happen, in order."""
        heap = self._heap
        while heap:
            instant_s, _, timer = heappop(heap)
            if timer.action is not None:
                self.now_s = instant_s
                timer.action()
