"""Bodies of requests: inflated after admission and within bounds, asked for when they are wanted, drained when not."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.api.bodies import DRAINED_BYTES, PIECE_BYTES
from gateway.overload.bodies import FEWEST_UNFINISHED
from providers.simulator import Delta, Gate, Hang, RoleOnly, ScriptedProvider, answer
from tests.app.gateway.process import started
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, chat_body, configuration
from tests.patience import until

MIB = 2**20
PATH = "/v1/chat/completions"
CLIENTS: dict[str, Any] = {"clients": {"me": {"key_sha256": sha256(b"hs-mine").hexdigest()}}}
BODY = msgspec.json.encode(chat_body())
KEY = "authorization: Bearer hs-mine\r\n"


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def socket_to(
    running: RunningGateway,
) -> AbstractAsyncContextManager[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    return connected(running.url)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=16 * MIB)
    try:
        yield reader, writer
    finally:
        writer.close()


def head(fields: str, path: str = PATH) -> bytes:
    return f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n{fields}\r\n".encode()


async def answered(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return the status and the head of the next answer."""
    first = await reader.readuntil(b"\r\n\r\n")
    return int(first.split(b" ", 2)[1]), first


async def test_nothing_is_inflated_without_a_key(serve: Serve) -> None:
    bomb = gzip.compress(bytes(8 * MIB))
    async with serve(config=CLIENTS) as running:
        async with running.post(bomb, headers={"content-encoding": "gzip"}) as response:
            assert response.status == 401
        assert running.gateway.context.body_work.inflated_bytes == 0


async def test_a_bomb_is_inflated_no_further_than_the_limit(serve: Serve) -> None:
    bomb = gzip.compress(bytes(64 * MIB))
    async with serve(config={"max_body_mb": 1}) as running:
        async with running.post(bomb, headers={"content-encoding": "gzip"}) as response:
            assert response.status == 413
            assert "max_body_mb" in (await response.json())["error"]["message"]
        assert MIB < running.gateway.context.body_work.inflated_bytes <= MIB + PIECE_BYTES


async def test_inflating_takes_a_turn_of_the_loop_for_every_piece(serve: Serve) -> None:
    packed = gzip.compress(msgspec.json.encode(chat_body(padding="x" * (4 * MIB))))
    async with serve() as running:
        async with running.post(packed, headers={"content-encoding": "gzip"}) as response:
            assert response.status == 200
        assert running.gateway.context.body_work.slices >= 4 * MIB // PIECE_BYTES


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(BODY)),
        ("x-gzip", gzip.compress(BODY)),
        (" GZip", gzip.compress(BODY)),
        ("deflate", zlib.compress(BODY)),
        ("deflate", raw_deflate(BODY)),
        ("identity", BODY),
        ("utf-8", BODY),
    ],
    ids=["gzip", "x-gzip", "spelling", "zlib", "raw", "identity", "charset"],
)
async def test_what_is_packed_as_it_says_is_understood(serve: Serve, encoding: str, packed: bytes) -> None:
    async with serve() as running:
        async with running.post(packed, headers={"content-encoding": encoding}) as response:
            assert response.status == 200
        assert running["alpha"].received[0].body["messages"] == chat_body()["messages"]


@pytest.mark.parametrize(
    ("encoding", "packed", "why"),
    [
        ("gzip", b"no gzip at all", "cannot be decompressed"),
        ("gzip", gzip.compress(BODY)[:-1], "ends too early"),
        ("gzip", b"", "ends too early"),
        ("gzip", gzip.compress(BODY)[:-8] + bytes(8), "cannot be decompressed"),
        ("gzip", gzip.compress(BODY) + b"more", "data after its end"),
        ("gzip", gzip.compress(BODY[:9]) + gzip.compress(BODY[9:]), "data after its end"),
        ("deflate", zlib.compress(BODY)[:-4] + b"sums", "cannot be decompressed"),
        ("deflate", raw_deflate(BODY)[:-2], "ends too early"),
    ],
    ids=["none", "cut", "empty", "checksum", "garbage", "members", "adler", "raw cut"],
)
async def test_what_is_not_packed_as_it_says_is_400_and_told_why(
    serve: Serve, encoding: str, packed: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve() as running:
        async with running.post(packed, headers={"content-encoding": encoding}) as response:
            assert response.status == 400
            assert why in (await response.json())["error"]["message"]
        assert running.requests == 0
    assert not caplog.records


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "compress"])
async def test_other_ways_to_pack_are_415_and_told_which_are_taken(serve: Serve, encoding: str) -> None:
    async with serve() as running, running.post(b"packed", headers={"content-encoding": encoding}) as response:
        assert (response.status, response.headers["accept-encoding"]) == (415, "gzip, deflate")
        assert (await response.json())["error"]["code"] == "unsupported_media_type"


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ("content-length: 100\r\n", 401),
        (f"content-length: 100\r\ncontent-encoding: br\r\n{KEY}", 415),
        (f"content-length: {65 * MIB}\r\n{KEY}", 413),
    ],
    ids=["key", "encoding", "length"],
)
async def test_whoever_asks_to_go_on_is_refused_before_the_body(serve: Serve, fields: str, status: int) -> None:
    async with serve(config=CLIENTS) as running, socket_to(running) as (reader, writer):
        writer.write(head(f"expect: 100-continue\r\n{fields}"))
        found, first = await answered(reader)
        assert (found, b"connection: close" in first.lower()) == (status, True)


