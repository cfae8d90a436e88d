"""Who gets which connection, how many are made and kept, and for how long. In virtual time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps

import pytest

from providers.http import Response
from providers.http.client import Pool
from providers.http.message import IDLE_S, MAX_IDLE, UNKNOWN_DIALS
from providers.refusals import ErrorKind, UpstreamError
from tests.unit.providers.http.inside.h1_server import OK, POST, Dialling, Line
from tests.unit.racing.virtual_time import run

TIMEOUT_S = 5.0
REFUSED = UpstreamError(ErrorKind.CONNECT_ERROR, "refused")


def in_virtual_time(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    @wraps(test)
    def running() -> None:
        async def main() -> None:
            await test()

        run(main())

    del running.__wrapped__  # pytest would run the coroutine function itself
    return running


@asynccontextmanager
async def pooling(dialling: Dialling) -> AsyncIterator[Pool]:
    pool = Pool(dialling.dial, asyncio.get_running_loop())
    try:
        yield pool
    finally:
        await pool.aclose()
        await asyncio.sleep(0)
        assert all(line.wire.aborted for line in dialling.lines)
        assert not pool._all
        assert not pool._free


def asking(pool: Pool, timeout_s: float = TIMEOUT_S) -> asyncio.Task[Response]:
    return asyncio.create_task(pool.send(POST, timeout_s))


async def finished(line: Line, response: Response) -> None:
    line.say(OK)
    assert await response.read() == b"ok"
    assert await response.read() == b""


async def exchanged(pool: Pool, dialling: Dialling) -> Line:
    """Carry one exchange over the pool's only connection."""
    response = await pool.send(POST, TIMEOUT_S)
    line = next(each for each in dialling.lines if each.heard())
    await finished(line, response)
    return line


async def used_at_a_time(pool: Pool, dialling: Dialling, count: int) -> None:
    """Have the pool make and keep ``count`` connections."""
    responses = await asyncio.gather(*(pool.send(POST, TIMEOUT_S) for _ in range(count)))
    for line, response in zip(dialling.lines, responses, strict=True):
        line.heard()
        await finished(line, response)


@in_virtual_time
async def test_nothing_is_made_before_it_is_needed() -> None:
    dialling = Dialling()
    async with pooling(dialling):
        await asyncio.sleep(1000)
    assert not dialling.begun


@in_virtual_time
async def test_a_connection_is_used_again_and_waits_for_nothing() -> None:
    dialling = Dialling()
    async with pooling(dialling) as pool:
        first = await pool.send(POST, TIMEOUT_S)
        assert first.connect_ms == 12.5
        await finished(dialling.lines[0], first)
        assert (await pool.send(POST, TIMEOUT_S)).connect_ms is None
    assert dialling.begun == 1


@in_virtual_time
async def test_each_waiting_request_gets_a_connection() -> None:
    dialling = Dialling(takes_s=1)
    async with pooling(dialling) as pool:
        await asyncio.gather(*(pool.send(POST, TIMEOUT_S) for _ in range(20)))
    assert dialling.begun == 20


@in_virtual_time
async def test_who_waits_takes_what_is_freed_first() -> None:
    dialling = Dialling()
    async with pooling(dialling) as pool:
        first = await pool.send(POST, TIMEOUT_S)
        dialling.takes_s = 1
        second = asking(pool)
        await asyncio.sleep(0.5)
        await finished(dialling.lines[0], first)
        assert (await second).connect_ms is None
        await asyncio.sleep(1)
        assert (await pool.send(POST, TIMEOUT_S)).connect_ms is None  # the connection nobody had to wait for
    assert dialling.begun == 2


@in_virtual_time
async def test_who_wants_a_fresh_connection_takes_no_kept_one_and_holds_nobody_up() -> None:
    dialling = Dialling()
    async with pooling(dialling) as pool:
        await used_at_a_time(pool, dialling, 2)
        first, kept = await pool.send(POST, TIMEOUT_S), await pool.send(POST, TIMEOUT_S)
        dialling.takes_s = 1
        wanting_fresh = asyncio.create_task(pool.send(POST, TIMEOUT_S, fresh=True))
        second = asking(pool)
        await asyncio.sleep(0.5)
        await finished(dialling.lines[1], first)
        assert (await second).connect_ms is None
        await finished(dialling.lines[0], kept)
        await asyncio.sleep(0)
        assert not wanting_fresh.done()
        assert (await wanting_fresh).connect_ms is not None


@in_virtual_time
async def test_the_connection_used_last_is_used_first() -> None:
    dialling = Dialling()
    async with pooling(dialling) as pool:
        await used_at_a_time(pool, dialling, 3)
        for _ in range(3):
            assert await exchanged(pool, dialling) is dialling.lines[2]


