"""Chunked bodies with much framing: bounded, parsed in slices, and gone from memory when their connection is."""

import asyncio
import gc
import re
import socket
from pathlib import Path

import msgspec
import pytest

from gateway.core.errors import TooMuchFraming
from gateway.server.connection import Connection
from gateway.server.framing import BURST_S, BYTES_PER_S, FREE_BYTES, SLICE_BYTES, Framing, FramingPace
from tests.app.gateway.connections.test_bodies import BODY, CLIENTS, KEY, answered, head, socket_to
from tests.app.gateway.running_gateway import Serve, chat_body
from tests.patience import until

KIB = 1024
CHUNKED = "transfer-encoding: chunked\r\n"
WHOLE = b"%x\r\n%b\r\n0\r\n" % (len(BODY), BODY)  # but for its trailers


def in_chunks(body: bytes, size: int, extension: bytes = b"") -> bytes:
    pieces = (body[at : at + size] for at in range(0, len(body), size))
    return b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces) + b"0\r\n\r\n"


def trailers(size: int) -> bytes:
    return (b"a: b\r\n" * size)[: size - size % 6]


def sent_whole(size: int) -> bytes:
    return msgspec.json.encode(chat_body(padding="x" * size))


HONEST = {
    "chunks of one byte": in_chunks(sent_whole(20 * KIB), 1),
    "chunks of 16 bytes": in_chunks(sent_whole(200 * KIB), 16),
    "chunks of 1 MB": in_chunks(sent_whole(4 * KIB * KIB), KIB * KIB),
    "short extensions": in_chunks(sent_whole(20 * KIB), 16, b";a=b"),
    "some trailers": WHOLE + trailers(600) + b"\r\n",
    "few bytes with a trailer": in_chunks(BODY, 8)[:-2] + b"x: " + b"y" * 8000 + b"\r\n\r\n",
}
HOSTILE = {
    "trailers": in_chunks(sent_whole(9 * KIB), 4 * KIB)[:-2] + trailers(256 * KIB),
    "long trailers": WHOLE + (b"x: " + b"y" * 4000 + b"\r\n") * 64,
    "extensions": in_chunks(sent_whole(20 * KIB), 1, b";" + b"e" * 30),
    "one endless extension": b"1;" + b"e" * 256 * KIB,
}


@pytest.mark.parametrize("body", HONEST.values(), ids=HONEST)
async def test_a_body_in_small_chunks_is_answered(serve: Serve, body: bytes) -> None:
    async with serve(config=CLIENTS) as running, socket_to(running) as (reader, writer):
        writer.write(head(KEY + CHUNKED) + body)
        assert (await answered(reader))[0] == 200


async def test_bodies_after_a_chunked_one_are_read_as_on_a_fresh_connection(serve: Serve) -> None:
    large = sent_whole(150 * KIB)
    chunked = head(KEY + CHUNKED) + in_chunks(large, 4 * KIB)
    whole = head(f"{KEY}content-length: {len(large)}\r\n") + large
    small = head(KEY + CHUNKED) + in_chunks(BODY, 100)
    async with serve(config=CLIENTS) as running, socket_to(running) as (reader, writer):
        for requests in ((chunked, whole), (chunked, chunked), (small, whole, whole), (small, chunked, chunked)):
            for request in requests:
                writer.write(request)
                status, fields = await answered(reader)
                assert status == 200
                [length] = re.findall(rb"(?i)content-length: (\d+)", fields)
                await reader.readexactly(int(length))


@pytest.mark.parametrize("at_once", [True, False], ids=["in one write", "after its head"])
@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
async def test_too_much_framing_is_refused_in_words_and_parsed_no_further(
    serve: Serve, body: bytes, *, at_once: bool
) -> None:
    async with serve(config=CLIENTS) as running, socket_to(running) as (reader, writer):
        writer.write(head(KEY + CHUNKED))
        if not at_once:
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(body)
        status, first = await answered(reader)
        said = await reader.read()
        assert (status, b"connection: close" in first.lower()) == (400, True)
        assert msgspec.json.decode(said)["error"]["code"] in {"too_much_framing", "malformed_request"}
        assert running.requests == 0


async def test_the_body_of_a_refused_request_is_not_parsed(serve: Serve) -> None:
    body = in_chunks(bytes(64 * KIB), 1)
    async with serve(config=CLIENTS) as running, socket_to(running) as (reader, writer):
        writer.write(head(CHUNKED) + body)
        assert (await answered(reader))[0] == 401
        assert b"invalid_api_key" in await reader.read()  # which ends at once
        writer.close()
        await writer.wait_closed()
        assert running.gateway.context.body_work.drained_bytes <= len(body)


