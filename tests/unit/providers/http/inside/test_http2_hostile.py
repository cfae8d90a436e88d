"""What a server must not do, rule by rule (RFC 9113), and what a hostile one cannot make us do."""

import pytest

from providers.http.message import FRAMING_BYTES, HTTP2_STREAM_BYTES, HTTP2_WINDOW_S, Unsent
from providers.refusals import ErrorKind, UpstreamError
from tests.unit.providers.http.inside.h2_server import (
    ACK,
    END_HEADERS,
    END_STREAM,
    OK,
    PADDED,
    PRIORITY,
    Server,
    block,
    data,
    frame,
    goaway,
    headers,
    post,
    reset,
    settings,
    window_update,
)

PROTOCOL_ERROR, FLOW_CONTROL_ERROR, STREAM_CLOSED, FRAME_SIZE_ERROR = 1, 3, 5, 6
COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 9, 11
FRAMES = HTTP2_STREAM_BYTES // 16_384  # of a stream's window
LARGEST = 2**31 - 1

ENDS_THE_CONNECTION = {
    # 4.1, 4.2: frames
    "a frame larger than we allow": (frame("DATA", 1, bytes(16_385)), FRAME_SIZE_ERROR),
    "the head of a frame larger than we allow": (frame(99, 0, bytes(16_385))[:9], FRAME_SIZE_ERROR),
    # 5.1, 5.1.1: streams
    "DATA of the connection": (data(0, b"x"), PROTOCOL_ERROR),
    "HEADERS of the connection": (headers(0), PROTOCOL_ERROR),
    "RST_STREAM of the connection": (reset(0, 8), PROTOCOL_ERROR),
    "CONTINUATION of the connection": (frame("CONTINUATION", 0, b""), PROTOCOL_ERROR),
    "DATA of a stream that was never opened": (data(3, b"x"), PROTOCOL_ERROR),
    "HEADERS of a stream that was never opened": (headers(3), PROTOCOL_ERROR),
    "RST_STREAM of a stream that was never opened": (reset(3, 8), PROTOCOL_ERROR),
    "WINDOW_UPDATE of a stream that was never opened": (window_update(3, 1), PROTOCOL_ERROR),
    "HEADERS of a stream of the server's": (headers(2), PROTOCOL_ERROR),
    "DATA of a stream of the server's": (data(2, b"x"), PROTOCOL_ERROR),
    "DATA after the end": (headers(1, end=True) + data(1, b"x"), STREAM_CLOSED),
    "DATA after a reset": (reset(1, 8) + data(1, b"x"), STREAM_CLOSED),
    # 6.1, 6.2: padding, priority
    "more padding than DATA": (headers(1) + frame("DATA", 1, b"\x03abc"[:3], PADDED), PROTOCOL_ERROR),
    "padded DATA without a length": (headers(1) + frame("DATA", 1, b"", PADDED), FRAME_SIZE_ERROR),
    "more padding than HEADERS": (frame("HEADERS", 1, b"\xff" + block(OK), PADDED | END_HEADERS), PROTOCOL_ERROR),
    "HEADERS too short for a priority": (frame("HEADERS", 1, b"\0\0", PRIORITY | END_HEADERS), FRAME_SIZE_ERROR),
    # 6.4
    "RST_STREAM of a wrong size": (frame("RST_STREAM", 1, b"\0\0\0"), FRAME_SIZE_ERROR),
    # 6.5: settings
    "SETTINGS of a stream": (frame("SETTINGS", 1), PROTOCOL_ERROR),
    "SETTINGS of a wrong size": (frame("SETTINGS", 0, bytes(5)), FRAME_SIZE_ERROR),
    "a SETTINGS acknowledgement with settings": (frame("SETTINGS", 0, bytes(6), ACK), FRAME_SIZE_ERROR),
    "a server that enables push": (settings(enable_push=1), PROTOCOL_ERROR),
    "an initial window that is too large": (settings(initial_window_size=2**31), FLOW_CONTROL_ERROR),
    "frames that are too small": (settings(max_frame_size=16_383), PROTOCOL_ERROR),
    "frames that are too large": (settings(max_frame_size=2**24), PROTOCOL_ERROR),
    "an initial window that is too large for an open stream": (
        window_update(1, LARGEST - 65_535 + 2) + settings(initial_window_size=65_536),
        FLOW_CONTROL_ERROR,
    ),
    # 6.6, 6.7, 6.8
    "a push": (frame("PUSH_PROMISE", 1, b"\0\0\0\x02" + block(OK), END_HEADERS), PROTOCOL_ERROR),
    "PING of a stream": (frame("PING", 1, bytes(8)), PROTOCOL_ERROR),
    "PING of a wrong size": (frame("PING", 0, bytes(7)), FRAME_SIZE_ERROR),
    "GOAWAY of a stream": (frame("GOAWAY", 1, bytes(8)), PROTOCOL_ERROR),
    "GOAWAY of a wrong size": (frame("GOAWAY", 0, bytes(7)), FRAME_SIZE_ERROR),
    # 6.9: windows
    "a connection's window that opens by nothing": (window_update(0, 0), PROTOCOL_ERROR),
    "a connection's window that is too large": (window_update(0, LARGEST), FLOW_CONTROL_ERROR),
    "WINDOW_UPDATE of a wrong size": (frame("WINDOW_UPDATE", 0, bytes(5)), FRAME_SIZE_ERROR),
    # 6.10: CONTINUATION
    "a CONTINUATION without an open header block": (frame("CONTINUATION", 1, b"", END_HEADERS), PROTOCOL_ERROR),
    "a CONTINUATION after the end of the head": (headers(1) + frame("CONTINUATION", 1, b""), PROTOCOL_ERROR),
    "another frame in a header block": (frame("HEADERS", 1, b"") + frame("PING", 0, bytes(8)), PROTOCOL_ERROR),
    "DATA in a header block": (headers(1) + frame("HEADERS", 1, b"") + data(1, b"x"), PROTOCOL_ERROR),
    "an unknown frame in a header block": (frame("HEADERS", 1, b"") + frame(99, 1), PROTOCOL_ERROR),
    # 4.3 and RFC 7541: compression
    "a table larger than ours": (frame("HEADERS", 1, b"\x3f\xe2\x1f\x88", END_HEADERS), COMPRESSION_ERROR),
    "a table resized after a field": (frame("HEADERS", 1, b"\x88\x20", END_HEADERS), COMPRESSION_ERROR),
    "a field that the table does not hold": (
        headers(1) + frame("HEADERS", 1, b"\x40\x01a\x01b\xbf", END_HEADERS | END_STREAM),
        COMPRESSION_ERROR,
    ),
    "a name that the table does not hold": (frame("HEADERS", 1, b"\x88\x7e\x01b", END_HEADERS), COMPRESSION_ERROR),
    "the field at index 0": (frame("HEADERS", 1, b"\x80", END_HEADERS), COMPRESSION_ERROR),
    "a number without end": (frame("HEADERS", 1, b"\x0f" + b"\xff" * 9, END_HEADERS), COMPRESSION_ERROR),
    "Huffman code that is none": (frame("HEADERS", 1, b"\x88\0\x01a\x84\xff\xff\xff\xff", END_HEADERS), 9),
    "Huffman code with too much padding": (frame("HEADERS", 1, b"\x88\0\x01a\x82\x1f\xff", END_HEADERS), 9),
    # Limits
    "too much head": (
        frame("HEADERS", 1, b"\0\x01a\x7f\xf0\x7e" + bytes(16_239)) + frame("CONTINUATION", 1, bytes(16_384)) * 4,
        ENHANCE_YOUR_CALM,
    ),
    "a head that is larger than it looks": (
        frame("HEADERS", 1, b"\x88")
        + frame("CONTINUATION", 1, block([(b"a", bytes(126))]) * 120) * 3
        + frame("CONTINUATION", 1, block([(b"a", b"b" * 126)]) * 120, END_HEADERS),
        ENHANCE_YOUR_CALM,
    ),
    "too many CONTINUATIONs": (frame("HEADERS", 1) + frame("CONTINUATION", 1) * 65, ENHANCE_YOUR_CALM),
    "too many fields": (frame("HEADERS", 1, b"\x88" + b"\x9f" * 256, END_HEADERS), ENHANCE_YOUR_CALM),
    "a flood of PINGs": (frame("PING", 0, bytes(8)) * 1001, ENHANCE_YOUR_CALM),
    "a flood of PING acknowledgements": (frame("PING", 0, bytes(8), ACK) * 1001, ENHANCE_YOUR_CALM),
    "a flood of SETTINGS": (settings() * 1001, ENHANCE_YOUR_CALM),
    "a flood of settings in few frames": (frame("SETTINGS", 0, b"\0\x63\0\0\0\1" * 2700), 11),
    "a flood of empty DATA": (headers(1) + data(1, b"") * 1001, ENHANCE_YOUR_CALM),
    "a flood of nothing but padding": (headers(1) + frame("DATA", 1, b"\x01\0", PADDED) * 1001, ENHANCE_YOUR_CALM),
    "a flood of windows": (window_update(1, 1) * 1001, ENHANCE_YOUR_CALM),
    "a flood of PRIORITY": (frame("PRIORITY", 1, bytes(5)) * 1001, ENHANCE_YOUR_CALM),
    "a flood of unknown frames": (frame(200, 1) * 1001, ENHANCE_YOUR_CALM),
    "a flood of GOAWAYs": (goaway(1) * 1001, ENHANCE_YOUR_CALM),
    "a flood of resets": (reset(1, 8) * 1002, ENHANCE_YOUR_CALM),
    "a flood of heads for a stream that has ended": (headers(1, end=True) * 1002, ENHANCE_YOUR_CALM),
}

