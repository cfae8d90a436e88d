"""HTTP/1.1 as servers really write it, and as they should not: what we take and refuse, and what aiohttp does."""

import asyncio

import pytest

from providers.refusals import ErrorKind, UpstreamError
from tests.app.http.callers import Caller, read_whole
from tests.app.http.conftest import Way
from tests.app.http.http1_answers import BROKEN_OFF, CHUNKED, REFUSED, TAKEN, TWO, Case
from tests.app.http.lines import Exchange, Server
from tests.app.providers.origin import soon

OURS, AIOHTTP = Way("1.1"), Way("1.1", reference=True)

splits = pytest.mark.parametrize("split", [False, True], ids=["at-once", "byte-by-byte"])


def both(cases: list[Case]) -> list[tuple[Way, Case]]:
    """Return each case for ours, and for aiohttp where it agrees."""
    return [(OURS, case) for case in cases] + [(AIOHTTP, case) for case in cases if not case.aiohttp_differs]


async def asked(server: Server, caller: Caller) -> tuple[asyncio.Task[bytes], Exchange]:
    async def call() -> bytes:
        return await read_whole(await caller.send("POST", "/", b"{}"))

    task = asyncio.create_task(call())
    exchange = await server.exchange()
    await exchange.received()
    return task, exchange


async def say(exchange: Exchange, case: Case, *, split: bool) -> None:
    """Answer as ``case`` does, until the client has had enough. Of a long answer a thousand bytes pass for one."""
    piece = len(case.answer) if not split else 1 if len(case.answer) < 1000 else 1000
    for at in range(0, len(case.answer), piece):
        if exchange.line.lost.is_set():
            break
        exchange.line.send(case.answer[at : at + piece])
        await asyncio.sleep(0)
    exchange.over = True
    if case.closed:
        exchange.line.close()


@splits
@pytest.mark.parametrize(("way", "case"), both(TAKEN), ids=str, indirect=["way"])
async def test_we_take(server: Server, caller: Caller, case: Case, split: bool) -> None:
    call, exchange = await asked(server, caller)
    await say(exchange, case, split=split)
    assert await soon(call) == case.body
    call, exchange = await asked(server, caller)
    await exchange.answer(b"next")
    assert await soon(call) == b"next"
    assert len(server.lines) == (1 if case.reused else 2)


@splits
@pytest.mark.parametrize("case", REFUSED, ids=str)
@pytest.mark.parametrize("way", [OURS], ids=str, indirect=True)
async def test_we_refuse(server: Server, caller: Caller, case: Case, split: bool) -> None:
    call, exchange = await asked(server, caller)
    await say(exchange, case, split=split)
    with pytest.raises(UpstreamError) as caught:
        await soon(call)
    assert caught.value.kind is ErrorKind.INVALID_RESPONSE
    await soon(exchange.line.lost.wait())
    call, exchange = await asked(server, caller)
    await exchange.answer(b"next")
    assert await soon(call) == b"next"


@pytest.mark.parametrize("case", [each for each in REFUSED if not each.aiohttp_differs], ids=str)
@pytest.mark.parametrize("way", [AIOHTTP], ids=str, indirect=True)
async def test_so_does_aiohttp(server: Server, caller: Caller, case: Case) -> None:
    call, exchange = await asked(server, caller)
    await say(exchange, case, split=False)
    with pytest.raises(UpstreamError):
        await soon(call)


@pytest.mark.parametrize(("way", "case"), both(BROKEN_OFF), ids=str, indirect=["way"])
async def test_an_answer_that_breaks_off_is_an_error(server: Server, caller: Caller, case: Case, way: Way) -> None:
    call, exchange = await asked(server, caller)
    exchange.line.send(case.answer)
    exchange.line.close()
    with pytest.raises(UpstreamError) as caught:
        await soon(call)
    if not way.reference:
        assert caught.value.kind is ErrorKind.DISCONNECTED


@splits
@pytest.mark.parametrize(
    "more",
    [TWO + b"\r\nno", b"HTTP/1.1 100 Continue\r\n\r\n", b"junk", b"0\r\n\r\n", CHUNKED + b"4\r\nevil\r\n0\r\n\r\n"],
)
@pytest.mark.parametrize("way", [OURS], ids=str, indirect=True)
async def test_what_follows_an_answer_is_no_part_of_it_nor_of_the_next(
    server: Server, caller: Caller, more: bytes, split: bool
) -> None:
    call, exchange = await asked(server, caller)
    await say(exchange, Case("", TWO + b"\r\nok" + more, None), split=split)
    assert await soon(call) == b"ok"
    await soon(exchange.line.lost.wait())
    call, exchange = await asked(server, caller)
    await exchange.answer(b"next")
    assert await soon(call) == b"next"
