"""Header blocks: what a request's looks like on the wire, and which of a response's can be read."""

from collections.abc import Mapping

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jh2._hazmat import Decoder  # type: ignore[import-untyped]  # ships its types without the marker

from providers.http import Head, HttpRequest, frames
from providers.http.frames import Code, ConnectionFault
from providers.http.message import Field

# RFC 7541, C.6.1 without its last field: a Huffman-coded response.
HUFFMAN = bytes.fromhex("48 82 6402 58 85 aec3771a4b 61 96 d07abe941054d444a8200595040b8166e082a62d1bff")
HUFFMAN_FIELDS = [
    (b":status", b"302"),
    (b"cache-control", b"private"),
    (b"date", b"Mon, 21 Oct 2013 20:13:21 GMT"),
]


def request_block(extra: list[Field], body: bytes | None = None, headers: Mapping[str, str] | None = None) -> bytes:
    head = Head("POST", "https", "a.b", "/", headers or {}, absolute=False)
    return frames.request_block(HttpRequest(head, extra, body))


def test_a_request_is_literals_that_no_table_keeps() -> None:
    block = request_block([(b"x", b"y")], b"abc", {"accept": "*/*", "user-agent": "me"})
    literals = b"\x01\x03a.b" + b"\x84" + b"\x0f\x04\x03*/*" + b"\x0f\x2b\x02me" + b"\x00\x01x\x01y" + b"\x0f\x0d\x013"
    assert block == b"\x83\x87" + literals


@pytest.mark.parametrize("name", ["authorization", "x-api-key", "api-key", "cookie"])
def test_secrets_are_never_indexed_on_any_way(name: str) -> None:
    fields = Decoder().decode(request_block([], headers={name: "k"}), raw=True)
    assert (name.encode(), b"k", True) in fields


@pytest.mark.parametrize("name", [b"Connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"])
@pytest.mark.parametrize("other", [b"host", b"te", b"content-length"])
def test_what_belongs_to_a_connection_is_not_sent(name: bytes, other: bytes) -> None:
    assert request_block([(name, b"x"), (other, b"x"), (b"X-Kept", b"1")]).endswith(b"\x84\0\x06x-kept\x011")


@given(st.lists(st.tuples(st.from_regex(rb"[a-z0-9_-]{1,300}", fullmatch=True), st.binary(max_size=20_000))))
def test_any_field_arrives_as_it_was(fields: list[Field]) -> None:
    sent = [each for each in fields if each[0] not in {b"te", b"host", b"upgrade", b"connection"}]
    decoded = Decoder(1 << 24).decode(request_block(sent), raw=True)
    assert [(name, value) for name, value, _ in decoded[4:]] == sent


def test_huffman_is_read() -> None:
    assert frames.decoded(frames.decoder(), HUFFMAN) == HUFFMAN_FIELDS


def test_a_server_may_say_that_its_table_is_empty() -> None:
    assert frames.decoded(frames.decoder(), b"\x20\x20\x88") == [(b":status", b"200")]


def test_what_the_server_keeps_in_its_table_is_known_in_the_next_block() -> None:
    decoder = frames.decoder()
    frames.decoded(decoder, HUFFMAN)
    following = bytes.fromhex("48 83 640eff c0 bf 7e 01 62")  # another status, two fields again, a name again
    assert frames.decoded(decoder, following) == [(b":status", b"307"), *HUFFMAN_FIELDS[1:], (b":status", b"b")]


def test_a_field_may_be_far_down_in_the_table() -> None:
    decoder = frames.decoder()
    for number in range(100):
        frames.decoded(decoder, b"\x40\x01a\x02%02d" % number)
    assert frames.decoded(decoder, b"\xff\x22\x7f\x22\x01b") == [(b"a", b"00"), (b"a", b"b")]


@pytest.mark.parametrize("block", [b"\xbe", b"\xff\x80\x01", b"\x7e\x01b", b"\x0f\x80\x01\x01b"])
def test_what_the_table_does_not_hold_cannot_be_read(block: bytes) -> None:
    with pytest.raises(ConnectionFault) as fault:
        frames.decoded(frames.decoder(), block)
    assert fault.value.code == Code.COMPRESSION_ERROR


def test_a_table_that_is_emptied_holds_nothing() -> None:
    decoder = frames.decoder()
    frames.decoded(decoder, b"\x40\x01a\x01b")
    assert frames.decoded(decoder, b"\x3f\xe1\x1f\xbe") == [(b"a", b"b")]  # resized to what it was
    with pytest.raises(ConnectionFault):
        frames.decoded(decoder, b"\x20\xbe")


def test_a_small_block_does_not_grow_beyond_the_limit() -> None:
    decoder = frames.decoder()
    frames.decoded(decoder, b"\x40\x01a" + string(bytes(4000)))
    with pytest.raises(ConnectionFault) as fault:
        frames.decoded(decoder, b"\xbe" * 20)
    assert fault.value.code == Code.ENHANCE_YOUR_CALM


@pytest.mark.parametrize("end", range(1, len(HUFFMAN)))
def test_a_block_that_is_cut_off_is_refused_wherever_it_is_cut(end: int) -> None:
    field_ends = {4, 11, len(HUFFMAN)}
    decoder = frames.decoder()
    if end in field_ends:
        assert len(frames.decoded(decoder, HUFFMAN[:end])) == sorted(field_ends).index(end) + 1
    else:
        with pytest.raises(ConnectionFault) as fault:
            frames.decoded(decoder, HUFFMAN[:end])
        assert fault.value.code == Code.COMPRESSION_ERROR


@given(st.binary(max_size=60))
@example(b"\x40\x01a")
@example(b"\x00\x01a\xff\xff")
@example(b"\x0f")
@example(b"\x88\x00")
def test_no_block_makes_the_decoder_panic(block: bytes) -> None:
    try:
        fields = frames.decoded(frames.decoder(), block)
    except ConnectionFault as fault:
        assert fault.code == Code.COMPRESSION_ERROR  # noqa: PT017 - either way is right, and a panic is neither
    else:
        assert all(isinstance(part, bytes) for field in fields for part in field)


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=200), st.binary(max_size=20_000)), max_size=3), st.booleans())
def test_what_is_well_formed_is_read(fields: list[Field], indexing: bool) -> None:
    first = 0x40 if indexing else 0x10
    block = b"".join(bytes((first,)) + string(name) + string(value) for name, value in fields)
    assert frames.decoded(frames.decoder(), block) == fields


def string(text: bytes) -> bytes:
    if len(text) < 127:
        return bytes((len(text),)) + text
    rest = len(text) - 127
    digits = bytearray(b"\x7f")
    while rest > 127:
        digits.append(rest % 128 + 128)
        rest //= 128
    return bytes(digits) + bytes((rest,)) + text
