"""What looks like an attack and is none: long uploads, losers still talking, a busy server's questions."""

from tests.unit.providers.http.inside.h2_server import (
    END_HEADERS,
    END_STREAM,
    OK,
    Server,
    block,
    data,
    frame,
    headers,
    post,
    settings,
    window_update,
)


def test_useful_frames_make_up_for_others() -> None:
    server = Server()
    response = server.client.send(post())
    server.say(headers(1))
    for _ in range(5):
        server.say(frame("PING", 0, bytes(8)) * 900, data(1, b"x"))
    server.say(data(1, b"", end=True))
    assert server.outcome(response) == (200, b"xxxxx", None)


def test_each_request_makes_up_for_others() -> None:
    server = Server()
    for _ in range(60):
        server.client.send(post()).abort()
        server.say(frame("PING", 0, bytes(8)) * 20)
    assert server.client.alive()


def test_a_long_upload_is_no_flood_of_windows() -> None:
    server = Server(settings(initial_window_size=300))
    server.client.send(post(bytes(400_000)))
    for _ in range(150):
        for _ in range(10):
            server.say(window_update(1, 300), window_update(0, 300))
        assert server.client.alive()
    assert sum(len(each.payload) for each in server.heard("DATA")) == 400_000


def test_many_small_pieces_for_a_stream_that_was_reset_are_no_flood() -> None:
    server = Server()
    server.client.send(post()).abort()
    server.say(data(1, b"token") * 2000)
    server.exchange()


def test_a_server_that_reads_the_answers_late_may_ask_again() -> None:
    server = Server()
    server.client.send(post())
    server.say(headers(1))
    for _ in range(3):
        server.client.pause_writing()
        server.say(frame("PING", 0, bytes(8)) * 600, data(1, b"x"))
        server.client.resume_writing()
        server.say(frame("PING", 0, bytes(8)))
    assert server.client.alive()


def test_continuations_are_counted_for_each_head() -> None:
    server = Server()
    responses = [server.client.send(post()) for _ in range(2)]
    for stream_id in (1, 3):
        server.say(frame("HEADERS", stream_id, block(OK), END_STREAM), frame("CONTINUATION", stream_id) * 39)
        server.say(frame("CONTINUATION", stream_id, b"", END_HEADERS))
    assert [server.outcome(each) for each in responses] == [(200, b"", None)] * 2