async def test_whoever_asks_to_go_on_and_may_is_told_so_once(serve: Serve) -> None:
    async with serve(config=CLIENTS) as running, socket_to(running) as (reader, writer):
        writer.write(head(f"expect: 100-continue\r\ncontent-length: {len(BODY)}\r\n{KEY}"))
        assert (await answered(reader))[0] == 100
        writer.write(BODY)
        assert (await answered(reader))[0] == 200


async def test_an_unknown_expectation_is_417(serve: Serve) -> None:
    async with serve() as running, socket_to(running) as (reader, writer):
        writer.write(head("expect: wonders\r\ncontent-length: 100\r\n"))
        assert (await answered(reader))[0] == 417


async def test_a_length_over_the_limit_is_413_before_a_byte_of_it(serve: Serve) -> None:
    async with serve(config={"max_body_mb": 1}) as running, socket_to(running) as (reader, writer):
        writer.write(head(f"content-length: {MIB + 1}\r\n"))
        assert (await answered(reader))[0] == 413


async def test_a_refused_client_that_sends_on_reads_its_answer_and_keeps_its_connection(serve: Serve) -> None:
    async with serve(config=CLIENTS) as running, socket_to(running) as (reader, writer):
        body = bytes(3 * MIB)
        writer.write(head(f"content-length: {len(body)}\r\ncontent-encoding: gzip\r\n") + body[: 2 * MIB])
        await writer.drain()
        status, first = await answered(reader)
        assert (status, b"connection: close" in first.lower()) == (401, False)
        await reader.readuntil(b"}}")
        writer.write(body[2 * MIB :] + b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert (await answered(reader))[0] == 200
        assert running.gateway.context.body_work.inflated_bytes == 0


async def test_an_endless_body_without_a_key_is_drained_for_a_while_and_cut(serve: Serve) -> None:
    chunk = b"%x\r\n%b\r\n" % (MIB, bytes(MIB))
    async with serve(config=CLIENTS) as running, socket_to(running) as (reader, writer):
        writer.write(head("transfer-encoding: chunked\r\n"))
        status, first = await answered(reader)
        assert (status, b"connection: close" in first.lower()) == (401, True)
        with suppress(ConnectionError):
            while True:
                writer.write(chunk)
                await writer.drain()
        assert DRAINED_BYTES <= running.gateway.context.body_work.drained_bytes <= DRAINED_BYTES + MIB


async def test_a_body_that_drips_is_408_in_the_apis_own_shape_and_closed(serve: Serve) -> None:
    clocks = {"client_timeouts": {"body_timeout_s": 0.2, "body_kib_per_s": 1000}}
    async with serve(config={**CLIENTS, **clocks}) as running, socket_to(running) as (reader, writer):
        writer.write(head(f"content-length: {17 * MIB}\r\nx-api-key: hs-mine\r\n", "/v1/messages"))
        for _ in range(4):
            writer.write(b" ")
        status, first = await answered(reader)
        assert (status, b"connection: close" in first.lower()) == (408, True)
        body = await reader.readuntil(b"}}")
        assert msgspec.json.decode(body)["type"] == "error"
        assert await running.rows("select * from calls") == []


async def test_a_body_that_comes_slowly_but_well_is_taken(serve: Serve) -> None:
    """Each of its pieces buys it time: ten seconds here, where the first would be too short for all."""
    clocks = {"client_timeouts": {"body_timeout_s": 0.2, "body_kib_per_s": len(BODY) / 1024 / 100}}
    async with serve(config={**CLIENTS, **clocks}) as running, socket_to(running) as (reader, writer):
        writer.write(head(f"content-length: {len(BODY)}\r\n{KEY}") + BODY[:30])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.4)
        writer.write(BODY[30:])
        assert (await answered(reader))[0] == 200