@in_virtual_time
async def test_a_lost_exchange_is_replaced_before_anybody_asks() -> None:
    dialling = Dialling()
    async with pooling(dialling) as pool:
        (await pool.send(POST, TIMEOUT_S)).abort()
        assert dialling.lines[0].wire.aborted
        await asyncio.sleep(1)
        assert (await pool.send(POST, TIMEOUT_S)).connect_ms is None
    assert dialling.begun == 2


@in_virtual_time
async def test_a_connection_the_server_closed_is_not_replaced() -> None:
    dialling = Dialling()
    async with pooling(dialling) as pool:
        line = await exchanged(pool, dialling)
        line.hang_up()
        await asyncio.sleep(1)
    assert dialling.begun == 1


@in_virtual_time
async def test_what_is_idle_for_too_long_is_dropped_and_no_sooner() -> None:
    dialling = Dialling()
    async with pooling(dialling) as pool:
        await used_at_a_time(pool, dialling, 3)
        await asyncio.sleep(IDLE_S / 2)
        busy = await exchanged(pool, dialling)
        await asyncio.sleep(IDLE_S * 0.75)
        assert [line for line in dialling.lines if not line.wire.aborted] == [busy]
        await asyncio.sleep(IDLE_S)
        assert busy.wire.aborted
        assert not pool._all
        assert pool._sweeping is None


@in_virtual_time
async def test_what_is_in_use_is_never_idle() -> None:
    dialling = Dialling()
    async with pooling(dialling) as pool:
        response = await pool.send(POST, TIMEOUT_S)
        await asyncio.sleep(IDLE_S * 10)
        await finished(dialling.lines[0], response)


@in_virtual_time
async def test_no_more_are_kept_than_is_reasonable() -> None:
    dialling = Dialling()
    async with pooling(dialling) as pool:
        await used_at_a_time(pool, dialling, MAX_IDLE + 10)
        assert len(pool._free) == MAX_IDLE
        assert sum(line.wire.aborted for line in dialling.lines) == 10


@in_virtual_time
async def test_each_failure_is_told_once_and_the_others_go_on() -> None:
    dialling = Dialling(takes_s=1)
    async with pooling(dialling) as pool:
        dialling.errors = [REFUSED]
        first, second = asking(pool), asking(pool)
        with pytest.raises(UpstreamError, match="refused"):
            await first
        assert (await second).connect_ms == 12.5


@in_virtual_time
async def test_a_failure_nobody_waits_for_is_nobodys() -> None:
    dialling = Dialling()
    async with pooling(dialling) as pool:
        response = await pool.send(POST, TIMEOUT_S)
        dialling.errors = [REFUSED]
        response.abort()  # which makes a spare
        await asyncio.sleep(1)
        assert (await pool.send(POST, TIMEOUT_S)).connect_ms == 12.5


@in_virtual_time
async def test_where_races_are_lost_a_warm_connection_is_there_though_the_next_call_follows_at_once() -> None:
    dialling = Dialling(takes_s=0.1)
    async with pooling(dialling) as pool:
        (await pool.send(POST, TIMEOUT_S)).abort()
        await asyncio.sleep(1)
        for _ in range(10):
            response = await pool.send(POST, TIMEOUT_S)
            assert response.connect_ms is None
            await asyncio.sleep(0.2)  # the race, which is longer than a connection takes to be made
            response.abort()
    assert dialling.begun <= 13


@in_virtual_time
async def test_a_crowd_of_lost_races_makes_no_more_spares_than_are_kept() -> None:
    dialling = Dialling(takes_s=0.1)
    async with pooling(dialling) as pool:
        crowd = await asyncio.gather(*(asking(pool) for _ in range(2 * MAX_IDLE)))
        begun = dialling.begun
        for response in crowd:
            response.abort()
        await asyncio.sleep(1)
        assert dialling.begun - begun == len(pool._free) == MAX_IDLE


@in_virtual_time
async def test_a_crowd_at_the_start_waits_to_see_whether_connections_can_be_shared() -> None:
    dialling = Dialling(takes_s=0.1)
    pool = Pool(dialling.dial, asyncio.get_running_loop(), may_share=True)
    began = asyncio.get_running_loop().time()
    crowd = [asking(pool) for _ in range(20)]
    await asyncio.sleep(0.05)
    assert dialling.begun == UNKNOWN_DIALS
    await asyncio.gather(*crowd)
    assert dialling.begun == 20  # they cannot: HTTP/1.1
    assert asyncio.get_running_loop().time() - began == pytest.approx(0.2, abs=0.01)
    await pool.aclose()


