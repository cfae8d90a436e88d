"""Connections that were kept and turn out to be gone: the request is sent once more, exactly once, on a fresh one."""

import asyncio

import pytest
from h2.settings import SettingCodes

from providers.http import Response, http2
from providers.refusals import ErrorKind, UpstreamError
from tests.app.http.callers import Caller, Own, read_whole
from tests.app.http.conftest import OWN_WAYS, Way
from tests.app.http.http2_line import Http2Line
from tests.app.http.lines import Exchange, Server
from tests.app.providers.origin import soon
from tests.patience import until

own_ways = pytest.mark.parametrize("way", OWN_WAYS, ids=str, indirect=True)
over_http1 = pytest.mark.parametrize(
    "way", [each for each in OWN_WAYS if each.version == "1.1"], ids=str, indirect=True
)
over_http2 = pytest.mark.parametrize("way", [each for each in OWN_WAYS if each.version == "2"], ids=str, indirect=True)


async def carried(server: Server, caller: Caller) -> Exchange:
    """Carry an exchange from beginning to end, and leave its connection idle."""
    call = asyncio.create_task(caller.send("POST", "/", b"first"))
    exchange = await server.exchange()
    await exchange.answer(b"first")
    assert await soon(read_whole(await soon(call))) == b"first"
    return exchange


async def answered(server: Server, call: asyncio.Task[Response]) -> Response:
    exchange = await server.exchange()
    await exchange.answer(b"again")
    answer = await soon(call)
    assert await soon(read_whole(answer)) == b"again"
    assert server.arrivals.empty()
    return answer


@own_ways
@pytest.mark.parametrize("abruptly", [True, False], ids=["reset", "closed"])
async def test_a_connection_closed_while_idle_is_not_used(server: Server, caller: Caller, abruptly: bool) -> None:
    first = await carried(server, caller)
    if abruptly:
        first.line.drop()
    else:
        first.line.close()
    await soon(first.line.lost.wait())
    call = asyncio.create_task(caller.send("POST", "/", b"second"))
    assert (await answered(server, call)).connect_ms is not None  # type: ignore[arg-type]  # ours, whose answers are Responses
    assert len(server.lines) == 2


@own_ways
@pytest.mark.parametrize("abruptly", [True, False], ids=["reset", "closed"])
async def test_a_connection_closed_as_the_request_arrives_costs_one_more_try(
    server: Server, caller: Caller, abruptly: bool
) -> None:
    first = await carried(server, caller)
    call = asyncio.create_task(caller.send("POST", "/", b"second"))
    stale = await server.exchange()
    assert stale.line is first.line
    if abruptly:
        stale.line.drop()
    else:
        stale.line.close()
    answer = await answered(server, call)  # type: ignore[arg-type]  # as above
    assert answer.connect_ms is not None
    assert len(server.lines) == 2
    assert isinstance(caller, Own)
    assert caller.sendings.times == 2


@own_ways
async def test_what_is_to_be_sent_once_gets_a_connection_of_its_own(server: Server, caller: Caller) -> None:
    assert isinstance(caller, Own)
    first = await carried(server, caller)
    call = asyncio.create_task(caller.send("POST", "/", b"second", once=True))
    exchange = await server.exchange()
    assert exchange.line is not first.line
    exchange.line.drop()
    with pytest.raises(UpstreamError):
        await soon(call)
    assert server.arrivals.empty()


@own_ways
async def test_a_fresh_connection_that_is_closed_too_is_an_error(server: Server, caller: Caller) -> None:
    await carried(server, caller)
    call = asyncio.create_task(caller.send("POST", "/", b"second"))
    for _ in range(2):
        (await server.exchange()).line.close()
    with pytest.raises(UpstreamError) as caught:
        await soon(call)
    assert caught.value.kind is ErrorKind.DISCONNECTED
    assert server.arrivals.empty()


@own_ways
async def test_a_kept_connection_that_has_begun_to_answer_is_not_tried_again(server: Server, caller: Caller) -> None:
    await carried(server, caller)
    call = asyncio.create_task(caller.send("POST", "/", b"second"))
    exchange = await server.exchange()
    exchange.begin(103)
    exchange.line.close()
    with pytest.raises(UpstreamError) as caught:
        await soon(call)
    assert caught.value.kind is ErrorKind.DISCONNECTED
    assert server.arrivals.empty()


@own_ways
async def test_a_spare_closed_as_the_request_arrives_costs_one_more_try(server: Server, caller: Caller) -> None:
    cancelled = asyncio.create_task(caller.send("POST", "/", b"{}"))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    assert isinstance(caller, Own)
    await caller.ready()
    call = asyncio.create_task(caller.send("POST", "/", b"second"))
    (await server.exchange()).line.close()
    assert (await answered(server, call)).connect_ms is not None  # type: ignore[arg-type]  # as above
    assert len(server.lines) == 2


