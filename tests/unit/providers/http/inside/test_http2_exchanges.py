"""What leaves for a request, what comes of a response, and what an exchange that is dropped costs."""

import asyncio

import pytest

from providers.http import Head
from providers.http.http2 import Http2Connection
from providers.http.message import HTTP2_STREAM_BYTES, Unsent
from providers.refusals import ErrorKind, UpstreamError
from tests.unit.providers.http.inside.h2_server import (
    ACK,
    END_HEADERS,
    END_STREAM,
    OK,
    PADDED,
    PREFACE,
    PRIORITY,
    Garage,
    Server,
    Wire,
    block,
    data,
    frame,
    frames_in,
    headers,
    post,
    read,
    reset,
    settings,
)


def test_the_greeting_is_preface_settings_and_window_in_one_write() -> None:
    server = Server()
    assert server.greeting.startswith(PREFACE)
    ours, window = frames_in(server.greeting.removeprefix(PREFACE))
    pairs = [ours.payload[at : at + 6] for at in range(0, len(ours.payload), 6)]
    values = {int.from_bytes(pair[:2], "big"): int.from_bytes(pair[2:], "big") for pair in pairs}
    assert (ours.kind, ours.stream_id) == ("SETTINGS", 0)
    assert values == {2: 0, 4: HTTP2_STREAM_BYTES, 6: 1 << 16}
    assert (window.kind, window.stream_id, window.number) == ("WINDOW_UPDATE", 0, (16 << 20) - 65_535)


def test_a_request_may_leave_before_the_server_has_greeted() -> None:
    server = Server(b"")
    assert server.client.room == 16
    server.client.send(post())
    assert [each.kind for each in server.heard()] == ["HEADERS", "DATA"]


def test_a_request_is_its_pseudo_fields_its_own_and_a_length() -> None:
    server = Server()
    server.client.send(post(b'{"a":1}', extra=[(b"traceparent", b"00-1")]))
    assert len(server.wire.writes) == 1
    head, body = server.heard()
    assert head.flags == END_HEADERS
    assert server.fields([head]) == [
        (b":method", b"POST"),
        (b":scheme", b"https"),
        (b":authority", b"api.example"),
        (b":path", b"/v1/chat"),
        (b"authorization", b"Bearer k"),
        (b"x-own", b"1"),
        (b"traceparent", b"00-1"),
        (b"content-length", b"7"),
    ]
    assert (body.kind, body.flags, body.stream_id, body.payload) == ("DATA", END_STREAM, 1, b'{"a":1}')


@pytest.mark.parametrize("body", [None, b""])
def test_a_request_without_a_body_ends_with_its_head(body: bytes | None) -> None:
    server = Server()
    head = Head("GET", "https", "api.example", "/", {}, absolute=False)
    response = server.client.send(post(body, head=head))
    (only,) = server.heard()
    assert only.flags == END_HEADERS | END_STREAM
    assert (b":method", b"GET") in server.fields([only])
    server.say(headers(1), data(1, b"[]", end=True))
    assert server.outcome(response) == (200, b"[]", None)


def test_the_constant_part_of_a_request_is_rendered_once() -> None:
    server = Server()
    head = Head("POST", "https", "api.example", "/v1", {"x-a": "b"}, absolute=False)
    server.client.send(post(head=head))
    rendered = head.http2
    server.client.send(post(head=head))
    assert rendered is not None
    assert head.http2 is rendered


def test_the_first_request_says_that_there_will_be_no_table() -> None:
    server = Server(settings(header_table_size=0))
    server.client.send(post())
    server.client.send(post())
    first, second = server.heard("HEADERS")
    assert first.payload == b"\x20" + second.payload


def test_what_nobody_waits_for_is_read_for_the_sake_of_the_table() -> None:
    server = Server()
    server.client.send(post()).abort()
    wanted = server.client.send(post())
    server.say(frame("HEADERS", 1, b"\x88\x40\x01a\x01b", END_HEADERS | END_STREAM))
    server.say(frame("HEADERS", 3, b"\x88\xbe", END_HEADERS | END_STREAM))
    assert server.outcome(wanted).status == 200
    assert wanted.headers == {"a": "b"}


