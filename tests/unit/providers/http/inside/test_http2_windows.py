"""Flow control: bodies leave as the server has room for them, and its own are given room as they are read."""

import pytest

from providers.http import Response
from providers.http.message import HTTP2_STREAM_BYTES, PIECES
from tests.unit.providers.http.inside.h2_server import (
    END_STREAM,
    PADDED,
    Frame,
    Server,
    data,
    frame,
    headers,
    post,
    settings,
    window_update,
)

MIB = 1 << 20
FRAMES = HTTP2_STREAM_BYTES // 16_384  # of a stream's window


def sizes(frames: list[Frame]) -> list[tuple[int, int]]:
    return [(each.stream_id, len(each.payload)) for each in frames if each.kind == "DATA"]


def test_a_body_that_fits_leaves_with_its_head_in_one_write() -> None:
    server = Server(settings(initial_window_size=1 << 20))
    body = bytes(range(256)) * 200
    server.client.send(post(body))
    assert len(server.wire.writes) == 1
    frames = server.heard()
    assert sizes(frames) == [(1, 16_384)] * 3 + [(1, 2048)]
    assert b"".join(each.payload for each in frames[1:]) == body
    assert [each.flags for each in frames[1:]] == [0, 0, 0, END_STREAM]


def test_the_servers_frames_may_be_larger() -> None:
    server = Server(settings(initial_window_size=1 << 20, max_frame_size=40_000))
    server.client.send(post(bytes(50_000)))
    assert sizes(server.heard()) == [(1, 40_000), (1, 10_000)]


def test_what_the_streams_window_does_not_take_waits_for_it() -> None:
    server = Server(settings(initial_window_size=10))
    server.client.send(post(b"0123456789abcdef"))
    assert sizes(server.heard()) == [(1, 10)]
    server.say(window_update(1, 4))
    (more,) = server.heard()
    assert (more.payload, more.flags) == (b"abcd", 0)
    server.say(window_update(1, 2), window_update(1, 100))
    (last,) = server.heard()
    assert (last.payload, last.flags) == (b"ef", END_STREAM)
    server.say(window_update(1, 100))
    assert server.heard() == []


def test_what_the_connections_window_does_not_take_waits_for_it() -> None:
    server = Server(settings(initial_window_size=1 << 20))
    server.client.send(post(bytes(65_535 + 5)))
    assert sum(size for _, size in sizes(server.heard())) == 65_535
    server.client.send(post(b"abc"))
    assert [each.kind for each in server.heard()] == ["HEADERS"]
    server.say(window_update(0, 6))
    assert sizes(server.heard()) == [(1, 5), (3, 1)]
    server.say(window_update(0, 6))
    assert sizes(server.heard()) == [(3, 2)]


def test_bodies_take_turns() -> None:
    server = Server(settings(initial_window_size=1 << 20), window_update(0, 2 * MIB))
    server.client.pause_writing()
    server.client.send(post(bytes(200_000)))
    server.client.send(post(bytes(200_000)))
    assert [each.kind for each in server.heard()] == ["HEADERS", "HEADERS"]
    server.client.resume_writing()
    turns = sizes(server.heard())
    assert [stream for stream, _ in turns[:12]] == [1] * 4 + [3] * 4 + [1] * 4
    assert sum(size for stream, size in turns if stream == 1) == 200_000
    assert sum(size for stream, size in turns if stream == 3) == 200_000


def test_a_small_body_does_not_wait_for_a_large_one_whose_window_is_full() -> None:
    server = Server(settings(initial_window_size=100))
    server.client.send(post(bytes(500)))
    server.client.send(post(b"abc"))
    assert sizes(server.heard()) == [(1, 100), (3, 3)]


def test_settings_widen_and_narrow_the_windows_of_open_streams() -> None:
    server = Server(settings(initial_window_size=10))
    server.client.send(post(bytes(40)))
    server.say(settings(initial_window_size=4))  # now 6 below zero
    server.say(window_update(1, 6))
    assert sizes(server.heard()) == [(1, 10)]
    server.say(window_update(1, 3))
    assert sizes(server.heard()) == [(1, 3)]
    server.say(settings(initial_window_size=20))
    assert sizes(server.heard()) == [(1, 16)]
    server.say(window_update(1, 100))
    assert sizes(server.heard()) == [(1, 11)]


def test_a_window_that_is_taken_back_while_the_connection_is_full_holds_the_body() -> None:
    server = Server(settings(initial_window_size=70_000))
    server.client.send(post(bytes(70_000)))
    server.say(settings(initial_window_size=0), window_update(0, 10_000))
    assert sum(size for _, size in sizes(server.heard())) == 65_535
    server.say(settings(initial_window_size=70_000))
    assert sizes(server.heard()) == [(1, 4465)]


def test_bodies_are_held_back_while_the_transport_is_full_but_resets_are_not() -> None:
    server = Server(settings(initial_window_size=4 * MIB), window_update(0, 4 * MIB))
    server.wire.full_at = 100_000
    response = server.client.send(post(bytes(MIB)))
    held = sum(size for _, size in sizes(server.heard()))
    assert 100_000 <= held < 200_000
    server.say(frame("PING", 0, b"12345678"))
    response.abort()
    assert [each.kind for each in server.heard()] == ["PING", "RST_STREAM"]
    server.wire.full_at = None
    server.client.resume_writing()
    assert server.heard() == []


