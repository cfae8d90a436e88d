"""What every HTTP client must do, over either protocol: the same cases for ours and for aiohttp's."""

import asyncio
from collections.abc import Sequence

import pytest

from providers.http.message import Field
from providers.refusals import ErrorKind, UpstreamError
from tests.app.http.callers import Caller, read_whole
from tests.app.http.lines import Exchange, Server
from tests.app.providers.origin import soon

PROMPT = b'{"prompt": "caf\xc3\xa9"}'


async def asked(server: Server, caller: Caller, body: bytes | None = PROMPT) -> tuple[asyncio.Task[bytes], Exchange]:
    """Start a call that reads its whole answer; return it and its request at the server."""

    async def call() -> bytes:
        answer = await caller.send("POST", "/v1/chat?a=b", body)
        return await read_whole(answer)

    task = asyncio.create_task(call())
    return task, await server.exchange()


async def test_a_request_arrives_as_it_was_meant(server: Server, caller: Caller) -> None:
    call = asyncio.create_task(caller.send("POST", "/v1/chat?a=b%20c&d", PROMPT, {"Traceparent": "00-1"}))
    exchange = await server.exchange()
    assert await exchange.received() == PROMPT
    assert (exchange.method, exchange.target) == ("POST", "/v1/chat?a=b%20c&d")
    assert exchange.field(b"traceparent") == b"00-1"
    assert exchange.field(b"content-length") == b"%d" % len(PROMPT)
    await exchange.answer(b"ok", fields=[(b"content-type", b"text/plain")])
    answer = await soon(call)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/plain")
    assert await soon(read_whole(answer)) == b"ok"


async def test_a_request_without_a_body_promises_none(server: Server, caller: Caller) -> None:
    call = asyncio.create_task(caller.send("GET", "/v1/models"))
    exchange = await server.exchange()
    assert await exchange.received() == b""
    assert (exchange.method, exchange.field(b"content-length")) == ("GET", None)
    await exchange.answer(b"[]")
    assert await soon(read_whole(await soon(call))) == b"[]"


@pytest.mark.parametrize("piece", [1, 7, 10_000])
@pytest.mark.parametrize("length_told", [True, False], ids=["length", "no-length"])
async def test_a_body_arrives_whole_however_it_is_cut(
    server: Server, caller: Caller, piece: int, length_told: bool
) -> None:
    body = bytes(range(256)) * 2
    call, exchange = await asked(server, caller)
    exchange.begin(length=len(body) if length_told else None)
    await exchange.say(body, piece=piece)
    exchange.end()
    assert await soon(call) == body


async def test_what_has_arrived_is_read_before_the_rest_comes(server: Server, caller: Caller) -> None:
    call = asyncio.create_task(caller.send("POST", "/", PROMPT))
    exchange = await server.exchange()
    exchange.begin()
    answer = await soon(call)
    for token in (b"one", b"two", b"three"):
        await exchange.say(token)
        assert await soon(answer.read()) == token
    exchange.end()
    assert await soon(answer.read()) == b""
    assert await soon(answer.read()) == b""


@pytest.mark.parametrize("status", [200, 404, 429, 500, 302])
async def test_whatever_its_status_a_response_is_returned(server: Server, caller: Caller, status: int) -> None:
    call = asyncio.create_task(caller.send("POST", "/", PROMPT))
    exchange = await server.exchange()
    await exchange.answer(b"words", status, [(b"location", b"/elsewhere"), (b"retry-after", b"1")])
    answer = await soon(call)
    assert answer.status == status
    assert await soon(read_whole(answer)) == b"words"
    assert server.arrivals.empty()


@pytest.mark.parametrize("status", [204, 304])
async def test_a_status_without_a_body_ends_with_its_head(server: Server, caller: Caller, status: int) -> None:
    call, exchange = await asked(server, caller)
    await exchange.answer(b"", status)
    assert await soon(call) == b""
    call, exchange = await asked(server, caller)  # and the next exchange is not confused by it
    await exchange.answer(b"next")
    assert await soon(call) == b"next"


@pytest.mark.parametrize("length_told", [True, False], ids=["length", "no-length"])
async def test_an_empty_body_is_one(server: Server, caller: Caller, length_told: bool) -> None:
    call, exchange = await asked(server, caller)
    exchange.begin(length=0 if length_told else None)
    exchange.end()
    assert await soon(call) == b""


async def test_interim_responses_are_passed_over(server: Server, caller: Caller) -> None:
    call, exchange = await asked(server, caller)
    exchange.begin(100)
    exchange.begin(103, [(b"link", b"</style.css>; rel=preload")])
    exchange.begin(200, [(b"x-own", b"1")], length=2)
    await exchange.say(b"ok")
    exchange.end()
    assert await soon(call) == b"ok"