def test_a_large_head_is_continued() -> None:
    server = Server()
    big = b"v" * 40_000
    server.client.send(post(extra=[(b"x-big", big)]))
    frames = server.heard()
    assert [each.kind for each in frames] == ["HEADERS", "CONTINUATION", "CONTINUATION", "DATA"]
    assert [each.flags for each in frames] == [0, 0, END_HEADERS, END_STREAM]
    assert all(len(each.payload) <= 16_384 for each in frames)
    assert (b"x-big", big) in server.fields(frames[:3])


def test_a_response_is_its_status_its_fields_and_its_body() -> None:
    server = Server()
    response = server.client.send(post())
    server.say(headers(1), data(1, b"one "), data(1, b"two"), data(1, b"", end=True))
    assert server.outcome(response) == (200, b"one two", None)
    assert response.headers == {"content-type": "text/event-stream"}
    assert response.connect_ms == 12.5
    assert server.client.send(post()).connect_ms is None


def test_a_response_may_be_its_head_alone() -> None:
    server = Server()
    response = server.client.send(post())
    server.say(headers(1, [(b":status", b"204")], end=True))
    assert server.outcome(response) == (204, b"", None)


async def test_a_reader_that_waits_hears_of_each_piece() -> None:
    client = Http2Connection(Garage(), asyncio.get_running_loop(), None)
    client.connection_made(Wire())
    response = client.send(post())
    reader = asyncio.create_task(read(response))
    for said in (settings(), headers(1), data(1, b"one "), data(1, b"two"), data(1, b"", end=True)):
        await asyncio.sleep(0)  # lets the reader come to its next wait
        assert not reader.done()
        client.data_received(said)
    assert await reader == (200, b"one two", None)


def test_interim_responses_are_skipped() -> None:
    server = Server()
    response = server.client.send(post())
    server.say(headers(1, [(b":status", b"103"), (b"link", b"x")]), headers(1, [(b":status", b"100")]))
    assert not response.status
    server.say(headers(1), data(1, b"x", end=True))
    assert server.outcome(response) == (200, b"x", None)
    assert "link" not in response.headers


def test_trailers_end_the_body_and_are_nobodys() -> None:
    server = Server()
    response = server.client.send(post())
    server.say(headers(1), data(1, b"x"), headers(1, [(b"grpc-status", b"0")], end=True))
    assert server.outcome(response) == (200, b"x", None)
    assert "grpc-status" not in response.headers
    assert not server.client.streams


def test_padding_and_priorities_are_not_part_of_anything() -> None:
    server = Server()
    response = server.client.send(post())
    head = b"\x03" + b"\0\0\0\0\x10" + block(OK) + b"\0\0\0"
    server.say(
        frame("HEADERS", 1, head, PADDED | PRIORITY | END_HEADERS),
        frame("PRIORITY", 1, b"\0\0\0\0\x10"),
        frame("DATA", 1, b"\x02xy\0\0", PADDED),
        frame("DATA", 1, b"\0z", PADDED | END_STREAM),
    )
    assert server.outcome(response) == (200, b"xyz", None)


def test_a_head_may_come_in_pieces() -> None:
    server = Server()
    response = server.client.send(post())
    whole = block(OK)
    server.say(frame("HEADERS", 1, whole[:5], END_STREAM), frame("CONTINUATION", 1, whole[5:9]))
    server.say(frame("CONTINUATION", 1, b""), frame("CONTINUATION", 1, whole[9:], END_HEADERS))
    assert server.outcome(response) == (200, b"", None)


def test_unknown_frames_settings_and_flags_mean_nothing() -> None:
    server = Server()
    response = server.client.send(post())
    server.say(settings(unknown=7), frame(0xBE, 1, b"grease", 0xFF))
    server.say(headers(1), frame("DATA", 0x80000000 | 1, b"x", 0xF2), data(1, b"y", end=True))
    assert server.outcome(response) == (200, b"xy", None)


def test_settings_and_pings_are_answered_in_one_write() -> None:
    server = Server()
    server.say(settings(), frame("PING", 0, b"12345678"), frame("PING", 0, b"abcdefgh"), frame("PING", 0, b"x" * 8, 1))
    assert len(server.wire.writes) == 1
    assert [(each.kind, each.flags, each.payload) for each in server.heard()] == [
        ("SETTINGS", ACK, b""),
        ("PING", ACK, b"12345678"),
        ("PING", ACK, b"abcdefgh"),
    ]