ENDS_THE_EXCHANGE = {
    # 8.1: messages
    "DATA without a head": (data(1, b"x"), PROTOCOL_ERROR),
    "a second head": (headers(1) + headers(1), PROTOCOL_ERROR),
    "an end after an interim response": (headers(1, [(b":status", b"100")], end=True), None),
    "switched protocols": (headers(1, [(b":status", b"101")]), PROTOCOL_ERROR),
    "too many interim responses": (headers(1, [(b":status", b"103")]) * 17, ENHANCE_YOUR_CALM),
    # 8.1.1: lengths
    "less body than was promised": (headers(1, [*OK, (b"content-length", b"3")]) + data(1, b"ab", end=True), None),
    "no body where one was promised": (headers(1, [*OK, (b"content-length", b"3")], end=True), None),
    "more body than was promised": (headers(1, [*OK, (b"content-length", b"1")]) + data(1, b"ab"), PROTOCOL_ERROR),
    "two lengths": (headers(1, [*OK, (b"content-length", b"1"), (b"content-length", b"2")]), PROTOCOL_ERROR),
    "a length that is none": (headers(1, [*OK, (b"content-length", b"-1")]), PROTOCOL_ERROR),
    "a length beyond all bounds": (headers(1, [*OK, (b"content-length", b"9" * 19)]), PROTOCOL_ERROR),
    # 8.2: fields
    "an upper-case name": (headers(1, [*OK, (b"X-Upper", b"1")]), PROTOCOL_ERROR),
    "a name with a space": (headers(1, [*OK, (b"a b", b"1")]), PROTOCOL_ERROR),
    "a name beyond ASCII": (headers(1, [*OK, (b"\xe9", b"1")]), PROTOCOL_ERROR),
    "no name": (headers(1, [*OK, (b"", b"1")]), PROTOCOL_ERROR),
    "a line break in a value": (headers(1, [*OK, (b"a", b"1\r\nset-cookie: x")]), PROTOCOL_ERROR),
    "a zero in a value": (headers(1, [*OK, (b"a", b"1\0")]), PROTOCOL_ERROR),
    "connection": (headers(1, [*OK, (b"connection", b"close")]), PROTOCOL_ERROR),
    "transfer-encoding": (headers(1, [*OK, (b"transfer-encoding", b"chunked")]), PROTOCOL_ERROR),
    "keep-alive": (headers(1, [*OK, (b"keep-alive", b"1")]), PROTOCOL_ERROR),
    "upgrade": (headers(1, [*OK, (b"upgrade", b"h2c")]), PROTOCOL_ERROR),
    # 8.3: pseudo-fields
    "no status": (headers(1, OK[1:]), PROTOCOL_ERROR),
    "nothing at all": (headers(1, []), PROTOCOL_ERROR),
    "two statuses": (headers(1, [OK[0], OK[0]]), PROTOCOL_ERROR),
    "a status after a field": (headers(1, OK[::-1]), PROTOCOL_ERROR),
    "a pseudo-field nobody knows": (headers(1, [OK[0], (b":path", b"/")]), PROTOCOL_ERROR),
    "a pseudo-field in trailers": (headers(1) + headers(1, OK, end=True), None),
    "an upper-case name in trailers": (headers(1) + headers(1, [(b"A", b"b")], end=True), None),
    "a status of two digits": (headers(1, [(b":status", b"20")]), PROTOCOL_ERROR),
    "a status of letters": (headers(1, [(b":status", b"abc")]), PROTOCOL_ERROR),
    "a status below 100": (headers(1, [(b":status", b"099")]), PROTOCOL_ERROR),
    # 6.9: windows
    "a WINDOW_UPDATE of zero bytes": (window_update(1, 0), PROTOCOL_ERROR),
    "a window that is too large": (window_update(1, LARGEST), FLOW_CONTROL_ERROR),
    "more than the window": (headers(1) + data(1, bytes(16_384)) * (FRAMES + 1), FLOW_CONTROL_ERROR),
    "more than the window, slowly": (
        headers(1, [*OK, (b"content-length", b"9" * 9)]) + data(1, bytes(16_384)) * (FRAMES + 1),
        FLOW_CONTROL_ERROR,
    ),
}


