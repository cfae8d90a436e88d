"""Server-sent events: where the last whole one ends, and what each says, however the bytes arrive."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.bodies import EventSplitter, events, set_apart
from providers.bodies.sse import MOST_LINES
from providers.refusals import ErrorKind, UpstreamError


def data_of(stream: bytes) -> list[bytes]:
    return [event.data for event in events(stream) if event.data]


def feed_all(reads: list[bytes]) -> bytes:
    splitter = EventSplitter()
    blocks = [splitter.feed(read) for read in reads]
    return b"".join(blocks) + splitter.rest()


def test_a_read_of_whole_events_passes_through_uncopied() -> None:
    read = b"data: 1\n\ndata: 2\n\n"
    assert EventSplitter().feed(read) is read


def test_the_unfinished_tail_waits_for_its_end() -> None:
    splitter = EventSplitter()
    assert splitter.feed(b"data: 1\n\ndata: ") == b"data: 1\n\n"
    assert splitter.feed(b"2\n") == b""
    assert splitter.feed(b"\ndata: 3") == b"data: 2\n\n"
    assert splitter.rest() == b"data: 3\n\n"
    assert splitter.rest() == b""


def test_the_raw_events_concatenate_to_the_block() -> None:
    block = b": ping\n\ndata: 1\n\n\nevent: x\ndata: 2\r\n\r\ndata: 3\r\rdata: 4"
    assert b"".join(event.raw for event in events(block)) == block
    assert data_of(block) == [b"1", b"2", b"3", b"4"]


def test_comments_and_other_fields_have_no_data() -> None:
    block = b": OPENROUTER PROCESSING\n\nevent: ping\nid: 7\nretry: 10\n\ndata:\n\n"
    assert [event.data for event in events(block)] == [b"", b"", b""]


def test_data_lines_are_joined_and_lose_one_leading_space() -> None:
    assert data_of(b"data: a\ndata:b\ndata:  c\ndata\n\n") == [b"a\nb\n c\n"]


def test_a_byte_order_mark_before_the_first_event_is_ignored() -> None:
    assert data_of(b"\xef\xbb\xbfdata: 1\n\n") == [b"1"]


def test_unicode_line_separators_inside_json_end_nothing() -> None:
    text = "data: \u2028 \u2029 \x85 \x0b\n\n".encode()
    assert [event.raw for event in events(text)] == [text]


def test_a_last_event_without_its_blank_line_is_seen_at_the_end() -> None:
    for ending in (b"", b"\n", b"\r\n", b"\r"):
        assert data_of(feed_all([b"data: 1\n\n", b"data: [DONE]" + ending])) == [b"1", b"[DONE]"]


def test_what_is_left_at_the_end_can_be_followed_by_another_event() -> None:
    rest = feed_all([b"data: 1\r\n"])
    assert data_of(rest + b"data: [DONE]\n\n") == [b"1", b"[DONE]"]


def test_a_crlf_cut_in_the_middle_is_one_line_end() -> None:
    splitter = EventSplitter()
    assert splitter.feed(b"data: 1\r\n\r") == b""
    assert splitter.feed(b"\ndata: 2\r\n\r\n") == b"data: 1\r\n\r\ndata: 2\r\n\r\n"


def test_an_event_of_megabytes_arrives_whole() -> None:
    event = b"data: " + b"x" * (8 * 1024 * 1024) + b"\n\n"
    reads = [event[i : i + 65536] for i in range(0, len(event), 65536)]
    assert feed_all(reads) == event


def test_an_event_over_the_limit_is_an_invalid_response() -> None:
    splitter = EventSplitter(tail_limit_bytes=1024)
    with pytest.raises(UpstreamError) as caught:
        splitter.feed(b"data: " + b"x" * 2000)
    assert caught.value.kind is ErrorKind.INVALID_RESPONSE


lines = st.sampled_from(
    [b"data: {}", b"data: \xe2\x82\xac", b'data: {"a":"\xe2\x80\xa8"}', b": ping", b"", b"event: x", b"data:", b"id: 1"]
)
line_ends = st.sampled_from([b"\n", b"\r\n", b"\r"])
streams = st.lists(st.tuples(lines, line_ends), max_size=30).map(lambda pairs: b"".join(a + b for a, b in pairs))


@given(streams, st.lists(st.integers(0, 400)))
def test_any_cutting_of_a_stream_gives_the_same_events(stream: bytes, cuts: list[int]) -> None:
    points = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    splitter = EventSplitter()
    seen = []
    forwarded = b""
    for start, end in pairwise(points):
        block = splitter.feed(stream[start:end])
        forwarded += block
        seen += data_of(set_apart(block))
    rest = splitter.rest()
    assert set_apart(stream).startswith(set_apart(forwarded))
    assert seen + data_of(set_apart(rest)) == data_of(set_apart(stream))


@given(streams)
def test_a_block_ends_where_an_event_ends(stream: bytes) -> None:
    splitter = EventSplitter()
    block = splitter.feed(stream)
    parts = data_of(set_apart(block)) + data_of(set_apart(splitter.rest()))
    assert parts == data_of(set_apart(stream))
    assert not block or block[-1:] in b"\r\n"


@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["lf", "crlf"])
def test_events_that_a_server_sends_without_a_blank_line_between_are_set_apart(end: bytes) -> None:
    lines = [b'data: {"a":{}}', b'data:{"b":1}', b"data: [DONE]"]
    block = end.join(lines) + 2 * end
    assert [event.data for event in events(set_apart(block))] == [b'{"a":{}}', b'{"b":1}', b"[DONE]"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("size", [1, 7, 4096])
def test_events_of_a_server_that_sends_no_blank_lines_come_when_the_next_one_begins(end: bytes, size: int) -> None:
    data = [b'{"a":"%d"}' % number for number in range(2 * MOST_LINES)]
    stream = end.join([*(b"data: " + each for each in data), b"data: [DONE]", b""])
    splitter, found = EventSplitter(), []
    for at in range(0, len(stream), size):
        found += [event.data for event in events(set_apart(splitter.feed(stream[at : at + size])))]
        assert splitter.held_bytes < 64
    assert found == data
    assert data_of(splitter.rest()) == [b"[DONE]"]


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(b'data: {\ndata: "a": [{},\ndata: {}\ndata: ]}\n\n', id="one object over several lines"),
        pytest.param(b'data: {"a":"}\\ndata: {"}\n\ndata: {}\n\n', id="a text that looks like it"),
        pytest.param(b"data: one\ndata: two\n\n", id="no JSON"),
    ],
)
def test_an_event_of_several_lines_stays_one(block: bytes) -> None:
    assert set_apart(block) is block or set_apart(block) == block
    assert feed_all([block[at : at + 1] for at in range(len(block))]) == block


def test_lines_without_a_blank_line_between_stay_one_event_where_the_server_sends_blank_lines() -> None:
    splitter = EventSplitter(are_apart=True)
    block = b'data: {"row":1}\ndata: {"row":2}\n\n'
    assert b"".join(splitter.feed(block[at : at + 1]) for at in range(len(block))) == block
