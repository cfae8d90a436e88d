"""One HTTP/1.1 connection: what leaves for a request, and what becomes of the connection after each kind of end."""

import asyncio

import pytest

from providers.http import READ_BYTES, HttpRequest
from providers.http.message import BUFFERED_BYTES, FRAMING_BYTES, HEAD_BYTES, HEAD_FIELDS, Unsent, UpstreamConnection
from providers.refusals import ErrorKind, UpstreamError
from tests.unit.providers.http.inside.h1_server import HEAD, OK, POST, Line

START = b"POST /v1/chat HTTP/1.1\r\nhost: api.example\r\nauthorization: Bearer k\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


class Garage:
    """An owner that writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def freed(self, connection: UpstreamConnection) -> None:
        assert connection.room, "freed without room"
        self.heard.append("freed")

    def wearing(self, connection: UpstreamConnection) -> None:
        raise AssertionError("HTTP/1.1 does not wear")

    def gone(self, connection: UpstreamConnection, *, dropped: bool) -> None:
        assert not connection.room
        self.heard.append("dropped" if dropped else "gone")


@pytest.fixture
async def garage() -> Garage:
    return Garage()


@pytest.fixture
async def line(garage: Garage) -> Line:
    return Line(garage)


async def test_a_request_leaves_in_one_write(line: Line) -> None:
    line.client.send(HttpRequest(HEAD, [(b"traceparent", b"00-1")], b'{"a":1}'))
    assert line.wire.writes == [START + b'traceparent: 00-1\r\ncontent-length: 7\r\n\r\n{"a":1}']
    assert (line.client.room, line.client.streams) == (0, 1)


async def test_a_request_without_a_body_promises_none(line: Line) -> None:
    request = HttpRequest(HEAD, (), None)
    line.client.send(request)
    assert line.heard() == START + b"\r\n"
    assert request.sendings.number == 1


async def test_a_request_with_an_empty_body_says_so(line: Line) -> None:
    line.client.send(HttpRequest(HEAD, (), b""))
    assert line.heard() == START + b"content-length: 0\r\n\r\n"


async def test_a_large_body_is_not_copied(line: Line) -> None:
    body = bytes(100_000)
    line.client.send(HttpRequest(HEAD, (), body))
    assert line.wire.writes == [START + b"content-length: 100000\r\n\r\n", body]


async def test_an_exchange_over_leaves_room_for_the_next(line: Line, garage: Garage) -> None:
    for connect_ms in (12.5, None):
        response = line.client.send(POST)
        line.say(OK)
        assert response.connect_ms == connect_ms
        assert await response.read() == b"ok"
        assert await response.read() == b""
        assert (line.client.room, line.client.streams) == (1, 0)
    assert garage.heard == ["freed", "freed"]
    assert line.client.alive()


async def test_chunks_of_one_read_are_one_piece(line: Line) -> None:
    response = line.client.send(POST)
    line.say(CHUNKED + b"1\r\na\r\n1\r\nb\r\n")
    line.say(b"1\r\nc\r\n")
    await response.begun()
    assert response._pieces == [b"ab", b"c"]
    assert await response.read() == b"abc"


async def test_a_dropped_exchange_costs_the_connection_once(line: Line, garage: Garage) -> None:
    response = line.client.send(POST)
    response.abort()
    response.abort()
    assert line.wire.aborted
    await asyncio.sleep(0)  # the transport says that it is closed
    assert garage.heard == ["dropped"]
    assert not line.client.alive()


async def test_what_arrives_after_a_drop_changes_nothing(line: Line, garage: Garage) -> None:
    response = line.client.send(POST)
    response.abort()
    line.say(OK)
    assert response.status == 0
    assert garage.heard == ["dropped"]


@pytest.mark.parametrize("error", [None, ConnectionResetError(104, "reset")])
async def test_the_end_of_a_connection_somebody_waited_for_is_an_error(line: Line, error: Exception | None) -> None:
    response = line.client.send(POST)
    line.hang_up(error)
    with pytest.raises(UpstreamError) as caught:
        await response.begun()
    assert caught.value.kind is ErrorKind.DISCONNECTED


@pytest.mark.parametrize("error", [None, ConnectionResetError(104, "reset")])
async def test_the_end_of_one_made_beforehand_leaves_the_request_unsent(
    garage: Garage, error: Exception | None
) -> None:
    line = Line(garage, connect_ms=None)
    response = line.client.send(POST)
    line.hang_up(error)
    with pytest.raises(Unsent):
        await response.begun()
    assert garage.heard == ["gone"]


@pytest.mark.parametrize("error", [None, ConnectionResetError(104, "reset")])
async def test_the_end_of_a_kept_one_leaves_the_request_unsent(line: Line, error: Exception | None) -> None:
    line.client.send(POST)
    line.say(OK)
    response = line.client.send(POST)
    line.hang_up(error)
    with pytest.raises(Unsent):
        await response.begun()


@pytest.mark.parametrize("begun", [b"H", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\n"])
async def test_a_server_that_has_begun_to_answer_has_begun_with_the_request(garage: Garage, begun: bytes) -> None:
    line = Line(garage, connect_ms=None)
    response = line.client.send(POST)
    line.say(begun)
    line.hang_up()
    with pytest.raises(UpstreamError):
        await response.begun()


async def test_a_body_without_a_length_ends_with_its_connection(line: Line) -> None:
    response = line.client.send(POST)
    line.say(b"HTTP/1.1 200 OK\r\n\r\nto the ")
    line.say(b"end")
    line.hang_up()
    assert await response.read() == b"to the end"
    assert await response.read() == b""


async def test_a_body_without_a_length_does_not_end_with_a_reset(line: Line) -> None:
    response = line.client.send(POST)
    line.say(b"HTTP/1.1 200 OK\r\n\r\nto the ")
    line.hang_up(ConnectionResetError(104, "reset"))
    assert await response.read() == b"to the "
    with pytest.raises(UpstreamError, match="in the middle"):
        await response.read()


async def test_reading_stops_while_too_much_is_unread_and_goes_on_when_it_is_read(line: Line) -> None:
    response = line.client.send(POST)
    line.say(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (3 * BUFFERED_BYTES))
    line.say(bytes(BUFFERED_BYTES))
    assert line.wire.is_reading()
    line.say(b"x")
    line.say(b"x")  # what the loop had read already
    assert not line.wire.is_reading()
    assert len(await response.read()) == READ_BYTES  # more than half of it is gone
    assert line.wire.is_reading()
    assert len(await response.read()) == BUFFERED_BYTES + 2 - READ_BYTES
    line.say(bytes(2 * BUFFERED_BYTES - 3))
    assert not line.wire.is_reading()
    line.say(b"x")
    assert line.wire.is_reading()  # for the next exchange
    assert line.client.room == 1


async def test_an_answer_before_all_of_the_request_has_left_costs_the_connection(line: Line, garage: Garage) -> None:
    line.wire.full_at = 1 << 30  # the transport counts what it holds
    line.wire.protocol = None
    response = line.client.send(HttpRequest(HEAD, (), bytes(100_000)))
    line.wire.protocol = line.client
    line.say(OK)
    assert await response.read() == b"ok"
    assert garage.heard == ["gone"]
    assert line.wire.aborted


@pytest.mark.parametrize("more", [OK, b"junk", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_what_follows_a_response_is_not_its_body_and_costs_the_connection(
    line: Line, garage: Garage, more: bytes
) -> None:
    response = line.client.send(POST)
    line.say(OK + more)
    assert await response.read() == b"ok"
    assert await response.read() == b""
    assert garage.heard == ["gone"]


async def test_what_comes_unasked_costs_the_connection(line: Line, garage: Garage) -> None:
    line.say(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    assert garage.heard == ["gone"]
    assert line.wire.aborted


@pytest.mark.parametrize(
    "flood",
    [
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * (HEAD_FIELDS + 1) + b"\r\n",
        b"HTTP/1.1 200 OK\r\na: " + b"b" * HEAD_BYTES + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: " + b"b" * HEAD_BYTES,
        b"HTTP/1.1 103 Hints\r\n" + b"a: b\r\n" * (HEAD_FIELDS + 1) + b"\r\n",
        b"HTTP/1.1 200 " + b"k" * HEAD_BYTES,
        b"\r\n" * HEAD_BYTES,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 17,
    ],
    ids=["fields", "large", "unfinished", "interim-fields", "reason", "empty-lines", "interims"],
)
async def test_a_head_without_measure_is_refused_before_it_is_begun(line: Line, garage: Garage, flood: bytes) -> None:
    response = line.client.send(POST)
    line.say(flood)
    with pytest.raises(UpstreamError) as caught:
        await response.begun()
    assert caught.value.kind is ErrorKind.INVALID_RESPONSE
    assert garage.heard == ["gone"]


async def test_an_answer_in_chunks_of_one_byte_ends_before_it_has_taken_much_time(line: Line, garage: Garage) -> None:
    response = line.client.send(POST)
    response.expect_all()
    line.say(CHUNKED)
    for _ in range(FRAMING_BYTES // 50_000 + 1):
        assert not garage.heard
        line.say(b"1\r\na\r\n" * 10_000)
        assert await response.read() == b"a" * 10_000
    assert garage.heard == ["gone"]
    with pytest.raises(UpstreamError, match="its chunks are too small") as caught:
        await response.read()
    assert caught.value.kind is ErrorKind.INVALID_RESPONSE


async def test_short_tokens_are_no_framing(line: Line) -> None:
    response = line.client.send(POST)
    response.expect_all()
    line.say(CHUNKED)
    token = b"8\r\ndata: a\n\r\n"
    for _ in range(1000):
        line.say(token * 1000)
        assert len(await response.read()) == 8000
    for _ in range(500_000):  # one by one
        line.say(b"1\r\na\r\n")
    assert len(await response.read()) == 500_000


async def test_closing_fails_what_runs(line: Line, garage: Garage) -> None:
    response = line.client.send(POST)
    line.client.close()
    line.client.close()
    with pytest.raises(UpstreamError, match="closed by the gateway"):
        await response.begun()
    await asyncio.sleep(0)
    assert garage.heard == ["gone"]