ENDED_BEFORE = {
    "DATA after the end",
    "DATA after a reset",
    "a flood of resets",
    "a flood of heads for a stream that has ended",
}


def invalid(error: object) -> bool:
    return isinstance(error, UpstreamError) and error.kind == ErrorKind.INVALID_RESPONSE and "HTTP/2" in error.message


@pytest.mark.parametrize("name", ENDS_THE_CONNECTION)
def test_it_ends_the_connection(name: str) -> None:
    said, code = ENDS_THE_CONNECTION[name]
    server = Server()
    response = server.client.send(post())
    server.say(said)
    assert server.failed_with(code)
    assert server.owner.heard.count("gone") == 1
    assert invalid(server.outcome(response).error) == (name not in ENDED_BEFORE)


@pytest.mark.parametrize("name", ENDS_THE_EXCHANGE)
def test_it_ends_the_exchange_and_no_other(name: str) -> None:
    said, code = ENDS_THE_EXCHANGE[name]
    server = Server()
    response, other = server.client.send(post()), server.client.send(post())
    server.heard()
    server.say(said)
    expected = [] if code is None else [(1, code)]
    assert [(each.stream_id, each.number) for each in server.heard("RST_STREAM")] == expected
    assert invalid(server.outcome(response).error)
    server.say(headers(3), data(3, b"x", end=True))
    assert server.outcome(other) == (200, b"x", None)
    assert server.client.room == 16


