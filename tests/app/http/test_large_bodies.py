"""Bodies of megabytes, both ways: whole, bounded in memory, and held back when the other side is slow."""

import asyncio
import random

import pytest

from providers.http import READ_BYTES, Response
from providers.http.message import BUFFERED_BYTES, HTTP2_STREAM_BYTES
from tests.app.http.callers import Caller, read_whole
from tests.app.http.conftest import OWN_WAYS, Trust, Way, meeting
from tests.app.http.http2_line import Http2Line
from tests.app.http.lines import Server
from tests.app.providers.origin import soon
from tests.patience import PATIENCE_S, until

MIB = 1024 * 1024
LARGE = random.Random(1).randbytes(5 * MIB)
HANDED_OVER_BYTES = 256 * 1024  # as much as a loop hands over at once

own_ways = pytest.mark.parametrize("way", OWN_WAYS, ids=str, indirect=True)


@pytest.mark.parametrize("length_told", [True, False], ids=["length", "no-length"])
async def test_megabytes_come_down_whole(server: Server, caller: Caller, length_told: bool) -> None:
    call = asyncio.create_task(caller.send("GET", "/"))
    exchange = await server.exchange()
    exchange.begin(length=len(LARGE) if length_told else None)
    saying = asyncio.create_task(exchange.say(LARGE))
    answer = await soon(call)
    reading = asyncio.create_task(read_whole(answer))
    await soon(saying)
    exchange.end()
    assert await soon(reading) == LARGE


async def test_megabytes_go_up_whole(server: Server, caller: Caller) -> None:
    call = asyncio.create_task(caller.send("POST", "/", LARGE))
    exchange = await server.exchange()
    assert await exchange.received() == LARGE
    await exchange.answer(b"ok")
    assert await soon(read_whole(await soon(call))) == b"ok"


async def test_several_go_up_and_down_at_a_time(server: Server, caller: Caller) -> None:
    async def echo() -> None:
        exchange = await server.exchange()
        await exchange.answer(await exchange.received())

    async def call(body: bytes) -> bytes:
        return await read_whole(await caller.send("POST", "/", body))

    bodies = [LARGE[at : at + MIB] for at in range(0, 4 * MIB, MIB)]
    answered = asyncio.gather(*(echo() for _ in bodies))
    assert await soon(asyncio.gather(*(call(body) for body in bodies))) == bodies
    await soon(answered)


@own_ways
async def test_a_slow_reader_holds_its_sender_back(server: Server, caller: Caller, way: Way) -> None:
    call = asyncio.create_task(caller.send("GET", "/"))
    exchange = await server.exchange()
    exchange.begin()
    saying = asyncio.create_task(exchange.say(LARGE))
    answer = await soon(call)
    assert isinstance(answer, Response)
    kept_bytes = HTTP2_STREAM_BYTES if way.version == "2" else BUFFERED_BYTES + HANDED_OVER_BYTES
    read = bytearray()
    for number in range(20):
        await until(lambda: answer.buffered >= BUFFERED_BYTES // 2)
        for _ in range(1000):  # turns in which the sender could send all of it
            await asyncio.sleep(0)
        assert answer.buffered <= kept_bytes
        if way.version == "2":
            assert exchange.sent_bytes - len(read) <= HTTP2_STREAM_BYTES
        if way.version != "2" and number == 10:  # what was handed over before it fell behind is read by now
            kept_bytes = BUFFERED_BYTES + READ_BYTES
        data = await soon(answer.read())
        assert len(data) <= READ_BYTES
        read += data
    while len(read) < len(LARGE):
        read += await soon(answer.read())
    assert bytes(read) == LARGE
    await soon(saying)
    exchange.end()
    assert await soon(answer.read()) == b""


@own_ways
async def test_a_reader_that_has_stopped_does_not_hold_up_the_next_exchange(
    server: Server, caller: Caller, way: Way
) -> None:
    slow = asyncio.create_task(caller.send("GET", "/slow"))
    exchange = await server.exchange()
    exchange.begin()
    saying = asyncio.create_task(exchange.say(LARGE))
    answer = await soon(slow)
    call = asyncio.create_task(caller.send("GET", "/quick"))
    answering = asyncio.create_task((await server.exchange()).answer(LARGE[:MIB]))
    assert await soon(read_whole(await soon(call))) == LARGE[:MIB]
    await soon(answering)
    reading = asyncio.create_task(read_whole(answer))
    await soon(saying)
    exchange.end()
    assert await soon(reading) == LARGE


@own_ways
async def test_a_connection_is_good_after_a_body_that_was_held_back(server: Server, caller: Caller) -> None:
    for _ in range(2):
        call = asyncio.create_task(caller.send("GET", "/"))
        exchange = await server.exchange()
        exchange.begin(length=len(LARGE))
        saying = asyncio.create_task(exchange.say(LARGE))
        answer = await soon(call)
        for _ in range(200):
            await asyncio.sleep(0)
        reading = asyncio.create_task(read_whole(answer))
        await soon(saying)
        exchange.end()
        assert await soon(reading) == LARGE
    assert len(server.lines) == 1


async def test_a_server_that_reads_late_still_gets_all(server: Server, caller: Caller) -> None:
    call = asyncio.create_task(caller.send("POST", "/", LARGE))
    exchange = await server.exchange()
    exchange.line.stop_reading()
    for _ in range(50):
        await asyncio.sleep(0)
    exchange.line.read_on()
    assert await exchange.received() == LARGE
    await exchange.answer(b"ok")
    assert await soon(read_whole(await soon(call))) == b"ok"


class Miser(Http2Line):
    miserly = True


@pytest.mark.parametrize("way", [each for each in OWN_WAYS if each.version == "2"], ids=str)
async def test_a_body_waits_for_the_servers_windows(way: Way, trust: Trust) -> None:
    body = LARGE[:MIB]
    async with meeting(way, trust, Miser) as (server, caller):
        call = asyncio.create_task(caller.send("POST", "/", body))
        exchange = await server.exchange()
        line = exchange.line
        assert isinstance(line, Miser)
        room = 65_535
        while not exchange.whole.is_set():
            async with asyncio.timeout(PATIENCE_S):
                while len(exchange.body) < min(room, len(body)):  # noqa: ASYNC110 - bytes have no event
                    await asyncio.sleep(0)
            for _ in range(10):  # turns in which more could come
                await asyncio.sleep(0)
            assert len(exchange.body) <= room
            line.h2.increment_flow_control_window(50_000)
            line.h2.increment_flow_control_window(60_000, exchange.stream_id)
            line.flush()
            room += 50_000
        await exchange.answer(b"ok")
        assert bytes(exchange.body) == body
        assert await soon(read_whole(await soon(call))) == b"ok"


@pytest.mark.parametrize("status", [200, 413])
async def test_an_answer_may_come_before_the_body_is_sent(server: Server, caller: Caller, status: int) -> None:
    call = asyncio.create_task(caller.send("POST", "/", LARGE))
    exchange = await server.exchange()
    exchange.line.stop_reading()
    exchange.begin(status, length=5)
    await exchange.say(b"early")
    answer = await soon(call)
    assert answer.status == status
    assert await soon(answer.read()) == b"early"
    exchange.end()
    assert await soon(answer.read()) == b""
    answer.abort()
    exchange.line.read_on()
    call = asyncio.create_task(caller.send("POST", "/", b"small"))
    following = await server.exchange()
    assert await following.received() == b"small"
    await following.answer(b"ok")
    assert await soon(read_whole(await soon(call))) == b"ok"
