"""The frames of a WebSocket, by hand: what is not valid, too large or too slow, and a client that does not read."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.api import responses_socket
from providers.simulator import Delta, Finish, Hang, RoleOnly
from tests.app.gateway.responses.test_responses_socket import PATH, connected
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve
from tests.patience import until


@asynccontextmanager
async def raw(running: RunningGateway) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = running.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"GET {PATH} HTTP/1.1\r\nhost: {host}\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\n"
        "sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        "sec-websocket-extensions: permessage-deflate\r\n\r\n".encode()
    )
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 ")
    assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head
    assert b"extensions" not in head
    try:
        yield reader, writer
    finally:
        writer.close()


def frame(payload: bytes, *, opcode: int = 1, final: bool = True, mask: bytes = b"abcd", bits: int = 0) -> bytes:
    length = (
        bytes((0x80 | len(payload),)) if len(payload) < 126 else bytes((0x80 | 126,)) + len(payload).to_bytes(2, "big")
    )
    masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
    return bytes((bits | opcode | (0x80 if final else 0),)) + length + mask + masked


async def received(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    first, length = await reader.readexactly(2)
    if length == 126:
        length = int.from_bytes(await reader.readexactly(2), "big")
    elif length == 127:
        length = int.from_bytes(await reader.readexactly(8), "big")
    return first & 0x0F, await reader.readexactly(length)


async def close_code(reader: asyncio.StreamReader) -> int:
    opcode, payload = await received(reader)
    assert opcode == 8
    return int.from_bytes(payload[:2], "big")


SMALL = {"max_body_mb": 0.001}  # 1,048 bytes


async def test_a_frame_over_the_limit_closes_by_its_declared_length(serve: Serve) -> None:
    async with serve(config=SMALL) as running, raw(running) as (reader, writer):
        writer.write(bytes((0x81, 0xFF)) + (2**40).to_bytes(8, "big") + b"abcd")
        assert await close_code(reader) == 1009


async def test_fragments_count_together(serve: Serve) -> None:
    async with serve(config=SMALL) as running, raw(running) as (reader, writer):
        writer.write(frame(b"x" * 600, final=False) + frame(b"y" * 600, opcode=0, final=False))
        assert await close_code(reader) == 1009


_CREATE = b'{"type":"response.create","model":"llama","input":"%b"%b}'


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xe2\x82", b"\xc0\x80", b"\xed\xa0\x80"])
async def test_bytes_that_are_no_text_end_their_message_alone(serve: Serve, bad: bytes) -> None:
    messages = [
        bad,
        b'{"type":"%b"}' % bad,
        b'{"%b":1}' % bad,
        b'{"type":"response.cancel","stream_id":"%b"}' % bad,
        _CREATE % (b"Hi" + bad, b""),
        _CREATE % (b"Hi", b',"metadata":{"%b":""}' % bad),
    ]
    async with serve(alpha=[RoleOnly(), Delta("a"), Hang()]) as running, raw(running) as (reader, writer):
        writer.write(frame(_CREATE % (b"runs", b',"stream_id":"other"')))
        while b'"response.output_text.delta"' not in (await received(reader))[1]:
            pass
        for message in messages:
            half = len(message) // 2  # also within a character
            writer.write(frame(message[:half], final=False) + frame(message[half:], opcode=0))
        for _ in messages:
            opcode, told = await received(reader)
            assert (opcode, b"UTF-8" in told) == (1, True)
        writer.write(frame(b'{"type":"response.cancel","stream_id":"other"}'))
        assert b'"response_cancelled"' in (await received(reader))[1]
    assert running.requests == 1


async def test_a_message_in_fragments_is_one_with_a_ping_between_them(serve: Serve) -> None:
    message = b'{"type":"no-such-type"}'
    sent = frame(message[:5], final=False) + frame(b"hey", opcode=9) + frame(b"", opcode=0, final=False)
    async with serve() as running, raw(running) as (reader, writer):
        for byte in sent + frame(message[5:], opcode=0, mask=b"\x00\xff\x10\x7f"):
            writer.write(bytes((byte,)))
            await writer.drain()
        assert await received(reader) == (10, b"hey")
        opcode, told = await received(reader)
        writer.write(frame((1000).to_bytes(2, "big"), opcode=8))
        assert (opcode, await close_code(reader), await reader.read()) == (1, 1000, b"")
    assert b"no-such-type" in told


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (bytes((0x81, 2)) + b"{}", 1002),  # not masked
        (frame(b"{}", bits=0x40), 1002),  # compressed
        (frame(b"{}", opcode=3), 1002),
        (frame(b"{}", opcode=0), 1002),  # continues nothing
        (frame(b"{", final=False) + frame(b"}"), 1002),  # does not continue
        (frame(b"", opcode=9, final=False), 1002),
        (frame(b"x" * 126, opcode=9), 1002),
        (frame(b"", opcode=9) * 3000, 1008),
    ],
)
async def test_frames_that_are_not_valid_close_the_connection(serve: Serve, sent: bytes, code: int) -> None:
    async with serve() as running, raw(running) as (reader, writer):
        writer.write(sent)
        while (found := await received(reader))[0] == 10:
            pass
        assert (found[0], int.from_bytes(found[1][:2], "big")) == (8, code)
        assert await reader.read() == b""


async def test_messages_that_came_with_the_handshake_are_read(serve: Serve) -> None:
    async with serve() as running:
        host, _, port = running.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            f"GET {PATH} HTTP/1.1\r\nhost: {host}\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
            "sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
            + frame(b"{}")
        )
        await reader.readuntil(b"\r\n\r\n")
        opcode, told = await received(reader)
        writer.close()
    assert (opcode, b"response.create" in told) == (1, True)


async def test_much_may_be_sent_beside_a_running_turn(serve: Serve) -> None:
    async with serve(alpha=[RoleOnly(), Delta("a"), Hang()]) as running, connected(running) as socket:
        await socket.create()
        await socket.until("response.output_text.delta")
        for number in range(4):
            await socket.create("x" * 300_000, stream_id=f"s{number}")
        for _ in range(4):
            await socket.until("response.output_text.delta")


async def test_a_client_that_does_not_read_stalls_only_itself_and_is_cut(serve: Serve) -> None:
    config = {"client_timeouts": {"write_timeout_s": 0.2}}
    async with serve(alpha=None, config=config) as running:
        running["alpha"].once([RoleOnly(), *[Delta("x" * 8192)] * 2400])
        async with raw(running) as (reader, writer):
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(frame(json.dumps({"type": "response.create", "model": MODEL, "input": "Hi"}).encode()))
            await running["alpha"].requested.wait()
            async with connected(running) as other:
                await other.turn()
            await running["alpha"].reach(disconnects_mid_stream=1)
        rows = await running.rows("select status_code, error_kind from calls order by status_code")
    assert [(row["status_code"], row["error_kind"]) for row in rows] == [(200, None), (499, "client_stalled")]


async def test_a_cancelled_turn_of_a_client_that_reads_slowly_takes_no_other_with_it(serve: Serve) -> None:
    async with serve(alpha=None) as running, raw(running) as (reader, writer):
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        provider = running["alpha"]
        for name in ("one", "two"):
            provider.once([RoleOnly(), *[Delta("x" * 8192)] * 1200, Delta("end"), Finish("stop")])
            create = {"type": "response.create", "stream_id": name, "model": MODEL, "input": name}
            writer.write(frame(json.dumps(create).encode()))
        await provider.reach(requests=2)
        [connection] = running.connections._all
        await until(lambda: connection.writing_paused)
        for _ in range(1000):  # until both turns wait for the client
            await asyncio.sleep(0)
        writer.write(frame(b'{"type":"response.cancel","stream_id":"one"}'))
        await provider.reach(disconnects_mid_stream=1)
        reader._transport.resume_reading()  # type: ignore[attr-defined]
        while b'"response.completed"' not in (told := (await received(reader))[1]):
            pass
    assert told.endswith(b'"stream_id":"two"}')


async def test_a_message_that_comes_too_slowly_closes_the_connection(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responses_socket, "PING_S", 0.01)
    config = {"client_timeouts": {"body_timeout_s": 0.05}}
    async with serve(config=config) as running, raw(running) as (reader, writer):
        writer.write(frame(b'{"type":', final=False))
        while (found := await received(reader))[0] == 9:
            pass
    assert (found[0], int.from_bytes(found[1][:2], "big")) == (8, 1008)