HELD: dict[str, Any] = {"clients": {"me": {"key_sha256": sha256(b"hs-mine").hexdigest(), "max_parallel": 3, "rpm": 60}}}
BOMB = gzip.compress(bytes(60 * MIB))


async def ask(running: RunningGateway, headers: dict[str, str] | None = None, **fields: Any) -> int:
    async with running.chat(headers, **fields) as response:
        await response.read()
        return int(response.status)


def is_empty(running: RunningGateway) -> bool:
    context = running.gateway.context
    return (context.bodies.size, context.bodies.unfinished, context.intake.in_flight) == (0, 0, 0)


async def test_a_client_holds_its_limits_before_its_bodies_are_read(serve: Serve) -> None:
    """Thirty bombs that never end: three are read, as the client may have three calls at the same time."""
    part = BOMB[:-20]
    async with serve(config={**HELD, "max_body_mb": 1}) as running, AsyncExitStack() as stack:
        context = running.gateway.context
        sockets = [await stack.enter_async_context(socket_to(running)) for _ in range(30)]
        for _, writer in sockets:
            writer.write(head(KEY + f"content-encoding: gzip\r\ncontent-length: {len(BOMB)}\r\n") + part[:100])
        await until(lambda: context.bodies.unfinished == 3)
        refused = [asyncio.create_task(answered(reader)) for reader, _ in sockets]
        done: set[Any] = set()
        while len(done) < 27:
            done, _ = await asyncio.wait(refused, return_when=asyncio.FIRST_COMPLETED)
        assert {each.result()[0] for each in done} == {429}
        assert context.bodies.size <= 3 * MIB
        for each in refused:
            each.cancel()
        for _, writer in sockets:
            writer.close()
        await until(lambda: is_empty(running))
        async with running.chat({"authorization": "Bearer hs-mine"}) as response:
            assert response.status == 200  # no hold has leaked


async def test_a_bad_request_counts_in_rpm_and_holds_nothing(serve: Serve) -> None:
    client = {"key_sha256": sha256(b"hs-mine").hexdigest(), "max_parallel": 1, "rpm": 3}
    async with serve(config={"clients": {"me": client}}, in_one_minute=True) as running:
        mine = {"authorization": "Bearer hs-mine"}
        found = []
        for body in (b"{", b"[]", BODY, BODY):
            async with running.post(body, headers=mine) as response:
                await response.read()
                found.append(response.status)
        assert found == [400, 400, 200, 429]