def test_a_loser_is_reset_at_once() -> None:
    server = Server()
    response = server.client.send(post())
    winner = server.client.send(post())
    server.heard()
    response.abort()
    assert [(each.kind, each.stream_id, each.number) for each in server.heard()] == [("RST_STREAM", 1, 8)]
    assert (server.client.streams, server.client.room) == (1, 15)
    server.say(headers(1), data(1, b"late"), headers(3), data(3, b"won", end=True), data(1, b"", end=True))
    assert server.outcome(winner) == (200, b"won", None)
    response.abort()
    assert server.heard() == []


def test_what_was_reset_before_its_head_is_forgotten_head_and_all() -> None:
    server = Server()
    server.client.send(post()).abort()
    server.say(reset(1, 8), headers(1, [(b"no-status", b"x")]), frame("WINDOW_UPDATE", 1, b"\0\0\0\1"))
    server.exchange()


def test_room_shrinks_with_streams_and_the_owner_hears_when_it_grows() -> None:
    server = Server(settings(max_concurrent_streams=2))
    first, second = server.client.send(post()), server.client.send(post())
    assert (server.client.room, server.client.streams) == (0, 2)
    second.abort()
    assert (server.client.room, server.owner.heard) == (1, ["freed"])
    server.say(settings(max_concurrent_streams=0))
    assert server.client.room == 0
    server.say(headers(1, end=True))
    assert (server.client.room, server.owner.heard) == (0, ["freed"])
    server.say(settings(max_concurrent_streams=500))
    assert (server.client.room, server.owner.heard) == (16, ["freed", "freed"])
    assert server.outcome(first).status == 200


def test_a_connection_wears_out_by_resets_before_the_server_minds() -> None:
    server = Server()
    winner = server.client.send(post())
    for _ in range(74):
        server.client.send(post()).abort()
    assert "wearing" not in server.owner.heard
    server.client.send(post()).abort()
    assert server.owner.heard[-2:] == ["wearing", "freed"]
    for _ in range(25):
        server.client.send(post()).abort()
    assert server.owner.heard.count("wearing") == 1
    assert server.owner.heard[-1] == "gone"
    assert (server.client.room, server.client.alive(), server.wire.aborted) == (0, False, False)
    server.heard()
    server.say(headers(1), data(1, b"won", end=True))
    assert server.outcome(winner) == (200, b"won", None)
    assert [(each.kind, each.number) for each in server.heard()] == [("GOAWAY", 0)]
    assert server.wire.aborted
    assert server.owner.heard.count("gone") == 1


def test_exchanges_that_ended_do_not_wear_it_out() -> None:
    server = Server()
    for _ in range(200):
        server.exchange()
    assert set(server.owner.heard) == {"freed"}


def test_a_connection_retires_before_it_runs_out_of_stream_ids() -> None:
    server = Server()
    server.client.next_id = 2**31 - 3
    server.client.send(post()).abort()
    assert server.owner.heard == ["freed"]
    response = server.client.send(post())
    assert server.owner.heard == ["freed", "gone"]
    server.say(headers(2**31 - 1, end=True))
    assert server.outcome(response).status == 200
    assert server.wire.aborted


def test_a_request_on_a_connection_that_is_gone_was_never_sent() -> None:
    server = Server()
    server.wire.abort()
    assert not server.client.alive()
    assert isinstance(server.outcome(server.client.send(post())).error, Unsent)


def test_closing_drops_whatever_runs() -> None:
    server = Server()
    response = server.client.send(post())
    server.say(headers(1), data(1, b"x"))
    server.heard()
    server.client.close()
    assert [(each.kind, each.number) for each in server.heard()] == [("GOAWAY", 0)]
    outcome = server.outcome(response)
    assert isinstance(outcome.error, UpstreamError)
    assert (outcome.body, outcome.error.kind) == (b"x", ErrorKind.DISCONNECTED)
    assert (server.wire.aborted, server.client.alive(), server.owner.heard) == (True, False, ["gone"])
    server.client.close()
    server.client.connection_lost(None)
    server.say(data(1, b"late"))
    assert server.owner.heard == ["gone"]
