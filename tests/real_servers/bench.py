"""What a case works with: the server under test, a client of its own, calls to make, and ways to make many of them."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, NamedTuple

from providers import UpstreamError
from tests.real_servers.application import Application, Script
from tests.real_servers.servers.server import Server
from tests.real_servers.site import Process, Site
from tests.real_servers.watched import Watched, Way, WrongAnswerError, begin, call


class FailedError(Exception):
    """The case does not hold."""


class Bench(NamedTuple):
    """What a case works with. ``client`` is of this case alone."""

    server: Server
    site: Site
    process: Process
    way: Way
    application: Application
    client: Watched
    random: random.Random
    numbers: Iterable[int]  # the ids of calls, never the same twice

    def script(self, **told: int) -> Script:
        return Script(next(iter(self.numbers)), **told)

    def short(self) -> Script:
        """Return an answer of some tokens."""
        draw = self.random.randint
        return self.script(
            wait_ms=draw(0, 20), pieces=draw(1, 30), size_bytes=draw(20, 400), gap_ms=self.random.choice((0, 1))
        )

    async def short_call(self) -> None:
        await call(self.client, self.short())


async def leave_in_the_middle(bench: Bench, script: Script) -> None:
    """Read an endless answer for a while, and abort it."""
    response = await begin(bench.client, script)
    try:
        for _ in range(bench.random.randint(0, 4)):
            if not await response.read():
                raise WrongAnswerError("an endless answer has ended")
    finally:
        response.abort()


async def reached(bench: Bench, number: int, task: asyncio.Task[None]) -> None:
    """Wait until the application has begun with a call, or ``task``, which makes it, has ended."""
    if not await bench.application.until(lambda: bool(bench.application.begun[number]) or task.done()):
        raise FailedError("a call did not reach the application")


async def more(bench: Bench, count: Callable[[], int], wanted: int) -> None:
    """Wait until ``count`` has grown by ``wanted``."""
    wanted += count()
    if not await bench.application.until(lambda: count() >= wanted, 30.0):
        raise FailedError("calls no longer get on")


@contextmanager
def giving_up(bench: Bench, given_up: Counter[str]) -> Iterator[None]:
    """Count the calls that the server breaks off by itself, if it is known to do that."""
    try:
        yield
    except UpstreamError as error:
        if bench.way not in bench.server.abandons:
            raise
        given_up[error.message] += 1


@asynccontextmanager
async def calling(bench: Bench, script: Script) -> AsyncIterator[asyncio.Task[None]]:
    """Make a call, and cancel it at the end of the block."""
    task = asyncio.create_task(call(bench.client, script))
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def together(callers: list[Coroutine[Any, Any, None]], conductor: Coroutine[Any, Any, None]) -> None:
    """Run callers, and who tells them what to do; the first failure ends it."""
    async with asyncio.TaskGroup() as group:
        for each in (conductor, *callers):
            group.create_task(each)


async def all_of(work: Iterable[Callable[[], Awaitable[None]]], at_a_time: int) -> None:
    """Do all of it, some at a time; a failure ends it, and says how many there were."""
    gate = asyncio.Semaphore(at_a_time)
    failures: Counter[str] = Counter()

    async def one(item: Callable[[], Awaitable[None]]) -> None:
        async with gate:
            try:
                await item()
            except (UpstreamError, WrongAnswerError, TimeoutError) as error:
                failures[f"{type(error).__name__}: {error}"] += 1

    async with asyncio.TaskGroup() as group:
        for item in work:
            group.create_task(one(item))
    if failures:
        raise FailedError("; ".join(f"{count} x {words}" for words, count in failures.most_common(4)))