@pytest.mark.parametrize("packed", [False, True])
async def test_one_client_has_a_share_of_the_memory_for_bodies(serve: Serve, packed: bool) -> None:
    encoding = "content-encoding: gzip\r\n" if packed else ""
    config = {"clients": {name: {"key_sha256": sha256(f"hs-{name}".encode()).hexdigest()} for name in ("me", "you")}}
    async with serve(config=config) as running, AsyncExitStack() as stack:
        bodies = running.gateway.context.bodies
        bodies.most_bytes = 10 * MIB

        async def begin(name: str, size: int = 2 * MIB) -> asyncio.StreamReader:
            reader, writer = await stack.enter_async_context(socket_to(running))
            sent = gzip.compress(bytes(size))[:-1] if packed else bytes(size)
            fields = f"authorization: Bearer hs-{name}\r\n{encoding}content-length: {len(sent) + 1}\r\n"
            writer.write(head(fields) + sent)
            return reader

        mine = []
        for number in (1, 2):
            mine.append(await begin("me"))
            await until(lambda number=number: bodies.size == number * 2 * MIB)  # type: ignore[misc] # mypy sees no number
        status, _ = await answered(await begin("me"))
        assert status == 429
        await begin("you")
        await until(lambda: bodies.size == 6 * MIB)
        bodies.most_bytes = 7 * MIB + MIB // 2  # no room for the next, of a client that has less
        await begin("you", MIB + 3 * MIB // 5)
        assert (await answered(mine[0]))[0] == 503
        await until(lambda: bodies.size == 4 * MIB + MIB + 3 * MIB // 5)
        assert bodies.cut == 1
        async with running.chat({"authorization": "Bearer hs-you"}) as response:
            assert response.status == 200  # a short body needs no room
        await stack.aclose()
        await until(lambda: is_empty(running))


async def test_a_body_counts_until_its_streamed_answer_begins(serve: Serve) -> None:
    go = asyncio.Event()
    async with serve(alpha=[Gate(go), *answer("Hello")]) as running:
        bodies = running.gateway.context.bodies
        call = asyncio.create_task(ask(running, padding="x" * (MIB // 2), stream=True))
        await running["alpha"].reach(requests=1)
        assert MIB // 2 < bodies.size < MIB
        go.set()
        await call
        await until(lambda: is_empty(running))


@pytest.mark.parametrize("field", ["functions", "temperature"])
async def test_what_is_kept_of_a_body_while_its_answer_streams_counts_on(serve: Serve, field: str) -> None:
    async with serve(alpha=[RoleOnly(), Delta("Hi"), Hang()], config=CLIENTS) as running:
        bodies = running.gateway.context.bodies
        fields = {field: "y" * (MIB // 2), "metadata": {"not": "z" * (MIB // 4)}}
        async with running.chat({"authorization": "Bearer hs-mine"}, stream=True, **fields) as response:
            await response.content.readuntil(b"Hi")
            await until(lambda: MIB // 2 < bodies.size < MIB // 2 + 1000)
        await until(lambda: is_empty(running))


@pytest.mark.parametrize("stream", [False, True])
async def test_a_body_counts_while_an_audited_loser_has_it(serve: Serve, stream: bool) -> None:
    go = asyncio.Event()
    config = {"models": {MODEL: {"race": {"audit_share": 1.0}}}}
    async with serve(slow=[Gate(go), *answer("late")], fast=None, config=config) as running:
        running.prefer("slow", "fast")
        running["fast"].script = [Gate(running["slow"].requested), *answer("from fast")]
        bodies = running.gateway.context.bodies
        assert await ask(running, padding="x" * (MIB // 2), stream=stream) == 200
        await until(lambda: running.gateway.context.intake.in_flight == 0)
        assert MIB // 2 < bodies.size < MIB
        go.set()
        await until(lambda: is_empty(running))


@pytest.mark.parametrize("stream", [False, True])
async def test_a_body_counts_while_a_model_that_another_has_overtaken_runs_on_with_it(
    serve: Serve, stream: bool
) -> None:
    go = asyncio.Event()
    late = {"deployments": ["slow/m"], "fallbacks": ["other"], "fallback_after": 0.05}
    config = {"models": {MODEL: late, "other": {"deployments": ["fast/n"]}}}
    async with serve(slow=[Gate(go), *answer("late")], fast=None, config=config) as running:
        bodies = running.gateway.context.bodies
        assert await ask(running, padding="x" * (MIB // 2), stream=stream) == 200
        await until(lambda: running.gateway.context.intake.in_flight == 0)
        assert MIB // 2 < bodies.size < MIB
        go.set()
        await until(lambda: is_empty(running))


async def test_a_body_of_a_call_that_waits_for_a_seat_counts_however_short(serve: Serve) -> None:
    go = asyncio.Event()
    config = {**CLIENTS, "overload": {"max_in_flight": 1, "queue": 10, "queue_timeout_s": 60}}
    mine = {"authorization": "Bearer hs-mine"}
    async with serve(alpha=[Gate(go), *answer("Hello")], config=config) as running:
        bodies = running.gateway.context.bodies
        bodies.most_bytes = 100_000  # of which one client may have half
        calls = [asyncio.create_task(ask(running, mine))]
        await running["alpha"].reach(requests=1)
        assert bodies.size == 0  # its seat has room for it
        calls.append(asyncio.create_task(ask(running, mine, padding="x" * 40_000)))
        await until(lambda: 40_000 < bodies.size < 41_000)
        assert await ask(running, mine, padding="x" * 20_000) == 429
        go.set()
        assert await asyncio.gather(*calls) == [200, 200]
        await until(lambda: is_empty(running))


@pytest.mark.parametrize("what", ["a body", "heads"])
async def test_who_sends_much_ahead_of_an_answer_is_cut(serve: Serve, what: str) -> None:
    """Else it is read, and kept with the connection: megabytes that nobody counts."""
    line = "x: " + "y" * 8000 + "\r\n"
    ahead = head(KEY + f"content-length: {MIB}\r\n") + bytes(MIB)
    if what == "heads":
        ahead = 20 * f"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n{4 * line}\r\n".encode()
    root = {"key_sha256": sha256(b"hs-root").hexdigest(), "role": "admin"}
    config = {"clients": {**CLIENTS["clients"], "root": root}}
    async with (
        serve(alpha=[RoleOnly(), Delta("Hi"), Hang()], config=config) as running,
        socket_to(running) as (reader, writer),
    ):
        body = msgspec.json.encode(chat_body(stream=True))
        writer.write(head(f"content-length: {len(body)}\r\n{KEY}") + body)
        await reader.readuntil(b"Hi")
        writer.write(ahead)
        with pytest.raises(ConnectionError):
            await reader.read()
        await running["alpha"].reach(disconnects=1)
        await until(lambda: is_empty(running))
        async with running.get("/metrics", headers={"authorization": "Bearer hs-root"}) as response:
            assert 'connections_cut_total{reason="ahead"} 1.0' in await response.text()


async def test_a_large_request_may_follow_the_end_of_an_answer_at_once(folder: Path) -> None:
    """Its first bytes come while the gateway still tidies up after the answer, so it is a process of its own here."""
    body = msgspec.json.encode(chat_body(stream=True, padding="x" * (MIB // 3)))
    async with (
        ScriptedProvider(answer("Hello")) as alpha,
        started(configuration(folder, {"alpha": alpha.base_url}, **CLIENTS), folder) as gateway,
        connected(gateway.url) as (reader, writer),
    ):
        for _ in range(50):
            writer.write(head(f"content-length: {len(body)}\r\n{KEY}") + body)
            assert (await answered(reader))[0] == 200
            await reader.readuntil(b"\r\n0\r\n\r\n")


async def test_a_client_that_hangs_up_behind_what_it_has_sent_ahead_is_noticed(serve: Serve) -> None:
    """Of 32 requests ahead no more is read, so its end is not read either."""
    async with serve(alpha=[RoleOnly(), Delta("Hi"), Hang()], config=CLIENTS) as running:
        async with socket_to(running) as (reader, writer):
            body = msgspec.json.encode(chat_body(stream=True))
            writer.write(head(f"content-length: {len(body)}\r\n{KEY}") + body)
            await reader.readuntil(b"Hi")
            for _ in range(2):
                writer.write(40 * b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
                await writer.drain()
            [connection] = [each for each in running.connections._all if each._current_request is not None]
            await until(lambda: connection._buffer_paused)
            running.connections._cut_stalled()
            assert not connection.has_left
            assert not is_empty(running)
        await until(lambda: connection.has_left)
        running.connections._cut_stalled()
        await running["alpha"].reach(disconnects=1)
        await until(lambda: is_empty(running))


async def test_a_body_that_is_not_complete_has_no_seat(serve: Serve) -> None:
    """Others are served while as many bodies as there are seats do not end."""
    config = {**CLIENTS, "overload": {"max_in_flight": 2, "queue": 0}}
    async with serve(config=config) as running, AsyncExitStack() as stack:
        context = running.gateway.context
        sockets = [await stack.enter_async_context(socket_to(running)) for _ in range(FEWEST_UNFINISHED)]
        for _, writer in sockets:
            writer.write(head(KEY + "content-length: 100000\r\n") + b"{")
        await until(lambda: context.bodies.unfinished == FEWEST_UNFINISHED)
        assert context.intake.in_flight == 0
        async with running.chat({"authorization": "Bearer hs-mine"}) as response:
            assert response.status == 200
        reader, writer = await stack.enter_async_context(socket_to(running))
        writer.write(head(KEY + "content-length: 100000\r\n") + b"{")
        status, told = await answered(reader)
        assert (status, b"retry-after" in told) == (429, True)
        await stack.aclose()
        await until(lambda: is_empty(running))


async def test_a_body_is_refused_unread_while_the_queue_is_full(serve: Serve) -> None:
    go = asyncio.Event()
    config = {**CLIENTS, "overload": {"max_in_flight": 1, "queue": 0}}
    async with serve(alpha=[Gate(go), *answer("Hello")], config=config) as running:
        call = asyncio.create_task(ask(running, {"authorization": "Bearer hs-mine"}))
        await running["alpha"].reach(requests=1)
        async with socket_to(running) as (reader, writer):
            writer.write(head(KEY + "expect: 100-continue\r\ncontent-length: 100000\r\n"))
            assert (await answered(reader))[0] == 503
        go.set()
        await call