async def test_requests_behind_one_another_are_answered_whatever_their_bodies(serve: Serve) -> None:
    length = f"content-length: {len(BODY)}\r\n"
    requests = [head(KEY + CHUNKED) + in_chunks(BODY, 4), head(KEY + length) + BODY] * 3
    large = sent_whole(20 * KIB)
    requests.append(head(KEY + f"content-length: {len(large)}\r\n") + large)
    requests.append(head(KEY + CHUNKED) + in_chunks(large, 700))
    async with serve(config=CLIENTS) as running, socket_to(running) as (reader, writer):
        for request in requests:  # each waits for an answer, but not for the end of the one before
            writer.write(request)
            status, first = await answered(reader)
            await reader.readexactly(int(re.search(rb"content-length: (\d+)", first.lower())[1]))  # type: ignore[index]
            assert status == 200
        writer.write(b"".join(requests[:6]))
        for _ in requests[:6]:
            status, first = await answered(reader)
            await reader.readexactly(int(re.search(rb"content-length: (\d+)", first.lower())[1]))  # type: ignore[index]
            assert status == 200


def memory_mb() -> float:
    return int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / KIB  # type: ignore[index]


CUT = [
    head(CHUNKED) + WHOLE + trailers(24 * KIB),
    head(KEY + CHUNKED) + WHOLE + trailers(24 * KIB),
    head(KEY + CHUNKED) + b"1\r\n{\r\n" + b"nonsense" * 3000,
    head(KEY + CHUNKED) + in_chunks(BODY, 1, b";" + b"e" * 30),
    head(KEY + f"content-length: {KIB * KIB}\r\n") + bytes(16 * KIB),
    b"GET /health/live HTTP/1.1\r\nhost: h\r\n" + (b"x: " + b"y" * 4000 + b"\r\n") * 9,
    b"GET /health/live HTTP/1.1\r\nhost: h\r\n\r\n" * 1800,
    b"nonsense" * 2000,
    b"POST / HTTP/1.1\r\nx: ",
    b"",
]


async def test_cut_connections_leave_nothing_for_the_collector(serve: Serve) -> None:
    loop = asyncio.get_running_loop()
    async with serve(config=CLIENTS) as running:
        port = int(running.url.rpartition(":")[2])

        async def one(sent: bytes) -> None:
            with socket.socket() as wire:
                wire.setblocking(False)  # noqa: FBT003 - its only argument
                try:
                    await loop.sock_connect(wire, ("127.0.0.1", port))
                    await loop.sock_sendall(wire, sent)
                    wire.shutdown(socket.SHUT_WR)
                    while await loop.sock_recv(wire, 64 * KIB):
                        pass
                except ConnectionError:
                    pass

        async def many(number: int) -> None:
            for _ in range(number // len(CUT) // 5):
                await asyncio.gather(*(one(sent) for sent in CUT * 5))

        await many(500)
        gc.collect()
        gc.disable()
        try:
            before = memory_mb()
            await many(2_000)
            await until(lambda: not len(running.connections))
            assert memory_mb() - before <= 10
            assert sum(isinstance(each, Connection) for each in gc.get_objects()) < len(CUT) * 5
        finally:
            gc.enable()


class Body:
    """As far as it was parsed."""

    total_bytes = 0

    def is_eof(self) -> bool:
        return False

    def set_exception(self, exc: BaseException) -> None:
        raise exc


def test_framing_counts_what_is_no_body() -> None:
    body = Body()
    framing = Framing(body)
    body.total_bytes, framing.unseen = 100, 600
    assert framing.count() == 500
    assert framing.slice_bytes == SLICE_BYTES
    body.total_bytes, framing.unseen = 100 + SLICE_BYTES, SLICE_BYTES
    assert framing.count() == 0
    assert framing.slice_bytes == 2 * SLICE_BYTES
    framing.unseen = FREE_BYTES
    assert framing.count() == FREE_BYTES
    framing.unseen = 1
    with pytest.raises(TooMuchFraming, match="trailers"):
        framing.count()


def test_all_connections_together_parse_framing_at_a_pace() -> None:
    now_s = 100.0
    pace = FramingPace(lambda: now_s)
    assert pace.delay_s() == 0
    pace.add(BYTES_PER_S)
    assert pace.delay_s() == 1
    now_s += 1 - BURST_S
    assert pace.delay_s() == 0
