"""What every server is put through. A case returns what it measured, or raises what went wrong."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from providers import ErrorKind, UpstreamError
from tests.real_servers.application import NEVER
from tests.real_servers.bench import (
    Bench,
    FailedError,
    all_of,
    calling,
    giving_up,
    leave_in_the_middle,
    more,
    reached,
    together,
)
from tests.real_servers.site import Limits
from tests.real_servers.watched import Way, call

CALLS = 300
AT_A_TIME = 40
CANCELLED_SHARE = 0.3
LOSERS = 2000
LOSERS_AT_A_TIME = 12
LARGE_BYTES = 400 * 1024
ANSWER_BYTES = 5 * 1024 * 1024
RELOADS = 3
REQUESTS_PER_CONNECTION = 20
IDLE_S = 1
IDLE_CALLS = 20
IDLE_LATE_S = (-0.04, -0.005, 0.0, 0.005, 0.5)  # some before the server closes, some as it does, the last long after
OUR_RESETS = 100  # of one connection, until it is retired; those then under way may still be reset
STREAMS = 16


class Case(NamedTuple):
    """A case and what it needs of the server."""

    name: str
    run: Callable[[Bench], Awaitable[str]]
    limits: Limits = Limits()
    only: Callable[[Way], bool] = lambda way: way.versions != "auto"
    ends_process: bool = False


async def interleaved(bench: Bench) -> str:
    """300 calls, of which 30 % are cancelled early, while they wait, or while they stream."""
    await call(bench.client, bench.short())  # it is known then which protocol is spoken: few connections, many calls
    whole: list[int] = []
    cancelled: list[int] = []
    ran_on: list[int] = []

    def is_open(number: int) -> bool:
        return bool(bench.application.open([number]))

    async def one() -> None:
        if bench.random.random() >= CANCELLED_SHARE:
            script = bench.short()
            whole.append(script.id)
            await call(bench.client, script, bench.random.randbytes(bench.random.choice((2, 900, 30_000))))
            return
        kind = bench.random.choice(("early", "waiting", "streaming"))
        script = bench.script(pieces=NEVER, gap_ms=2) if kind == "streaming" else bench.script(wait_ms=NEVER)
        cancelled.append(script.id)
        if kind == "streaming":
            await leave_in_the_middle(bench, script)
        else:
            async with calling(bench, script) as task:
                if kind == "early":
                    await asyncio.sleep(bench.random.random() * 0.03)
                else:
                    await reached(bench, script.id, task)
        if bench.way in bench.server.deaf and not await bench.application.until(lambda: not is_open(script.id), 0.3):
            ran_on.append(script.id)
        if bench.way in bench.server.deaf:
            bench.application.refuse(script.id)  # else the server would soon have no workers left

    await all_of([one] * CALLS, AT_A_TIME)
    if {bench.application.answered[each] for each in whole} != {1}:
        raise FailedError("a completed call was answered more or less than once")
    words = await _see_cut(bench, cancelled)
    if ran_on:
        words = f"{len(ran_on)} of the cancelled RAN ON: {bench.server.deaf[bench.way]}"
    return f"{len(whole)} whole, {words}"


async def bodies(bench: Bench) -> str:
    """400 KB up, 5 MB down to slow readers, small calls beside them."""
    await bench.short_call()
    draw = bench.random.randbytes
    pieces = ANSWER_BYTES // 65_536

    async def slow() -> None:
        script = bench.script(pieces=pieces, size_bytes=65_536)
        await call(bench.client, script, draw(LARGE_BYTES), pause_s=0.002)

    async def up() -> None:
        await call(bench.client, bench.short(), draw(LARGE_BYTES))

    await all_of([*[slow] * 4, *[up] * 12, *[bench.short_call] * 60], AT_A_TIME)
    return "4 x 5 MB down, 16 x 400 KB up, 60 small"


async def losers(bench: Bench) -> str:
    """2,000 calls cancelled in a row, half of them as soon as they are sent; every tenth call beside them is whole."""
    await bench.short_call()
    cancelled: list[int] = []
    given_up: Counter[str] = Counter()

    async def lose(number: int) -> None:
        if number % 10 == 0:
            with giving_up(bench, given_up):
                await bench.short_call()
        script = bench.script(wait_ms=NEVER)
        cancelled.append(script.id)
        with giving_up(bench, given_up):
            async with calling(bench, script) as task:
                if number % 2:
                    await reached(bench, script.id, task)
                else:
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
        if bench.way in bench.server.deaf:
            bench.application.refuse(script.id)

    await all_of([partial(lose, number) for number in range(LOSERS)], LOSERS_AT_A_TIME)
    words = await _see_cut(bench, cancelled)
    if given_up:
        words += f"; {given_up.total()} of all were GIVEN UP by it: {dict(given_up)}"
    return f"{words}; {_see_retired(bench)}"


def _see_retired(bench: Bench) -> str:
    """See that connections were retired before the server could mind; return that in words."""
    resets = bench.client.resets
    if max(resets) > OUR_RESETS + STREAMS:
        raise FailedError(f"{max(resets)} resets on one connection")
    if len(resets) < LOSERS // (OUR_RESETS + STREAMS):
        raise FailedError(f"{sum(resets)} resets on {len(resets)} connections: none was retired")
    errors = {code: count for code, count in bench.client.goaways.items() if code}
    if errors and bench.way not in bench.server.abandons:
        raise FailedError(f"GOAWAY with an error: {errors}")
    return f"resets {sum(resets)}, at most {max(resets)} on one of {len(resets)} connections"


async def reload(bench: Bench) -> str:
    """Three graceful reloads under load: no call is lost, unless the application had it and its server gave it up."""
    await bench.short_call()
    done = 0
    connections: list[int] = []
    given_up: Counter[str] = Counter()

    async def caller() -> None:
        nonlocal done
        while len(connections) < RELOADS + 1:
            script = bench.short()
            try:
                await call(bench.client, script, bench.random.randbytes(2000))
            except UpstreamError as error:
                if not bench.application.begun[script.id]:
                    raise
                given_up[error.message] += 1
            else:
                done += 1

    async def reloader() -> None:
        for _ in range(RELOADS):
            await more(bench, lambda: done, 60)
            connections.append(len(bench.client.connections))
            await bench.server.reload(bench.process, bench.site)
            await more(bench, lambda: done, 60)
        await asyncio.sleep(1.0)  # the old workers are leaving
        await more(bench, lambda: done, 60)
        connections.append(len(bench.client.connections))

    await together([caller() for _ in range(16)], reloader())
    if connections[0] >= connections[-1]:
        raise FailedError("the same connections served all the time: nothing was reloaded")
    if given_up and bench.way not in bench.server.abandons:
        raise FailedError(f"calls that had begun were lost: {dict(given_up)}")
    lost = f"; {given_up.total()} that had begun were GIVEN UP by it: {dict(given_up)}" if given_up else ""
    return f"{done} calls, connections before and after each: {connections}{lost}"


async def limit(bench: Bench) -> str:
    """A server that takes 20 requests per connection."""
    await bench.short_call()
    await all_of([bench.short_call] * CALLS, 10)
    if len(bench.client.connections) < CALLS // REQUESTS_PER_CONNECTION // 2:
        raise FailedError(f"{len(bench.client.connections)} connections: the limit did not show")
    return f"{CALLS} calls"


async def idle(bench: Bench) -> str:
    """A server that closes idle connections just when we are about to use them: a little before, a little after."""

    async def later(delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        await bench.short_call()

    await bench.short_call()
    await all_of([bench.short_call] * IDLE_CALLS, IDLE_CALLS)
    first = len(bench.client.connections)
    for late_s in IDLE_LATE_S:
        await asyncio.sleep(IDLE_S + late_s)
        await all_of([partial(later, 0.005 * number) for number in range(IDLE_CALLS)], IDLE_CALLS)
    if len(bench.client.connections) == first:
        raise FailedError("the same connections served all the time: none was closed")
    return f"{IDLE_CALLS * (len(IDLE_LATE_S) + 1)} calls"


async def kill(bench: Bench) -> str:
    """SIGKILL under load; then the server comes back."""
    await bench.short_call()
    done = 0
    again = asyncio.Event()
    failures: Counter[str] = Counter()

    async def caller() -> None:
        nonlocal done
        while True:
            script = bench.script(wait_ms=bench.random.randint(0, 40), pieces=bench.random.randint(5, 40), gap_ms=2)
            try:
                await call(bench.client, script)
            except UpstreamError as error:
                if error.kind not in {ErrorKind.DISCONNECTED, ErrorKind.CONNECT_ERROR}:
                    raise
                failures[error.kind.value] += 1
                await again.wait()
            else:
                done += 1
                if again.is_set():
                    return

    async def killer() -> None:
        await more(bench, lambda: done, 30)
        await bench.process.kill()
        if not await bench.application.until(lambda: failures.total() == 12):
            raise FailedError(f"only {failures.total()} of 12 callers heard of it")
        await _see_refused(bench)
        await bench.process.start()
        again.set()

    await together([caller() for _ in range(12)], killer())
    await all_of([bench.short_call] * 50, 12)
    return f"{done} calls; then {dict(failures)}; then 12 + 50 calls"


async def _see_refused(bench: Bench) -> None:
    try:
        await bench.short_call()
    except UpstreamError as error:
        if error.kind != ErrorKind.CONNECT_ERROR:
            raise
    else:
        raise FailedError("a dead server answered")


async def _see_cut(bench: Bench, cancelled: list[int]) -> str:
    """See that the application has been told of each cancelled call; return that in words."""
    application = bench.application
    await application.until(lambda: not application.open(cancelled))
    begun = [each for each in cancelled if application.begun[each]]
    running = application.open(begun)
    application.drop(running)
    await application.until(lambda: not application.open(cancelled))
    if any(application.answered[each] for each in cancelled):
        raise FailedError("a cancelled call was answered")
    if running:
        raise FailedError(f"{len(running)} of {len(begun)} cancelled calls run on at the application")
    by_whom = ", broken off by the application" if bench.way in bench.server.deaf else ", all cut"
    return f"{len(begun)} cancelled once begun{by_whom}"


CASES = (
    Case("interleaved", interleaved, only=lambda _: True),
    Case("bodies", bodies, only=lambda _: True),
    Case("losers", losers, only=lambda way: way.versions == "2"),
    Case("reload", reload),
    Case("kill", kill, ends_process=True),
    Case("limit", limit, Limits(requests=REQUESTS_PER_CONNECTION)),
    Case("idle", idle, Limits(idle_s=IDLE_S)),
)
