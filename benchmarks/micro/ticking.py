"""A clock that counts how often it is read, in place of the machine's: time that does not depend on how fast we are."""

import time
from itertools import count

TICK_NS = 10_000  # some ten readings make a call that took 0.1 ms


def install() -> None:
    """Have ``time`` tell ticks from now on. To be called before anything else takes functions from there."""
    began_ns = time.time_ns()
    ticks = count()

    def elapsed_ns() -> int:
        return next(ticks) * TICK_NS

    time.monotonic_ns = time.perf_counter_ns = elapsed_ns
    time.monotonic = time.perf_counter = lambda: elapsed_ns() / 1e9
    time.time_ns = lambda: began_ns + elapsed_ns()
    time.time = lambda: (began_ns + elapsed_ns()) / 1e9