def test_a_response_that_ends_first_ends_the_body_too() -> None:
    server = Server(settings(initial_window_size=10))
    response = server.client.send(post(bytes(100)))
    server.heard()
    server.say(headers(1, [(b":status", b"413")], end=True), window_update(1, 1000))
    assert [(each.kind, each.stream_id, each.number) for each in server.heard()] == [("RST_STREAM", 1, 0)]
    assert server.outcome(response) == (413, b"", None)


def test_a_dropped_body_is_not_sent_on() -> None:
    server = Server(settings(initial_window_size=70_000))
    response = server.client.send(post(bytes(70_000)))
    response.abort()
    server.heard()
    server.say(window_update(0, 100_000))
    assert server.heard() == []
    server.exchange()


def test_it_knows_how_large_a_body_leaves_without_waiting() -> None:
    server = Server(b"")
    assert server.client.takes(65_535)
    assert not server.client.takes(65_536)
    server = Server(settings(initial_window_size=MIB))
    assert not server.client.takes(65_536)
    server.say(window_update(0, MIB))
    assert server.client.takes(MIB)
    assert not server.client.takes(MIB + 1)
    server.client.send(post(bytes(100_000)))
    assert server.client.takes(MIB - 34_465)
    assert not server.client.takes(MIB - 34_464)


def test_the_connection_is_given_room_on_receipt_whether_anybody_reads_or_not() -> None:
    server = Server()
    for _ in range(9):
        server.client.send(post()).expect_all()
    server.heard()
    for stream_id in range(1, 19, 2):
        server.say(headers(stream_id), data(stream_id, bytes(16_384)) * 60)
    assert [(each.stream_id, each.number) for each in server.heard()] == [(0, 9 * 60 * 16_384)]


def test_a_stream_is_given_room_as_it_is_read() -> None:
    server = Server()
    response = server.client.send(post())
    server.heard()
    server.say(headers(1), data(1, bytes(16_384)) * (FRAMES // 2 - 1))
    take(response)
    assert server.heard() == []
    server.say(data(1, bytes(16_384)))
    assert server.heard() == []
    take(response)
    assert [(each.stream_id, each.number) for each in server.heard("WINDOW_UPDATE")] == [(1, HTTP2_STREAM_BYTES // 2)]
    server.say(data(1, bytes(16_384)) * FRAMES)
    assert server.client.streams == 1


def test_a_reader_of_all_of_it_lets_the_server_send_ahead() -> None:
    server = Server()
    response = server.client.send(post())
    server.heard()
    server.say(headers(1), data(1, b"x"))
    for _ in range(2):  # it is said once
        response.expect_all()
    assert [(each.stream_id, each.number) for each in server.heard()] == [(1, MIB - HTTP2_STREAM_BYTES)]
    server.say(data(1, bytes(16_384)) * 63)
    assert server.client.streams == 1
    server.say(data(1, bytes(16_384)))
    assert [each.kind for each in server.heard()] == ["RST_STREAM"]


def test_many_small_pieces_are_kept_as_few() -> None:
    server = Server()
    response = server.client.send(post())
    server.say(headers(1), data(1, b"x") * 10_000)
    assert response.buffered == 10_000
    assert len(response._pieces) <= PIECES


def test_padding_is_given_back_without_a_reader() -> None:
    server = Server()
    server.client.send(post())
    server.heard()
    server.say(headers(1), frame("DATA", 1, b"\xffx" + bytes(255), PADDED) * (HTTP2_STREAM_BYTES // 2 // 256))
    assert [(each.stream_id, each.number) for each in server.heard()] == [(1, HTTP2_STREAM_BYTES // 2)]


def test_what_comes_for_a_stream_that_was_reset_counts_to_the_connection() -> None:
    server = Server()
    for _ in range(9):
        response = server.client.send(post())
        response.expect_all()
        response.abort()
    server.heard()
    for stream_id in range(1, 19, 2):
        server.say(data(stream_id, bytes(16_384)) * 60)
    assert [(each.stream_id, each.number) for each in server.heard()] == [(0, 8 * MIB)]
    assert not server.wire.aborted


@pytest.mark.parametrize("size", [100, 999, 16_384])
def test_a_body_arrives_whole_whatever_the_windows(size: int) -> None:
    server = Server(settings(initial_window_size=size))
    body = bytes(range(256)) * 100
    server.client.send(post(body))
    arrived = bytearray()
    for _ in range(len(body) // size + 1):
        frames = server.heard("DATA")
        arrived += b"".join(each.payload for each in frames)
        if frames and frames[-1].flags == END_STREAM:
            break
        server.say(window_update(1, size))
    assert arrived == body


def take(response: Response) -> None:
    """Read what has arrived of a body."""
    with pytest.raises(StopIteration):
        response.read().send(None)
