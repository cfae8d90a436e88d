"""What a provider may send in a stream beside its answer is bounded."""

import pytest

from providers.bodies import MOST_SILENT_BYTES, Event, EventSplitter, Masking, events, silent_bytes
from providers.bodies.sse import MOST_LINES, MOST_MASKED
from providers.refusals import ErrorKind, UpstreamError

SECRET = "own-secret-key-of-ours"
LINE_ENDS = [b"\n", b"\r\n", b"\r"]


@pytest.mark.parametrize("line_end", LINE_ENDS)
def test_an_event_has_a_thousand_lines_at_most(line_end: bytes) -> None:
    fits = (b"data: 1" + line_end) * MOST_LINES + line_end
    assert len(events(fits)[0].data) == 2 * MOST_LINES - 1
    with pytest.raises(UpstreamError, match="more than 1000 lines") as told:
        events(b"data: 1" + line_end + fits)
    assert told.value.kind is ErrorKind.INVALID_RESPONSE


@pytest.mark.parametrize("line_end", LINE_ENDS)
def test_an_event_of_many_lines_is_noticed_before_it_is_complete(line_end: bytes) -> None:
    splitter = EventSplitter()
    for _ in range(MOST_LINES + 1):
        splitter.feed(b"data: 1" + line_end)
    splitter.feed(b"data: 1")
    with pytest.raises(UpstreamError, match="more than 1000 lines"):
        splitter.feed(line_end)


def test_many_events_that_are_cut_by_reads_are_no_event_of_many_lines() -> None:
    splitter = EventSplitter()
    block = b"".join(splitter.feed(b": 1\n\ndata: " if n % 2 else b"2\n\n") for n in range(5 * MOST_LINES))
    assert len(events(block)) == 5 * MOST_LINES


def test_comments_end_a_stream_after_a_mebibyte() -> None:
    masking = Masking([SECRET])
    comment = Event(b":" + b"x" * 1021 + b"\n\n", b"")
    for _ in range(MOST_SILENT_BYTES // 1024):
        assert masking.masked(comment) is comment
    with pytest.raises(UpstreamError, match="more than 1 MiB of comments"):
        masking.masked(comment)


def test_only_what_has_no_data_counts_as_a_comment() -> None:
    assert silent_bytes(b": a\n\ndata: b\n: c\n\nid: 1\n\n") == len(b": a\n\nid: 1\n\n")
    assert silent_bytes(b"data: a\n\nevent: b\ndata: c\n\n") == 0


def test_a_stream_full_of_keys_shows_none_of_them() -> None:
    masking = Masking([SECRET])
    raw = f"id: sk-abcdefgh12345\nevent: {SECRET}\ndata: 1\n\n".encode()
    shown = [masking.masked(events(raw)[0]) for _ in range(3 * MOST_MASKED)]
    assert all(b"sk-a" not in each.raw and SECRET.encode() not in each.raw for each in shown)
    assert {each.data for each in shown} == {b"1"}
    assert shown[-1].raw == b"data: 1\n\n"
    error = masking.masked(events(b"event: error\ndata: " + SECRET.encode() + b"\n\n")[0])
    assert SECRET.encode() not in error.raw


@pytest.mark.parametrize("fields", [b"id: 7", b"id: a-b\nevent: x.y", b"event: x\nretry: 5", b": hello"])
def test_fields_without_keys_pass_as_they_are_however_many_there_are(fields: bytes) -> None:
    masking = Masking([SECRET])
    event = events(fields + b"\r\ndata: {}\r\n\r\n")[0]
    assert all(masking.masked(event) is event for _ in range(3 * MOST_MASKED))