@pytest.mark.parametrize("trailers", [[(b"x-checksum", b"1")], [(b"x-a", b"1"), (b"x-b", b"2")]])
async def test_trailers_end_a_body_and_are_nobodys(server: Server, caller: Caller, trailers: Sequence[Field]) -> None:
    call = asyncio.create_task(caller.send("POST", "/", PROMPT))
    exchange = await server.exchange()
    exchange.begin()
    await exchange.say(b"body")
    exchange.end(trailers)
    answer = await soon(call)
    assert await soon(read_whole(answer)) == b"body"
    assert "x-checksum" not in answer.headers
    call, exchange = await asked(server, caller)  # type: ignore[assignment]  # another kind of task
    await exchange.answer(b"next")
    assert await soon(call) == b"next"


async def test_repeated_fields_are_joined_and_bytes_are_latin_1(server: Server, caller: Caller) -> None:
    call = asyncio.create_task(caller.send("POST", "/", PROMPT))
    exchange = await server.exchange()
    fields = [(b"x-limit", b"1"), (b"x-limit", b"2"), (b"x-name", "café".encode("latin-1")), (b"x-empty", b"")]
    await exchange.answer(b"", fields=fields)
    answer = await soon(call)
    assert answer.headers["x-limit"] == "1, 2"
    assert answer.headers["x-name"].encode("latin-1", "surrogateescape")[:3] == b"caf"
    assert answer.headers["x-empty"] == ""
    assert await soon(answer.read()) == b""


async def test_field_values_go_out_as_utf_8(server: Server, caller: Caller) -> None:
    call = asyncio.create_task(caller.send("POST", "/", PROMPT, {"x-name": "café"}))
    exchange = await server.exchange()
    assert exchange.field(b"x-name") == "café".encode()
    await exchange.answer()
    assert await soon(read_whole(await soon(call))) == b""


@pytest.mark.parametrize("forged", [{"x-a": "1\r\nx-b: 2"}, {"x-a": "1\nx-b: 2"}, {"x-a\r\nx-b": "1"}, {"x-a": "1\0"}])
async def test_a_field_that_would_split_the_request_is_refused(
    server: Server, caller: Caller, forged: dict[str, str]
) -> None:
    with pytest.raises(ValueError, match=r".+"):
        await soon(caller.send("POST", "/", PROMPT, forged))
    assert server.arrivals.empty()


async def test_requests_one_after_the_other_share_a_connection(server: Server, caller: Caller) -> None:
    for number in range(5):
        call, exchange = await asked(server, caller)
        await exchange.answer(b"%d" % number)
        assert await soon(call) == b"%d" % number
    assert len(server.lines) == 1


async def test_requests_at_a_time_get_their_own_answers(server: Server, caller: Caller) -> None:
    numbers = [b"%d" % number for number in range(20)]

    async def call(number: bytes) -> bytes:
        return await read_whole(await caller.send("POST", "/", number))

    calls = [asyncio.create_task(call(number)) for number in numbers]
    exchanges = [await server.exchange() for _ in numbers]
    for exchange in reversed(exchanges):
        exchange.begin()
    for _ in range(3):
        for exchange in exchanges:
            await exchange.say(await exchange.received())
    for exchange in exchanges:
        exchange.end()
    assert await soon(asyncio.gather(*calls)) == [number * 3 for number in numbers]


async def test_an_answer_that_breaks_off_is_an_error_after_what_came(server: Server, caller: Caller) -> None:
    call = asyncio.create_task(caller.send("POST", "/", PROMPT))
    exchange = await server.exchange()
    exchange.begin()
    await exchange.say(b"half")
    answer = await soon(call)
    assert await soon(answer.read()) == b"half"
    exchange.line.close()
    with pytest.raises(UpstreamError) as caught:
        await soon(answer.read())
    assert caught.value.kind is ErrorKind.DISCONNECTED


async def test_an_answer_shorter_than_its_length_is_an_error(server: Server, caller: Caller) -> None:
    call = asyncio.create_task(caller.send("POST", "/", PROMPT))
    exchange = await server.exchange()
    exchange.begin(length=10)
    await exchange.say(b"half")
    answer = await soon(call)
    exchange.line.close()
    with pytest.raises(UpstreamError) as caught:
        await soon(read_whole(answer))
    assert caught.value.kind is ErrorKind.DISCONNECTED


@pytest.mark.parametrize("abruptly", [True, False], ids=["reset", "closed"])
async def test_a_new_connection_that_ends_without_an_answer_is_an_error_at_once(
    server: Server, caller: Caller, abruptly: bool
) -> None:
    call, exchange = await asked(server, caller)
    await exchange.received()
    if abruptly:
        exchange.line.drop()
    else:
        exchange.line.close()
    with pytest.raises(UpstreamError) as caught:
        await soon(call)
    assert caught.value.kind is ErrorKind.DISCONNECTED
    assert server.arrivals.empty()  # the server may have acted on it: it is not sent again
