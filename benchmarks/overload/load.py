"""The load: calls that come by chance whatever becomes of those before, or a closed loop; a process run by ``run``.

Calls are timed from when they were due: a late generator must not flatter. A refusal is an answer, too. Prints a JSON
array of all calls that ended.
"""

import argparse
import asyncio
import re
import subprocess
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path
from random import Random
from time import perf_counter

import msgspec
import uvloop

from benchmarks.harness.answers import is_whole_stream
from benchmarks.harness.caller import Caller, Question
from benchmarks.harness.load import LoadError, write_out

_LIMIT_S = 300.0
_LOOK_S = 0.1
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
REFUSED = 503


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What to ask, for how long, and how often: ``rate_per_s`` by chance, or else ``connections`` in a closed loop.

    Connections of a closed loop begin one after the other, spread over ``spread_s``. A client without a first token
    hangs up after ``gives_up_s``. Calls that have begun may take ``patience_s`` beyond ``for_s``; then all hang up.
    ``may_be_cut``: a connection that the server closes is a call without an answer; otherwise it breaks the load.
    """

    question: Question
    for_s: float
    rate_per_s: float | None = None
    connections: int = 0
    spread_s: float = 0.0
    gives_up_s: float = 5.0
    patience_s: float = 5.0
    may_be_cut: bool = False
    seed: int = 1


class Ended(msgspec.Struct, frozen=True, array_like=True):
    """A call that was answered or refused: seconds since the load began, and to its first token."""

    due_s: float
    ended_s: float
    status: int
    ttft_s: float


class Outcome(msgspec.Struct, frozen=True):
    """``due``: when calls were due, in seconds since the load began; ``ended``: those that had an end."""

    due: list[float]
    ended: list[Ended]


class _Asker(Caller):
    """A connection whose calls may be refused."""

    def __init__(self, crew: "_Crew") -> None:
        super().__init__(crew)
        self._crew = crew

    @property
    def is_silent(self) -> bool:
        """Whether its call has no first token yet."""
        return self._began is not None and self._first_token_at is None

    def connection_lost(self, error: Exception | None) -> None:
        if self._began is not None and self._crew.order.may_be_cut:
            self._began = None
            self._crew.cut()
        super().connection_lost(error)

    def _take(self, head: bytes, body: bytes) -> None:
        found = _STATUS.match(head)
        status = 0 if found is None else int(found[1])
        if status != REFUSED and not (status == 200 and is_whole_stream(body)):
            self._crew.fail(f"neither a whole answer nor a refusal: {head!r} … {body[-300:]!r}")
            return
        assert self._began is not None
        began, self._began = self._began, None
        now = perf_counter()
        self._received.clear()
        self._crew.ended(began, now, status, now if self._first_token_at is None else self._first_token_at)
        self._crew.free(self)


class _Crew:
    """All connections. Has a free one make the next call, and opens another one when there is none."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.question = order.question
        self.request = order.question.rendered()
        self.outcome = Outcome([], [])
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._began = perf_counter()
        self._askers: set[_Asker] = set()
        self._idle: list[_Asker] = []
        self._waiting: deque[float] = deque()  # calls that are due, and have no connection yet
        self._silent: dict[_Asker, float] = {}  # that have asked, and when that was due; some have been answered since
        self._opening: set[asyncio.Task[None]] = set()
        self._without = 0  # calls that will have no answer
        self._is_last = False  # no more calls are made
        self._all_ended = asyncio.Event()

    async def work(self) -> None:
        """Make calls for as long as was ordered, and wait for their ends."""
        order, random = self.order, Random(self.order.seed)
        due = self._began = perf_counter()
        if order.rate_per_s is not None:
            while (due := due + random.expovariate(order.rate_per_s)) < self._began + order.for_s:
                await asyncio.sleep(max(0.0, due - perf_counter()))
                self._call(due)
        else:
            for number in range(order.connections):
                due = self._began + order.spread_s * number / order.connections
                await asyncio.sleep(max(0.0, due - perf_counter()))
                self._call(due)
            await asyncio.sleep(self._began + order.for_s - perf_counter())
        self._is_last = True
        self._look()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all_ended.wait(), order.patience_s)

    async def give_up(self) -> None:
        """Hang up for those who have waited too long for a first token. Runs until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            longest = perf_counter() - self.order.gives_up_s
            while self._waiting and self._waiting[0] < longest:
                self._waiting.popleft()
                self._without += 1
            for asker, due in list(self._silent.items()):
                if due > longest:
                    break  # they are in the order in which they were due
                if asker.is_silent:
                    asker.close()
                    self._without += 1
                self._silent.pop(asker, None)
            self._look()

    async def close(self) -> None:
        """Hang up everywhere."""
        self._waiting.clear()
        await asyncio.gather(*self._opening, return_exceptions=True)
        for asker in list(self._askers):
            asker.close()

    def ended(self, due: float, now: float, status: int, first_token_at: float) -> None:
        """Take an answer or a refusal."""
        self.outcome.ended.append(Ended(due - self._began, now - self._began, status, first_token_at - due))
        self._look()

    def cut(self) -> None:
        """Count a call that the server cut off."""
        self._without += 1
        self._look()

    def made(self, asker: Caller) -> None:
        """Remember a connection."""
        assert isinstance(asker, _Asker)
        self._askers.add(asker)

    def free(self, asker: Caller) -> None:
        """Have it make a call that waits; in a closed loop, the next one."""
        assert isinstance(asker, _Asker)
        if self._waiting:
            self._ask(asker, self._waiting.popleft())
        elif self.order.rate_per_s is None and (now := perf_counter()) < self._began + self.order.for_s:
            self.outcome.due.append(now - self._began)
            self._ask(asker, now)
        else:
            self._idle.append(asker)

    def note(self, latency_s: float) -> None:
        """Never called: ``ended`` is."""
        raise NotImplementedError(latency_s)

    def fail(self, reason: str) -> None:
        """End it: something is broken."""
        if not self.broken.done():
            self.broken.set_exception(LoadError(reason))

    def gone(self, asker: Caller) -> None:
        """Forget a connection."""
        assert isinstance(asker, _Asker)
        self._askers.discard(asker)
        self._silent.pop(asker, None)
        if asker in self._idle:
            self._idle.remove(asker)

    def _look(self) -> None:
        if self._is_last and len(self.outcome.ended) + self._without == len(self.outcome.due):
            self._all_ended.set()

    def _call(self, due: float) -> None:
        self.outcome.due.append(due - self._began)
        if self._idle:
            self._ask(self._idle.pop(), due)
            return
        self._waiting.append(due)
        opening = asyncio.get_running_loop().create_task(self._connect())
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)

    def _ask(self, asker: _Asker, due: float) -> None:
        self._silent.pop(asker, None)  # and then it is the last one again
        self._silent[asker] = due
        asker.call(due)

    async def _connect(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: _Asker(self), "127.0.0.1", self.question.port)
        except OSError as error:
            self.fail(f"cannot connect: {error}")


def run(order: Order) -> Outcome:
    """Make the calls from a process of its own.

    Raises:
        LoadError: an answer was neither whole nor a refusal.

    """
    command = [sys.executable, str(Path(__file__)), msgspec.json.encode(order).decode()]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise LoadError(done.stderr.decode().strip())
    return msgspec.json.decode(done.stdout, type=Outcome)


async def carry_out(order: Order) -> Outcome:
    """Make the calls.

    Raises:
        LoadError: an answer was neither whole nor a refusal, or they did not end in time.

    """
    crew = _Crew(order)
    work = asyncio.get_running_loop().create_task(crew.work())
    giving_up = asyncio.get_running_loop().create_task(crew.give_up())
    try:
        await asyncio.wait({work, crew.broken}, timeout=_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
        if crew.broken.done():
            crew.broken.result()
        if not work.done():
            raise LoadError(f"not done within {_LIMIT_S:g} s")
    finally:
        work.cancel()
        giving_up.cancel()
        await asyncio.gather(work, giving_up, return_exceptions=True)
        await crew.close()
    return crew.outcome


def main() -> None:
    """Run the order given as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("order", help="an Order as JSON")
    order = msgspec.json.decode(parser.parse_args().order, type=Order)
    try:
        outcome = uvloop.run(carry_out(order))
    except (LoadError, OSError) as error:
        sys.exit(f"load: {error}")
    write_out(msgspec.json.encode(outcome))


if __name__ == "__main__":
    main()
