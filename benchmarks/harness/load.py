"""The load: calls over many connections, in one of three rhythms; a process of its own, run by ``run``.

Prints one JSON object: how long each call took to its first token (streams) or its end, in milliseconds, and what the
load itself took.
"""

import argparse
import asyncio
import subprocess
import sys
from collections import deque
from pathlib import Path
from random import Random
from time import perf_counter, process_time

import msgspec
import uvloop

from benchmarks.harness.caller import Caller, Question

_LIMIT_S = 300.0
_ACCEPTING_S = (
    1.0  # until a server has taken a crowd's connections out of its backlog; some take one a turn of their loop
)


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What to ask, how often, and in which rhythm.

    - closed loop: ``concurrency`` connections, each calls again as soon as it has its answer;
    - ``together``: all ``concurrency`` connections are opened first, then each calls at the same instant, and goes
      on as in a closed loop when there are more ``calls``;
    - ``rate_per_s``: open loop, Poisson arrivals at that rate, whatever becomes of the calls before.
    """

    question: Question
    calls: int
    concurrency: int
    together: bool = False
    rate_per_s: float | None = None


class Outcome(msgspec.Struct, frozen=True):
    """``latencies_ms``: to the first token of each streamed call, to the end of the others.

    ``wall_s`` from the first call to the last answer; ``cpu_s`` of the load generator itself.
    """

    latencies_ms: list[float]
    wall_s: float
    cpu_s: float


class LoadError(Exception):
    """An answer was not what it should be: the measurement would mean nothing."""


class Run:
    """The closed loop, and what all rhythms have in common."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.question = order.question
        self.request = order.question.rendered()
        self.latencies_ms: list[float] = []
        self.began = perf_counter()
        self._callers: set[Caller] = set()
        self._none_left = asyncio.Event()
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left = order.calls

    async def start(self) -> None:
        """Open the connections."""
        for _ in range(self.order.concurrency):
            await self.connect()

    async def connect(self) -> None:
        """Open one."""
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: Caller(self), "127.0.0.1", self.question.port)

    async def close(self) -> None:
        """Hang up everywhere."""
        for caller in self._callers:
            caller.close()
        if self._callers:
            await self._none_left.wait()

    def made(self, caller: Caller) -> None:
        """Remember it."""
        self._callers.add(caller)

    def free(self, caller: Caller) -> None:
        """Have it make the next call."""
        self._left -= 1
        if self._left >= 0:
            caller.call(perf_counter())

    def note(self, latency_s: float) -> None:
        """Take a whole answer."""
        self.latencies_ms.append(round(latency_s * 1000, 4))
        if len(self.latencies_ms) == self.order.calls and not self.over.done():
            self.over.set_result(None)

    def fail(self, reason: str) -> None:
        """End it: something is broken."""
        if not self.over.done():
            self.over.set_exception(LoadError(reason))

    def gone(self, caller: Caller) -> None:
        """Forget it."""
        self._callers.discard(caller)
        if not self._callers:
            self._none_left.set()


class Together(Run):
    """Everybody at once."""

    def __init__(self, order: Order) -> None:
        super().__init__(order)
        self._ready: list[Caller] = []
        self._called = False

    async def start(self) -> None:
        """Open the connections, and call over all of them."""
        await super().start()
        await asyncio.sleep(_ACCEPTING_S)
        self._called = True
        self._left -= len(self._ready)
        self.began = perf_counter()
        for caller in self._ready:
            caller.call(perf_counter())

    def gone(self, caller: Caller) -> None:
        """Forget it; before its call the crowd would be smaller than was asked for."""
        super().gone(caller)
        if not self._called:
            self.fail("the server closed a connection before its call")

    def free(self, caller: Caller) -> None:
        """Keep it until all are there."""
        if self._called:
            super().free(caller)
        else:
            self._ready.append(caller)


class Arrivals(Run):
    """Calls that come by chance. A call's time counts from when it was due: a late generator must not flatter."""

    def __init__(self, order: Order, random: Random) -> None:
        super().__init__(order)
        self._random = random
        self._idle: deque[Caller] = deque()
        self._waiting: deque[float] = deque()  # calls that are due while every connection is busy
        self._opening: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Open ``concurrency`` connections (more are opened when more calls are under way), and begin."""
        await super().start()
        self.began = perf_counter()
        self._await_next(self.began)

    def free(self, caller: Caller) -> None:
        """Have it make a call that waits, or wait for one."""
        if self._waiting:
            caller.call(self._waiting.popleft())
        else:
            self._idle.append(caller)

    def gone(self, caller: Caller) -> None:
        """Forget it; one that was opened for a call that another made first is closed by the server in the end."""
        super().gone(caller)
        if caller in self._idle:
            self._idle.remove(caller)

    async def close(self) -> None:
        """Hang up everywhere, on those that are still being opened as well."""
        await asyncio.gather(*self._opening)
        await super().close()

    def _await_next(self, last_due: float) -> None:
        assert self.order.rate_per_s is not None
        due = last_due + self._random.expovariate(self.order.rate_per_s)
        asyncio.get_running_loop().call_later(max(0.0, due - perf_counter()), self._arrive, due)

    def _arrive(self, due: float) -> None:
        self._left -= 1
        if self._idle:
            self._idle.pop().call(due)
        else:
            self._waiting.append(due)
            opening = asyncio.get_running_loop().create_task(self.connect())
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)
        if self._left > 0:
            self._await_next(due)


def run(order: Order) -> Outcome:
    """Make the calls from a process of its own.

    Raises:
        LoadError: an answer was not whole, or the calls did not end in time.

    """
    command = [sys.executable, str(Path(__file__)), msgspec.json.encode(order).decode()]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise LoadError(done.stderr.decode().strip())
    return msgspec.json.decode(done.stdout, type=Outcome)


def write_out(data: bytes) -> None:
    """Write all of ``data`` to standard output; with PYTHONUNBUFFERED its own ``write`` may write only a part."""
    with open(sys.stdout.fileno(), "wb", closefd=False) as out:
        out.write(data)


async def carry_out(order: Order) -> Outcome:
    """Make the calls.

    Raises:
        LoadError: an answer is not whole.
        TimeoutError: it takes too long.

    """
    if order.rate_per_s is not None:
        work: Run = Arrivals(order, Random(1))
    else:
        work = Together(order) if order.together else Run(order)
    try:
        async with asyncio.timeout(_LIMIT_S):
            await work.start()
            await work.over
        return Outcome(work.latencies_ms, perf_counter() - work.began, process_time())
    finally:
        await work.close()


def main() -> None:
    """Run the order given as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("order", help="an Order as JSON")
    order = msgspec.json.decode(parser.parse_args().order, type=Order)
    try:
        outcome = uvloop.run(carry_out(order))
    except TimeoutError:
        sys.exit(f"load: not done within {_LIMIT_S:g} s")
    except (LoadError, OSError) as error:
        sys.exit(f"load: {error}")
    write_out(msgspec.json.encode(outcome))


if __name__ == "__main__":
    main()
