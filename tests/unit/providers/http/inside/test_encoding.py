"""Compressed bodies: whatever way they are cut, whatever they unpack to, and broken."""

import asyncio
import gzip
import zlib

import pytest

from providers.http import Response, decoded
from providers.http.encoding import DecodedResponse
from providers.refusals import ErrorKind, UpstreamError

MIB = 1024 * 1024
TEXT = b'data: {"choices":[]}\n\n' * 200


class Nobody:
    """A source that has sent all it had."""

    def taken(self, response: Response, size: int) -> None:
        """Hear of it."""

    def widen(self, response: Response) -> None:
        """Hear of it."""

    def drop(self, response: Response) -> None:
        raise AssertionError("the response has ended")


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def small_window(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=9)
    return packer.compress(data) + packer.flush()


def begun(encoding: str) -> Response:
    response = Response(Nobody(), asyncio.get_running_loop(), None)
    response.begin(200, [(b"Content-Encoding", encoding.encode())])
    return response


def response_of(encoding: str, pieces: list[bytes]) -> Response:
    response = begun(encoding)
    for piece in pieces:
        response.feed(piece)
    response.end()
    return response


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


async def read(response: Response | DecodedResponse) -> list[bytes]:
    pieces = []
    while piece := await response.read():
        pieces.append(piece)
    assert await response.read() == b""
    return pieces


async def unpacked(encoding: str, packed: bytes, size: int = MIB) -> bytes:
    response = begun(encoding)
    body = decoded(response)
    whole = bytearray()

    async def reader() -> None:
        while piece := await body.read():
            whole.extend(piece)

    reading = asyncio.create_task(reader())
    for piece in cut(packed, size):
        await asyncio.sleep(0)
        response.feed(piece)
    response.end()
    await reading
    return bytes(whole)


@pytest.mark.parametrize("size", [1, 3, 10_000])
@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("x-gzip", gzip.compress),
        (" GZip ", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", raw_deflate),
        ("deflate", small_window),
    ],
)
async def test_a_body_is_unpacked_however_it_is_cut(encoding: str, pack: object, size: int) -> None:
    assert callable(pack)
    assert await unpacked(encoding, pack(TEXT), size) == TEXT


@pytest.mark.parametrize("encoding", ["", "identity", "Identity ", "none", "UTF-8"])
async def test_a_body_that_is_not_packed_is_left_alone(encoding: str) -> None:
    response = response_of(encoding, [TEXT])
    assert decoded(response) is response


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "compress", "x" * 1000])
async def test_an_encoding_that_was_not_offered_is_refused(encoding: str) -> None:
    with pytest.raises(UpstreamError, match="not offered") as caught:
        decoded(response_of(encoding, []))
    assert (caught.value.kind, caught.value.status) == (ErrorKind.INVALID_RESPONSE, 200)
    assert len(caught.value.message) < 120


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_an_empty_body_unpacks_to_nothing(encoding: str) -> None:
    assert await unpacked(encoding, b"") == b""


@pytest.mark.parametrize("size", [1, 10_000])
async def test_streams_one_after_the_other_are_one_body(size: int) -> None:
    packed = gzip.compress(b"one") + gzip.compress(b"") + gzip.compress(TEXT)
    assert await unpacked("gzip", packed, size) == b"one" + TEXT


async def test_a_body_is_unpacked_a_bounded_piece_at_a_time() -> None:
    bomb = gzip.compress(bytes(64 * MIB))
    assert len(bomb) < 128 * 1024
    body = decoded(response_of("gzip", [bomb]))
    sizes = [len(piece) for piece in await read(body)]
    assert max(sizes) <= MIB
    assert sum(sizes) == 64 * MIB


async def test_others_have_their_turns_while_a_bomb_is_unpacked() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count())
    await read(decoded(response_of("gzip", [gzip.compress(bytes(16 * MIB))])))
    other.cancel()
    assert turns >= 15


@pytest.mark.parametrize("beyond", range(0, 300, 13))
async def test_a_body_just_over_a_piece_is_whole(beyond: int) -> None:
    data = bytes(MIB + beyond)
    assert await unpacked("deflate", raw_deflate(data)) == data


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", b"not packed at all"),
        ("gzip", gzip.compress(TEXT)[:-1]),
        ("gzip", gzip.compress(TEXT)[:20]),
        ("gzip", gzip.compress(TEXT)[:-8] + bytes(8)),
        ("gzip", gzip.compress(TEXT) + b"more"),
        ("gzip", zlib.compress(TEXT)),
        ("deflate", zlib.compress(TEXT)[:-1]),
        ("deflate", zlib.compress(TEXT)[:-4] + b"sums"),
        ("deflate", b"\xff" * 20),
    ],
)
@pytest.mark.parametrize("size", [1, 10_000])
async def test_a_broken_body_is_an_error(encoding: str, packed: bytes, size: int) -> None:
    with pytest.raises(UpstreamError, match="broken") as caught:
        await unpacked(encoding, packed, size)
    assert caught.value.kind is ErrorKind.INVALID_RESPONSE


async def test_streams_without_end_are_an_error() -> None:
    with pytest.raises(UpstreamError, match="broken"):
        await unpacked("gzip", gzip.compress(b"") * 1000)
