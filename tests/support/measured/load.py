"""The load: calls over many connections, in one of three rhythms; a process of its own, run by ``run``.

Prints one JSON object: how long each call took to its first token (streams) or its end, in milliseconds, and what the
load itself took.
"""

import asyncio
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from random import Random
from time import perf_counter, process_time
from types import MappingProxyType
from typing import Any, TypeVar, cast

import msgspec
import uvloop

from tests.support.measured.answers import TOKEN_MARK, is_whole_json, is_whole_stream

LIMIT_S = 300.0
NOT_IN_TIME = "not done in time"
PATH = "/v1/chat/completions"
_ACCEPTING_S = (
    1.0  # until a server has taken a crowd's connections out of its backlog; some take one a turn of their loop
)
_T = TypeVar("_T")
_PROMPT = "Explain to a new colleague, in plain words and about a hundred tokens, why a proxy should not be slow. " * 2
_LENGTH = b"content-length:"
_HEADERS_END = b"\r\n\r\n"
_LAST_CHUNK = b"\r\n0\r\n\r\n"


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked, with ``more`` fields. ``launched`` is how many attempts a gateway must say it started."""

    port: int
    path: str
    model: str
    streamed: bool
    prompt_bytes: int = len(_PROMPT)
    headers: Mapping[str, str] = {}
    launched: int | None = None
    more: Mapping[str, Any] = {}
    prompted: str = "messages"  # the field of the prompt

    def rendered(self) -> bytes:
        """Return it as HTTP/1.1 writes it."""
        prompt = (_PROMPT * (self.prompt_bytes // len(_PROMPT) + 1))[: self.prompt_bytes]
        turn = {"role": "user", "parts": [{"text": prompt}]} if self.prompted == "contents" else None
        turns = [{"role": "user", "content": prompt}] if turn is None else [turn]
        named = {} if turn is not None else {"model": self.model, "stream": self.streamed}
        body = {self.prompted: turns, **named, **self.more}
        more = {"host": f"127.0.0.1:{self.port}", **self.headers, "accept": "*/*", "user-agent": "load"}
        return rendered(self.path, body, more)


def asking(
    port: int, headers: Mapping[str, str], model: str, *, streamed: bool = True, launched: int | None = None
) -> Question:
    """Return what a gateway is asked for a chat completion of ``model``."""
    return Question(port=port, path=PATH, model=model, streamed=streamed, headers=headers, launched=launched)


def rendered(path: str, body: object, headers: Mapping[str, str] = MappingProxyType({})) -> bytes:
    """Return a POST as HTTP/1.1 writes it."""
    content = msgspec.json.encode(body)
    fields = {"host": "127.0.0.1", "content-type": "application/json", **headers, "content-length": str(len(content))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + content


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
    limit_s: float = LIMIT_S


class Outcome(msgspec.Struct, frozen=True):
    """``latencies_ms``: to the first token of each streamed call, to the end of the others.

    ``wall_s`` from the first call to the last answer; ``cpu_s`` of the load generator itself.
    """

    latencies_ms: list[float]
    wall_s: float
    cpu_s: float


class LoadError(Exception):
    """An answer was not what it should be: the measurement would mean nothing."""


class Caller(asyncio.Protocol):
    """One connection."""

    def __init__(self, foreman: "Run") -> None:
        self._foreman = foreman
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._began: float | None = None
        self._first_token_at: float | None = None
        self._start = 0  # of the body; 0: the head is not complete
        self._length: int | None = None  # of the body; None: it is chunked

    def call(self, due: float) -> None:
        """Send a request; ``due`` is when its time begins to count."""
        assert self._transport is not None
        self._began = due
        self._first_token_at = None
        self._start = 0
        self._transport.write(self._foreman.request)

    def close(self) -> None:
        """Hang up."""
        assert self._transport is not None
        self._began = None
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not derive from it
        self._foreman.made(self)
        self._foreman.free(self)

    def connection_lost(self, error: Exception | None) -> None:
        if self._began is not None:
            self._foreman.fail(f"the server closed the connection ({error}) after {bytes(self._received[-300:])!r}")
        self._foreman.gone(self)

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        if self._first_token_at is None and TOKEN_MARK in received:
            self._first_token_at = perf_counter()
        if not self._start:
            head_end = received.find(_HEADERS_END)
            if head_end < 0:
                return
            self._start = head_end + len(_HEADERS_END)
            # Once, and without a pattern: what the load takes for a longer head would count as the gateway's.
            _, found, rest = bytes(received[: self._start]).lower().partition(_LENGTH)
            self._length = int(rest[: rest.find(b"\r")]) if found else None
        start, length = self._start, self._length
        if length is None:
            if received.endswith(_LAST_CHUNK):
                self._take(bytes(received[:start]), _unchunked(received, start))
        elif len(received) >= start + length:
            self._take(bytes(received[:start]), bytes(received[start:]))

    def _take(self, head: bytes, body: bytes) -> None:
        now = perf_counter()
        question = self._foreman.question
        is_whole = is_whole_stream if question.streamed else is_whole_json
        if not head.startswith(b"HTTP/1.1 200 ") or not is_whole(body):
            self._foreman.fail(f"not a whole answer: {head!r} … {body[-300:]!r}")
            return
        if question.launched is not None and b"x-holeshot-launched: %d\r\n" % question.launched not in head.lower():
            self._foreman.fail(f"not raced as it should be: {head!r}")
            return
        assert self._began is not None
        until = self._first_token_at if question.streamed and self._first_token_at is not None else now
        began, self._began = self._began, None
        self._received.clear()
        self._foreman.note(until - began)
        self._foreman.free(self)


def _unchunked(received: bytearray, start: int) -> bytes:
    """Return the body of a chunked response that is complete."""
    parts: list[bytearray] = []
    while True:
        line_end = received.index(b"\r\n", start)
        size = int(received[start:line_end], 16)
        if size == 0:
            return b"".join(parts)
        start = line_end + 2
        parts.append(received[start : start + size])
        start += size + 2


class Run:
    """The closed loop, and what all rhythms have in common."""

    caller: type[Caller] = Caller

    def __init__(self, question: Question, calls: int, concurrency: int) -> None:
        self.question = question
        self.request = question.rendered()
        self.latencies_ms: list[float] = []
        self.began = perf_counter()
        self._callers: set[Caller] = set()
        self._none_left = asyncio.Event()
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._calls = self._left = calls
        self._concurrency = concurrency

    async def start(self) -> None:
        """Open the connections."""
        for _ in range(self._concurrency):
            await self.connect()

    async def connect(self) -> None:
        """Open one."""
        await asyncio.get_running_loop().create_connection(lambda: self.caller(self), "127.0.0.1", self.question.port)

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
        if len(self.latencies_ms) == self._calls and not self.over.done():
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

    def __init__(self, question: Question, calls: int, concurrency: int) -> None:
        super().__init__(question, calls, concurrency)
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

    def __init__(self, question: Question, calls: int, concurrency: int, rate_per_s: float, random: Random) -> None:
        super().__init__(question, calls, concurrency)
        self._rate_per_s = rate_per_s
        self._random = random
        self._idle: list[Caller] = []
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
            self._ask(caller, self._waiting.popleft())
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
        due = last_due + self._random.expovariate(self._rate_per_s)
        asyncio.get_running_loop().call_later(max(0.0, due - perf_counter()), self._arrive, due)

    def _arrive(self, due: float) -> None:
        self._left -= 1
        self._offer(due)
        if self._left > 0:
            self._await_next(due)

    def _offer(self, due: float) -> None:
        """Have a free connection make a call; open another one when there is none."""
        if self._idle:
            self._ask(self._idle.pop(), due)
            return
        self._waiting.append(due)
        opening = asyncio.get_running_loop().create_task(self.connect())
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)

    def _ask(self, caller: Caller, due: float) -> None:
        caller.call(due)


def run(order: Order) -> Outcome:
    """Make the calls from a process of its own.

    Raises:
        LoadError: an answer was not whole, or the calls did not end in time.

    """
    return in_a_process(Path(__file__), order, Outcome)


def in_a_process(script: Path, order: msgspec.Struct, outcome: type[_T]) -> _T:
    """Have ``script``, whose main is ``obey``, carry out ``order``, and return what came of it.

    Raises:
        LoadError: it failed.

    """
    command = [sys.executable, str(script), msgspec.json.encode(order).decode()]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise LoadError(done.stderr.decode().strip())
    return msgspec.json.decode(done.stdout, type=outcome)


async def carry_out(order: Order) -> Outcome:
    """Make the calls.

    Raises:
        LoadError: an answer is not whole.
        TimeoutError: it takes too long.

    """
    given = order.question, order.calls, order.concurrency
    if order.rate_per_s is not None:
        work: Run = Arrivals(*given, order.rate_per_s, Random(1))
    else:
        work = Together(*given) if order.together else Run(*given)
    try:
        async with asyncio.timeout(order.limit_s):
            await work.start()
            await work.over
        return Outcome(work.latencies_ms, perf_counter() - work.began, process_time())
    finally:
        await work.close()


def obey(order: type[_T], carry_out: Callable[[_T], Coroutine[Any, Any, object]]) -> None:
    """Carry out the order that is given as JSON, and print what came of it as JSON."""
    try:
        outcome = uvloop.run(carry_out(msgspec.json.decode(sys.argv[1], type=order)))
    except TimeoutError:
        sys.exit(f"load: {NOT_IN_TIME}")
    except (LoadError, OSError) as error:
        sys.exit(f"load: {error}")
    with open(sys.stdout.fileno(), "wb", closefd=False) as out:  # with PYTHONUNBUFFERED, its ``write`` may write a part
        out.write(msgspec.json.encode(outcome))


if __name__ == "__main__":
    obey(Order, carry_out)