@over_http1
async def test_all_idle_connections_are_dropped_when_one_was_stale(server: Server, caller: Caller) -> None:
    calls = [asyncio.create_task(caller.send("POST", "/", b"{}")) for _ in range(4)]
    exchanges = [await server.exchange() for _ in calls]
    for exchange in exchanges:
        await exchange.answer()
    for each in calls:
        assert await soon(read_whole(await soon(each))) == b""
    call = asyncio.create_task(caller.send("POST", "/", b"second"))
    (await server.exchange()).line.close()
    await answered(server, call)  # type: ignore[arg-type]  # as above
    for exchange in exchanges:
        await soon(exchange.line.lost.wait())
    assert len(server.lines) == 5


@over_http1
async def test_what_an_idle_connection_says_is_nobodys_answer(server: Server, caller: Caller) -> None:
    first = await carried(server, caller)
    first.line.send(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 4\r\n\r\nevil")
    await soon(first.line.lost.wait())
    call = asyncio.create_task(caller.send("POST", "/", b"second"))
    assert (await answered(server, call)).status == 200  # type: ignore[arg-type]  # as above


@over_http2
@pytest.mark.parametrize("code", [0, 2])
async def test_goaway_moves_what_was_not_begun_and_leaves_what_was(
    server: Server, caller: Caller, way: Way, code: int
) -> None:
    begun = asyncio.create_task(caller.send("POST", "/begun", b"{}"))
    first = await server.exchange()
    first.begin()
    await first.say(b"one")
    answer = await soon(begun)
    moved = asyncio.create_task(caller.send("POST", "/moved", b"{}"))
    second = await server.exchange()
    line = first.line
    assert second.line is line
    assert isinstance(line, Http2Line)
    line.h2.close_connection(code, last_stream_id=first.stream_id)
    line.flush()
    third = await server.exchange()
    assert third.target == "/moved"
    assert third.line is not line
    await third.answer(b"moved")
    assert await soon(read_whole(await soon(moved))) == b"moved"
    assert await soon(answer.read()) == b"one"
    line.send(b"\x00\x00\x03\x00\x01" + first.stream_id.to_bytes(4, "big") + b"two")  # h2 says no more after GOAWAY
    assert await soon(read_whole(answer)) == b"two"
    await soon(line.lost.wait())


@over_http2
async def test_a_refused_stream_is_sent_again(server: Server, caller: Caller) -> None:
    call = asyncio.create_task(caller.send("POST", "/", b"{}"))
    exchange = await server.exchange()
    line = exchange.line
    assert isinstance(line, Http2Line)
    line.h2.reset_stream(exchange.stream_id, 7)
    line.flush()
    await answered(server, call)  # type: ignore[arg-type]  # as above


@over_http2
async def test_a_stream_refused_again_and_again_is_an_error(server: Server, caller: Caller) -> None:
    call = asyncio.create_task(caller.send("POST", "/", b"{}"))
    for _ in range(3):
        exchange = await server.exchange()
        line = exchange.line
        assert isinstance(line, Http2Line)
        line.h2.reset_stream(exchange.stream_id, 7)
        line.flush()
    with pytest.raises(UpstreamError) as caught:
        await soon(call)
    assert caught.value.kind is ErrorKind.DISCONNECTED
    assert server.arrivals.empty()
    assert isinstance(caller, Own)
    assert caller.sendings.times == 3


@over_http2
@pytest.mark.parametrize("code", [0, 1, 2, 8, 11])
async def test_a_stream_reset_for_another_reason_is_an_error(server: Server, caller: Caller, code: int) -> None:
    call = asyncio.create_task(caller.send("POST", "/", b"{}"))
    exchange = await server.exchange()
    line = exchange.line
    assert isinstance(line, Http2Line)
    line.h2.reset_stream(exchange.stream_id, code)
    line.flush()
    with pytest.raises(UpstreamError) as caught:
        await soon(call)
    assert caught.value.kind is ErrorKind.DISCONNECTED
    assert server.arrivals.empty()


@over_http2
async def test_a_call_whose_window_does_not_open_goes_on_another_connection(
    server: Server, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http2, "HTTP2_WINDOW_S", 0.05)
    first = await carried(server, caller)
    line = first.line
    assert isinstance(line, Http2Line)
    line.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    line.flush()
    await until(lambda: not line.h2.local_settings.initial_window_size)
    call = asyncio.create_task(caller.send("POST", "/", b"second"))
    shut = await server.exchange()
    assert shut.line is line
    await soon(shut.cut.wait())
    answer = await answered(server, call)  # type: ignore[arg-type]  # as above
    assert answer.connect_ms is not None
    assert len(server.lines) == 2


@own_ways
async def test_a_connection_is_opened_in_advance_once_and_the_first_request_does_not_wait_for_one(
    server: Server, caller: Caller
) -> None:
    assert isinstance(caller, Own)
    for _ in range(3):
        caller.client.connect(5.0)
    await caller.ready()
    caller.client.connect(5.0)  # that one is young
    call = asyncio.create_task(caller.send("POST", "/", b"first"))
    assert (await answered(server, call)).connect_ms is None  # type: ignore[arg-type]  # ours, whose answers are Responses
    assert len(server.lines) == 1
