"""Reads cut what a server sends anywhere, and exchanges are interleaved in any way: nothing of it may show."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.providers.http.inside import h2_server
from tests.unit.providers.http.inside.h2_server import (
    END_HEADERS,
    END_STREAM,
    OK,
    PADDED,
    Outcome,
    Server,
    block,
    data,
    frame,
    goaway,
    headers,
    post,
    reset,
    window_update,
)

SCRIPT = b"".join(
    [
        h2_server.settings(initial_window_size=20, max_concurrent_streams=9),
        headers(3, [(b":status", b"103")]),
        frame("HEADERS", 1, block(OK)[:7]),
        frame("CONTINUATION", 1, block(OK)[7:], END_HEADERS),
        data(1, b"one"),
        frame("PING", 0, b"12345678"),
        headers(5),
        headers(3, [*OK, (b"content-length", b"4")]),
        frame("DATA", 3, b"\x02th\0\0", PADDED),
        data(1, b"two"),
        window_update(7, 30),
        data(5, b"lost"),
        data(3, b"re", end=True),
        reset(7, 2),
        headers(9, [*OK, (b"Bad", b"1")]),
        frame(0xAA, 1, b"unknown"),
        data(1, b"", end=True),
        headers(11),
        data(11, b"x"),
        headers(11, [(b"trailer", b"1")], end=True),
        goaway(13, 0, b"bye"),
        headers(13, end=True),
    ]
)


def played(cuts: list[int]) -> tuple[list[Outcome], list[h2_server.Frame], list[str]]:
    """Play the script, cut into reads; the third of eight exchanges is dropped before."""
    server = Server(b"")
    responses = [server.client.send(post(bytes(range(60)))) for _ in range(8)]
    responses[2].abort()
    places = [0, *sorted(cuts), len(SCRIPT)]
    for begin, end in pairwise(places):
        server.say(SCRIPT[begin:end])
    outcomes = [server.outcome(each) for index, each in enumerate(responses) if index != 2]
    return outcomes, server.heard(), server.owner.heard


def signature(outcome: Outcome) -> tuple[int, bytes, str]:
    return outcome.status, outcome.body, f"{type(outcome.error).__name__} {outcome.error}"


def test_the_script_has_all_kinds_of_ends() -> None:
    outcomes, frames, owner = played([])
    assert [signature(each) for each in outcomes] == [
        (200, b"onetwo", "NoneType None"),
        (200, b"thre", "NoneType None"),
        (0, b"", "UpstreamError the provider reset the stream before the answer (INTERNAL_ERROR)"),
        (0, b"", "UpstreamError its answer is not valid HTTP/2 (a header field with an invalid name)"),
        (200, b"x", "NoneType None"),
        (200, b"", "NoneType None"),
        (0, b"", "Unsent the provider sent GOAWAY"),
    ]
    assert [(each.kind, each.stream_id) for each in frames if each.kind not in {"HEADERS", "DATA"}] == [
        ("RST_STREAM", 5),
        ("SETTINGS", 0),
        ("PING", 0),
        ("RST_STREAM", 9),
        ("GOAWAY", 0),
    ]
    assert owner[-1] == "gone"


@given(st.lists(st.integers(0, len(SCRIPT)), max_size=40))
def test_where_reads_are_cut_does_not_show(cuts: list[int]) -> None:
    whole, cut = played([]), played(cuts)
    assert [signature(each) for each in cut[0]] == [signature(each) for each in whole[0]]
    assert [each for each in cut[1] if each.kind != "DATA"] == [each for each in whole[1] if each.kind != "DATA"]
    assert cut[2] == whole[2]


def test_byte_by_byte_does_not_show() -> None:
    whole, cut = played([]), played(list(range(1, len(SCRIPT))))
    assert [signature(each) for each in cut[0]] == [signature(each) for each in whole[0]]
    assert cut[2] == whole[2]


@st.composite
def traffic(draw: st.DrawFn) -> tuple[list[list[bytes]], list[int], list[int]]:
    """Return the pieces of some responses, the order in which they come, and whose reader leaves when."""
    bodies = draw(st.lists(st.lists(st.binary(max_size=50), max_size=6), min_size=1, max_size=12))
    order = draw(st.permutations([index for index, body in enumerate(bodies) for _ in range(len(body) + 2)]))
    leavers = draw(st.lists(st.integers(0, len(order) - 1), max_size=len(bodies)))
    return bodies, order, leavers


@given(traffic())
@settings(deadline=None)
def test_interleaved_exchanges_get_their_own_bytes_and_losers_disturb_nobody(
    drawn: tuple[list[list[bytes]], list[int], list[int]],
) -> None:
    bodies, order, leavers = drawn
    server = Server()
    responses = [server.client.send(post()) for _ in bodies]
    steps = [iter([headers(0), *(data(0, piece) for piece in body), data(0, b"", end=True)]) for body in bodies]
    gone: set[int] = set()
    ended: set[int] = set()
    for turn, index in enumerate(order):
        step = next(steps[index])
        server.say(step[:5] + (2 * index + 1).to_bytes(4, "big") + step[9:])
        if step[3:5] == bytes((0, END_STREAM)) and index not in gone:
            ended.add(index)
        if turn in leavers and index not in ended:
            responses[index].abort()
            gone.add(index)
    assert server.client.streams == 0
    assert server.client.room == 16
    assert {(each.stream_id - 1) // 2 for each in server.heard("RST_STREAM")} == gone
    for index, body in enumerate(bodies):
        if index not in gone:
            assert server.outcome(responses[index]) == (200, b"".join(body), None)


@given(st.binary(max_size=200))
def test_whatever_comes_ends_in_an_answer_or_a_goodbye(noise: bytes) -> None:
    server = Server()
    server.client.send(post())
    server.say(headers(1), noise)
    if not server.client.alive():
        assert server.wire.aborted or server.client.streams
        assert server.client.room == 0
    else:
        assert server.client.streams + server.client.room == 16
