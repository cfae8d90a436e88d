"""The CPU of a load is the server's own: what looking at it costs is taken off."""

import pytest

from benchmarks.harness.machine import metered

LOOK_S = 0.004


class LookedAt:
    """A server that has work left for some looks after each load. ``cpu_s`` is its CPU clock."""

    pid = 1

    def __init__(self, *, workers: int = 1) -> None:
        self.workers = workers
        self.left = 0
        self.used_s = 100.0

    def look(self) -> bool:
        self.used_s += LOOK_S
        self.left = max(0, self.left - 1)
        return self.left > 0

    def settle(self) -> int:
        if not self.workers:
            return 0
        looks = 1
        while self.look():
            looks += 1
        return looks

    def cpu_s(self, pid: int) -> float:
        assert pid == self.pid
        return self.used_s


def test_looks_at_rows_on_their_way_are_not_part_of_a_loads_cpu() -> None:
    server = LookedAt()
    with metered(server, server.cpu_s) as spent:
        server.used_s += 2.5
        server.left = 40
    assert server.used_s > 102.5 + 40 * LOOK_S
    assert spent.cpu_s == pytest.approx(2.5)


def test_what_was_left_of_the_load_before_is_none_of_the_next_ones() -> None:
    server = LookedAt()
    server.left = 7
    with metered(server, server.cpu_s) as spent:
        server.used_s += 1.0
    assert spent.cpu_s == pytest.approx(1.0)


def test_a_server_without_rows_is_never_looked_at() -> None:
    server = LookedAt(workers=0)
    with metered(server, server.cpu_s) as spent:
        server.used_s += 1.0
    assert (spent.cpu_s, server.used_s) == (1.0, 101.0)
