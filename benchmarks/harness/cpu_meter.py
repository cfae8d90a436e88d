"""CPU of a server under load, until its last row is in SQL, without what it took to ask whether it is there."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from benchmarks.harness import procfs

LOOKS = 30  # that the cost of one is taken from


class Settling(Protocol):
    """A server that can be asked whether it has work left; each look costs it CPU."""

    @property
    def pid(self) -> int:
        """Its process; its children count."""

    @property
    def workers(self) -> int:
        """Who looks: none, and it has never work left and is never looked at."""

    def settle(self) -> int:
        """Wait until no work is left, and return how often that was looked for."""

    def look(self) -> bool:
        """Tell whether work is left."""


class Spent:
    """What a load took. ``cpu_s`` is known once its block has ended."""

    def __init__(self) -> None:
        self.cpu_s = 0.0


@contextmanager
def metered(server: Settling, cpu_s: Callable[[int], float] = procfs.cpu_s) -> Iterator[Spent]:
    """Measure the CPU seconds that ``server`` takes for the load of the block and for what is left to do after it.

    What a look costs is measured before the block, while nothing else is going on, and is taken off for each.
    """
    server.settle()
    look_s = _look_s(server, cpu_s)
    spent = Spent()
    before_s = cpu_s(server.pid)
    yield spent
    looks = server.settle()
    spent.cpu_s = cpu_s(server.pid) - before_s - looks * look_s


def _look_s(server: Settling, cpu_s: Callable[[int], float]) -> float:
    if not server.workers:
        return 0.0
    before_s = cpu_s(server.pid)
    for _ in range(LOOKS):
        server.look()
    return (cpu_s(server.pid) - before_s) / LOOKS