@pytest.mark.parametrize(
    "first", [headers(1), frame("PING", 0, bytes(8)), frame("SETTINGS", 0, b"", ACK), b"HTTP/1.1 4"]
)
def test_a_server_begins_with_its_settings(first: bytes) -> None:
    server = Server(b"")
    response = server.client.send(post())
    server.say(first)
    assert server.failed_with(FRAME_SIZE_ERROR if first.startswith(b"HTTP") else PROTOCOL_ERROR)
    assert invalid(server.outcome(response).error)


def test_all_exchanges_of_a_broken_connection_fail_but_what_had_arrived_can_be_read() -> None:
    server = Server()
    first, second = server.client.send(post()), server.client.send(post())
    server.say(headers(1), data(1, b"abc"), frame("PING", 1, bytes(8)), data(1, b"never"))
    outcome = server.outcome(first)
    assert outcome.body == b"abc"
    assert invalid(outcome.error)
    assert invalid(server.outcome(second).error)


def test_identical_lengths_are_one_length() -> None:
    server = Server()
    response = server.client.send(post())
    server.say(headers(1, [*OK, (b"content-length", b"1"), (b"content-length", b"1")]), data(1, b"x", end=True))
    assert server.outcome(response) == (200, b"x", None)


@pytest.mark.parametrize("status", [b"204", b"304"])
def test_a_response_that_has_no_body_may_say_how_long_it_would_be(status: bytes) -> None:
    server = Server()
    response = server.client.send(post())
    server.say(headers(1, [(b":status", status), (b"content-length", b"5")], end=True))
    assert server.outcome(response) == (int(status), b"", None)


