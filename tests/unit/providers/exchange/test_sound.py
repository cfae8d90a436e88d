"""Where sounds begin after the headers of their containers."""

import pytest

from providers import sound_has_begun as has_begun

WAVE = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\x00\x00\x00" + bytes(16) + b"data\xff\xff\xff\xff"
TAG = b"ID3\x04\x00\x00\x00\x00\x00\x05" + b"title"


def page(body: bytes, granule: int) -> bytes:
    return b"OggS\x00\x02" + granule.to_bytes(8, "little") + bytes(12) + bytes([1, len(body)]) + body


OPUS = page(b"OpusHead" + bytes(11), 0) + page(b"OpusTags" + bytes(8), 0)
FLAC = b"fLaC\x00\x00\x00\x22" + bytes(34) + b"\x84\x00\x00\x04" + bytes(4)
WEBM = b"\x1aE\xdf\xa3" + bytes(30)
MP4 = b"\x00\x00\x00\x18ftypM4A " + bytes(40)


@pytest.mark.parametrize(
    ("header", "sound"),
    [
        (WAVE, b"\x01"),
        (TAG, b"\xff"),
        (OPUS, page(b"sound", 960)),
        (FLAC, b"\xff\xf8"),
        (WEBM, b"\x1fC\xb6u" + bytes(9)),
        (MP4, b"mdat" + bytes(9)),
        (b"", b"\xff\xfb"),
    ],
)
def test_a_header_is_no_sound_however_little_of_it_has_come(header: bytes, sound: bytes) -> None:
    assert not any(has_begun("audio/any", header[:size]) for size in range(len(header) + 1))
    assert has_begun("audio/any", header + sound)


@pytest.mark.parametrize("head", [b"ID3 first ", b"RIFF or anything else", b"half", b"\x00\x01", b"x" * 70_000])
def test_what_is_no_container_begins_at_once(head: bytes) -> None:
    assert has_begun("audio/mpeg", head)


def test_a_header_without_an_end_counts_as_sound_at_last() -> None:
    assert has_begun("audio/wav", WAVE[:-8] + bytes(70_000))


@pytest.mark.parametrize(
    ("events", "begun"),
    [
        (b'data: {"type":"speech.created"}\n\n', False),
        (b'data: {"type":"speech.audio.delta","audio":"AA"}\n\n', True),
        (b'event: transcript.text.done\ndata: {"text":""}\n\n', True),
    ],
)
def test_events_begin_with_the_first_part_of_the_sound_or_text(events: bytes, *, begun: bool) -> None:
    assert has_begun("text/event-stream; charset=utf-8", events) is begun
