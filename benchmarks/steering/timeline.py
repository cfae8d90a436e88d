"""Simulated time: a heap of things to happen, and the instant it is."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count


class Timer:
    """Something that will happen, unless it is cancelled."""

    __slots__ = ("_instant_s", "action")

    def __init__(self, instant_s: float, action: Callable[[], object]) -> None:
        self._instant_s = instant_s
        self.action: Callable[[], object] | None = action

    def cancel(self) -> None:
        self.action = None

    def when(self) -> float:
        """Return the instant, in seconds since the start."""
        return self._instant_s


class Timeline:
    """The clock of a simulation; ``now_s`` counts from its start. The parts of a race have it as their event loop."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = count()

    def at(self, instant_s: float, action: Callable[[], object]) -> Timer:
        """Have ``action`` happen at an instant; what was asked for first happens first."""
        timer = Timer(max(instant_s, self.now_s), action)
        heappush(self._heap, (timer.when(), next(self._order), timer))
        return timer

    def after(self, delay_s: float, action: Callable[[], object]) -> Timer:
        """Have ``action`` happen after a delay."""
        return self.at(self.now_s + delay_s, action)

    def run(self) -> None:
        """Let everything happen, in order."""
        while self.step():
            pass

    def step(self) -> bool:
        """Let the next thing happen; return whether there was one."""
        while self._heap:
            instant_s, _, timer = heappop(self._heap)
            if timer.action is not None:
                self.now_s = instant_s
                timer.action()
                return True
        return False