def test_a_stream_that_was_reset_cannot_send_more_than_its_window() -> None:
    server = Server()
    server.client.send(post()).abort()
    server.say(data(1, bytes(16_384)) * FRAMES)
    assert server.client.alive()
    server.say(data(1, b"x"))
    assert server.failed_with(STREAM_CLOSED)


def test_an_answer_in_frames_of_one_byte_ends_before_it_has_taken_much_time() -> None:
    server = Server()
    server.client.send(post()).expect_all()
    server.say(headers(1))
    for _ in range(FRAMING_BYTES // 90_000 + 1):
        assert server.client.alive()
        server.say(data(1, b"x") * 10_000)
    assert server.failed_with(ENHANCE_YOUR_CALM)


def test_more_than_the_connections_window_ends_the_connection() -> None:
    server = Server()
    server.client.send(post()).abort()
    for _ in range(16):
        server.client.send(post()).expect_all()
    live = range(3, 35, 2)
    server.say(*(headers(each) for each in live))
    server.say(data(1, b"x"), *(data(each, bytes(16_384)) * 64 for each in live))
    assert server.failed_with(FLOW_CONTROL_ERROR)


def test_questions_of_a_server_that_does_not_read_the_answers_end_the_connection() -> None:
    server = Server()
    server.client.send(post())
    server.say(headers(1))
    server.client.pause_writing()
    for _ in range(2):
        server.say(frame("PING", 0, bytes(8)) * 500, data(1, b"x"))
        assert server.client.alive()
    server.say(frame("PING", 0, bytes(8)))
    assert server.failed_with(ENHANCE_YOUR_CALM)


def test_calls_that_wait_for_a_window_that_stays_shut_go_elsewhere() -> None:
    server = Server(settings(initial_window_size=0))
    waiting = [server.client.send(post()) for _ in range(3)]
    server.clock.pass_by(HTTP2_WINDOW_S)
    assert [type(server.outcome(each).error) for each in waiting] == [Unsent] * 3
    assert [each.stream_id for each in server.heard("RST_STREAM")] == [1, 3, 5]
    assert "gone" in server.owner.heard
    assert server.wire.aborted


def test_a_shut_window_is_noticed_though_each_call_gives_up_before() -> None:
    server = Server(settings(initial_window_size=0))
    for _ in range(10):
        server.client.send(post()).abort()
        server.clock.pass_by(HTTP2_WINDOW_S / 8)
    assert not server.client.alive()
    assert "gone" in server.owner.heard


def test_a_window_that_opens_by_a_byte_at_a_time_stays_shut() -> None:
    server = Server(settings(initial_window_size=0))
    response = server.client.send(post(bytes(1000)))
    for _ in range(8):
        server.clock.pass_by(HTTP2_WINDOW_S / 8)
        if server.client.alive():
            server.say(window_update(1, 1))
    assert isinstance(server.outcome(response).error, Unsent)


def test_a_window_that_opens_late_and_one_after_the_other_is_no_fault() -> None:
    server = Server(settings(initial_window_size=0))
    for stream_id in range(1, 41, 2):
        response = server.client.send(post())
        server.clock.pass_by(HTTP2_WINDOW_S * 0.9)
        server.say(window_update(stream_id, 100))
        server.say(headers(stream_id, end=True))
        assert server.outcome(response).error is None
    assert server.client.alive()
    assert server.clock.timers == []


def test_an_answer_that_has_begun_goes_on_while_its_body_waits() -> None:
    server = Server(settings(initial_window_size=0))
    answered, waiting = server.client.send(post()), server.client.send(post())
    server.say(headers(1))
    server.clock.pass_by(HTTP2_WINDOW_S)
    assert isinstance(server.outcome(waiting).error, Unsent)
    assert not server.client.alive()
    server.say(data(1, b"x", end=True))
    assert server.outcome(answered) == (200, b"x", None)
    assert server.wire.aborted


def test_a_server_that_reads_no_more_gets_no_more_calls() -> None:
    server = Server(settings(initial_window_size=1 << 20))
    server.client.pause_writing()
    response = server.client.send(post())
    server.clock.pass_by(HTTP2_WINDOW_S)
    assert isinstance(server.outcome(response).error, Unsent)
    assert not server.client.alive()
