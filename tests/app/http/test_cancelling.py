"""Cut means cut, by the server's own word: before the head, in the body, while connecting. Nothing is left of it."""

import asyncio
from contextlib import suppress

import pytest

from providers.http import Response
from tests.app.http.callers import Caller, Own, read_whole
from tests.app.http.conftest import OWN_WAYS, Trust, Way, called
from tests.app.http.lines import Exchange, Server
from tests.app.providers.origin import soon
from tests.patience import until

pytestmark = pytest.mark.parametrize("way", OWN_WAYS, ids=str, indirect=True)

LARGE = bytes(5 * 1024 * 1024)


async def cancelled(task: asyncio.Task[object]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await soon(task)


async def works(server: Server, caller: Caller) -> Response:
    """See that a call can still be made, and return its answer."""
    call = asyncio.create_task(caller.send("POST", "/next", b"next"))
    exchange = await server.exchange()
    assert exchange.target == "/next"
    await exchange.answer(b"next")
    answer = await soon(call)
    assert await soon(read_whole(answer)) == b"next"
    assert isinstance(answer, Response)
    return answer


async def begun(server: Server, caller: Caller) -> tuple[Exchange, Response]:
    call = asyncio.create_task(caller.send("POST", "/", b"{}"))
    exchange = await server.exchange()
    exchange.begin()
    await exchange.say(b"token")
    answer = await soon(call)
    assert isinstance(answer, Response)
    assert await soon(answer.read()) == b"token"
    return exchange, answer


async def test_the_server_sees_a_call_go_that_is_cancelled_before_its_head(server: Server, caller: Caller) -> None:
    call = asyncio.create_task(caller.send("POST", "/", b"{}"))
    exchange = await server.exchange()
    await cancelled(call)
    await soon(exchange.cut.wait())
    await works(server, caller)


async def test_the_server_sees_a_call_go_that_is_aborted_in_its_body(server: Server, caller: Caller) -> None:
    exchange, answer = await begun(server, caller)
    answer.abort()
    answer.abort()
    await soon(exchange.cut.wait())
    await works(server, caller)


async def test_the_server_sees_a_call_go_that_is_cancelled_while_it_reads(server: Server, caller: Caller) -> None:
    exchange, answer = await begun(server, caller)
    reading = asyncio.create_task(answer.read())
    await asyncio.sleep(0)
    await cancelled(reading)
    answer.abort()
    await soon(exchange.cut.wait())
    await works(server, caller)


async def test_an_abort_wakes_nobody_who_reads_so_who_aborts_cancels_the_reader(server: Server, caller: Caller) -> None:
    exchange, answer = await begun(server, caller)
    reading = asyncio.create_task(answer.read())
    await asyncio.sleep(0)
    answer.abort()
    await soon(exchange.cut.wait())
    await works(server, caller)  # whatever the abort could have caused has happened
    assert not reading.done()
    await cancelled(reading)


async def test_the_server_sees_a_call_go_that_is_still_sending(server: Server, caller: Caller) -> None:
    call = asyncio.create_task(caller.send("POST", "/", LARGE * 6))
    exchange = await server.exchange()
    exchange.line.stop_reading()
    await cancelled(call)
    exchange.line.read_on()
    await soon(exchange.cut.wait())
    assert len(exchange.body) < len(LARGE * 6)
    await works(server, caller)


async def test_the_server_sees_a_call_go_whose_answer_nobody_reads(server: Server, caller: Caller) -> None:
    exchange, answer = await begun(server, caller)
    saying = asyncio.create_task(exchange.say(LARGE * 4))
    for _ in range(100):
        await asyncio.sleep(0)
    answer.abort()
    await soon(exchange.cut.wait())
    with suppress(ConnectionResetError):
        await soon(saying)
    await works(server, caller)


async def test_the_call_after_a_loss_finds_a_warm_connection(server: Server, caller: Caller, way: Way) -> None:
    exchange, answer = await begun(server, caller)
    answer.abort()
    await soon(exchange.cut.wait())
    await soon(server.line())
    if way.version == "1.1":
        await soon(server.line())  # what replaced it, made without being asked for
        assert isinstance(caller, Own)
        await caller.ready()
    after = await works(server, caller)
    assert after.connect_ms is None
    expected = 1 if way.version == "2" else 3  # over HTTP/1.1 the lost one, what replaced it, and a spare
    await until(lambda: len(server.lines) >= expected)
    assert len(server.lines) == expected


async def test_a_race_of_losers_costs_each_its_exchange_and_no_more(server: Server, caller: Caller, way: Way) -> None:
    exchanges = []
    for _ in range(30):
        calls = [asyncio.create_task(caller.send("POST", "/", b"{}")) for _ in range(2)]
        pair = [await server.exchange() for _ in calls]
        await cancelled(calls[0])
        await cancelled(calls[1])
        exchanges += pair
    for exchange in exchanges:
        await soon(exchange.cut.wait())
    await works(server, caller)
    if way.version == "2":
        assert len(server.lines) == 2  # it was not known yet that one would do


async def test_a_call_may_be_cancelled_at_any_turn_of_the_loop(server: Server, way: Way, trust: Trust) -> None:
    for turns in range(30):  # from before it connects to after its request has arrived
        caller = called(server, way, trust)
        call = asyncio.create_task(caller.send("POST", "/cut", b"{}"))
        for _ in range(turns):
            await asyncio.sleep(0)
        await cancelled(call)
        following = asyncio.create_task(caller.send("POST", "/next", b"{}"))
        lost = []
        while (exchange := await server.exchange()).target == "/cut":
            lost.append(exchange)
        await exchange.answer(b"next")
        assert await soon(read_whole(await soon(following))) == b"next"
        for each in lost:
            await soon(each.cut.wait())
        await soon(caller.aclose())
        assert server.arrivals.empty()


async def test_what_is_cancelled_while_it_connects_leaves_a_usable_connection(server: Server, caller: Caller) -> None:
    call = asyncio.create_task(caller.send("POST", "/", b"{}"))
    await asyncio.sleep(0)
    await cancelled(call)
    assert isinstance(caller, Own)
    await caller.ready()
    assert (await works(server, caller)).connect_ms is None
    assert len(server.lines) == 1


async def test_what_is_cancelled_before_it_began_leaves_nothing(server: Server, caller: Caller) -> None:
    call = asyncio.create_task(caller.send("POST", "/", b"{}"))
    await cancelled(call)
    assert not server.lines


async def test_an_answer_that_is_complete_can_be_aborted_without_harm(server: Server, caller: Caller) -> None:
    exchange, answer = await begun(server, caller)
    exchange.end()
    assert await soon(answer.read()) == b""
    answer.abort()
    assert (await works(server, caller)).connect_ms is None
    assert len(server.lines) == 1


async def test_closing_the_client_ends_what_runs(server: Server, caller: Caller) -> None:
    waiting = asyncio.create_task(caller.send("POST", "/waiting", b"{}"))
    first = await server.exchange()
    second, answer = await begun(server, caller)
    reading = asyncio.create_task(answer.read())
    await asyncio.sleep(0)
    await soon(caller.aclose())
    for task in (waiting, reading):
        with pytest.raises(Exception, match="closed by the gateway"):
            await soon(task)
    await soon(first.cut.wait())
    await soon(second.cut.wait())
    with pytest.raises(Exception, match="closed"):
        await soon(caller.send("POST", "/", b"{}"))


async def test_closing_the_client_ends_what_still_connects(server: Server, caller: Caller) -> None:
    calls = [asyncio.create_task(caller.send("POST", "/", b"{}")) for _ in range(3)]
    await asyncio.sleep(0)
    await soon(caller.aclose())
    for call in calls:
        with pytest.raises(Exception, match="closed"):
            await soon(call)
    assert server.arrivals.empty()
