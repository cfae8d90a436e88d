"""The load: calls that come by chance whatever becomes of those before, or a closed loop; a process run by ``run``.

Calls are timed from when they were due: a late generator must not flatter. A refusal is an answer, too. Prints a JSON
array of all calls that ended.
"""

import asyncio
import re
from contextlib import suppress
from pathlib import Path
from random import Random
from time import perf_counter

import msgspec

from tests.support.measured.answers import is_whole_stream
from tests.support.measured.load import LIMIT_S, Arrivals, Caller, LoadError, Question, Run, in_a_process, obey

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

    def __init__(self, crew: Run) -> None:
        super().__init__(crew)
        assert isinstance(crew, _Crew)
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


class _Crew(Arrivals):
    """All connections, for as long as was ordered."""

    caller = _Asker

    def __init__(self, order: Order) -> None:
        super().__init__(order.question, 0, 0, order.rate_per_s or 0.0, Random(order.seed))
        self.order = order
        self.outcome = Outcome([], [])
        self._silent: dict[Caller, float] = {}  # that have asked, and when that was due; some have been answered since
        self._without = 0  # calls that will have no answer
        self._is_last = False  # no more calls are made
        self._all_ended = asyncio.Event()

    async def work(self) -> None:
        """Make calls for as long as was ordered, and wait for their ends."""
        order = self.order
        due = self.began = perf_counter()
        if order.rate_per_s is not None:
            while (due := due + self._random.expovariate(order.rate_per_s)) < self.began + order.for_s:
                await asyncio.sleep(max(0.0, due - perf_counter()))
                self._offer(due)
        else:
            for number in range(order.connections):
                due = self.began + order.spread_s * number / order.connections
                await asyncio.sleep(max(0.0, due - perf_counter()))
                self._offer(due)
            await asyncio.sleep(self.began + order.for_s - perf_counter())
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
                if isinstance(asker, _Asker) and asker.is_silent:
                    asker.close()
                    self._without += 1
                self._silent.pop(asker, None)
            self._look()

    async def connect(self) -> None:
        """Open one; that it cannot be opened breaks the load."""
        try:
            await super().connect()
        except OSError as error:
            self.fail(f"cannot connect: {error}")

    async def close(self) -> None:
        """Hang up everywhere."""
        self._waiting.clear()
        await super().close()

    def ended(self, due: float, now: float, status: int, first_token_at: float) -> None:
        """Take an answer or a refusal."""
        self.outcome.ended.append(Ended(due - self.began, now - self.began, status, first_token_at - due))
        self._look()

    def cut(self) -> None:
        """Count a call that the server cut off."""
        self._without += 1
        self._look()

    def free(self, caller: Caller) -> None:
        """Have it make a call that waits; in a closed loop, the next one."""
        now = perf_counter()
        if not self._waiting and self.order.rate_per_s is None and now < self.began + self.order.for_s:
            self.outcome.due.append(now - self.began)
            self._ask(caller, now)
        else:
            super().free(caller)

    def gone(self, caller: Caller) -> None:
        """Forget a connection."""
        super().gone(caller)
        self._silent.pop(caller, None)

    def _look(self) -> None:
        if self._is_last and len(self.outcome.ended) + self._without == len(self.outcome.due):
            self._all_ended.set()

    def _offer(self, due: float) -> None:
        self.outcome.due.append(due - self.began)
        super()._offer(due)

    def _ask(self, caller: Caller, due: float) -> None:
        self._silent.pop(caller, None)  # and then it is the last one again
        self._silent[caller] = due
        super()._ask(caller, due)


def run(order: Order) -> Outcome:
    """Make the calls from a process of its own.

    Raises:
        LoadError: an answer was neither whole nor a refusal.

    """
    return in_a_process(Path(__file__), order, Outcome)


async def carry_out(order: Order) -> Outcome:
    """Make the calls.

    Raises:
        LoadError: an answer was neither whole nor a refusal, or they did not end in time.

    """
    crew = _Crew(order)
    work = asyncio.get_running_loop().create_task(crew.work())
    giving_up = asyncio.get_running_loop().create_task(crew.give_up())
    try:
        await asyncio.wait({work, crew.over}, timeout=LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
        if crew.over.done():
            crew.over.result()
        if not work.done():
            raise LoadError(f"not done within {LIMIT_S:g} s")
    finally:
        work.cancel()
        giving_up.cancel()
        await asyncio.gather(work, giving_up, return_exceptions=True)
        await crew.close()
    return crew.outcome


if __name__ == "__main__":
    obey(Order, carry_out)