@in_virtual_time
async def test_where_no_race_is_lost_no_spare_is_made() -> None:
    dialling = Dialling()
    async with pooling(dialling) as pool:
        for _ in range(10):
            await exchanged(pool, dialling)
    assert dialling.begun == 1


@in_virtual_time
async def test_a_request_waits_as_long_as_it_wants_to_and_no_longer() -> None:
    dialling = Dialling(takes_s=60)
    async with pooling(dialling) as pool:
        hasty, patient = asking(pool, 1), asking(pool, 100)
        began = asyncio.get_running_loop().time()
        with pytest.raises(UpstreamError) as caught:
            await hasty
        assert caught.value.kind is ErrorKind.CONNECT_TIMEOUT
        assert asyncio.get_running_loop().time() - began == pytest.approx(1)
        assert (await patient).connect_ms == 12.5
    assert dialling.timeouts_s == [1, 100]


@in_virtual_time
async def test_anothers_time_out_is_not_ones_own() -> None:
    dialling = Dialling(takes_s=1)
    async with pooling(dialling) as pool:
        patient = asking(pool, 100)
        await asyncio.sleep(0.5)
        dialling.errors = [UpstreamError(ErrorKind.CONNECT_TIMEOUT, "no connection within connect_timeout_s")]
        assert (await patient).connect_ms == 12.5


@in_virtual_time
async def test_a_connection_that_is_gone_when_it_is_there_is_an_error_not_a_loop() -> None:
    dialling = Dialling()
    dialling.stillborn = True
    async with pooling(dialling) as pool:
        with pytest.raises(UpstreamError, match="as soon as it was made") as caught:
            await pool.send(POST, TIMEOUT_S)
        assert caught.value.kind is ErrorKind.CONNECT_ERROR
        await asyncio.sleep(100)
    assert dialling.begun == 1


@in_virtual_time
async def test_what_is_cancelled_while_it_waits_leaves_its_connection_to_the_next() -> None:
    dialling = Dialling(takes_s=1)
    async with pooling(dialling) as pool:
        waiting = asking(pool)
        await asyncio.sleep(0.5)
        waiting.cancel()
        await asyncio.wait([waiting])
        await asyncio.sleep(1)
        assert not dialling.lines[0].heard()
        assert (await pool.send(POST, TIMEOUT_S)).connect_ms is None
    assert dialling.begun == 1


@in_virtual_time
async def test_what_is_cancelled_as_it_is_sent_is_aborted() -> None:
    dialling = Dialling()
    async with pooling(dialling) as pool:
        first = await pool.send(POST, TIMEOUT_S)
        waiting = asking(pool)
        dialling.takes_s = 60
        await asyncio.sleep(0)
        dialling.lines[0].heard()
        dialling.lines[0].say(OK)  # frees the connection for who waits
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert dialling.lines[0].wire.aborted
        assert await first.read() == b"ok"


@in_virtual_time
async def test_one_that_is_retired_keeps_what_runs_only_as_long_as_it_runs() -> None:
    dialling = Dialling()
    async with pooling(dialling) as pool:
        await used_at_a_time(pool, dialling, 3)
        running = await pool.send(POST, TIMEOUT_S)
        pool.retire()
        [busy] = [line for line in dialling.lines if line.heard()]
        assert [line for line in dialling.lines if not line.wire.aborted] == [busy]
        await asyncio.sleep(IDLE_S * 2)
        await finished(busy, running)
        await asyncio.sleep(0)
        assert busy.wire.aborted
        assert not pool._all
        assert pool._sweeping is None


@in_virtual_time
async def test_one_that_is_retired_opens_what_is_asked_of_it_and_no_spare() -> None:
    dialling = Dialling(takes_s=0.1)
    async with pooling(dialling) as pool:
        (await pool.send(POST, TIMEOUT_S)).abort()  # a spare is under way
        pool.retire()
        await asyncio.sleep(1)
        assert not pool._all
        response, next_one = await asyncio.gather(asking(pool), asking(pool))
        next_one.abort()  # a lost race
        await finished(dialling.lines[2], response)
        await asyncio.sleep(1)
        assert not pool._all
    assert dialling.begun == 4


@in_virtual_time
async def test_closing_ends_all_that_waits_and_runs() -> None:
    dialling = Dialling()
    async with pooling(dialling) as pool:
        running = await pool.send(POST, TIMEOUT_S)
        dialling.takes_s = 1
        waiting = asking(pool)
        await asyncio.sleep(0.5)
        await pool.aclose()
        with pytest.raises(UpstreamError, match="closed"):
            await waiting
        with pytest.raises(UpstreamError, match="closed by the gateway"):
            await running.begun()
        with pytest.raises(UpstreamError, match="closed"):
            await pool.send(POST, TIMEOUT_S)
    assert len(dialling.lines) == 1
