"""Calls that are refused straight from their connection, before a request is made of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from gateway.server.fast_refusal import AWAITED_BYTES
from tests.app.gateway.limits.test_overload import ASKED, CHAT, CLOSING, ask, empty, full, limited
from tests.app.gateway.running_gateway import RunningGateway, Serve, chat_body
from tests.patience import until


class Line:
    """A connection over which a test writes what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def status(self) -> int:
        """Return the status of the next whole answer."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        await self.reader.readexactly(int(fields[b"content-length"]))
        return int(head.split(b" ", 2)[1])


@asynccontextmanager
async def line(running: RunningGateway) -> AsyncIterator[Line]:
    host, _, port = running.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Line(reader, writer)
    finally:
        writer.close()
        await writer.wait_closed()


def request(body: bytes = msgspec.json.encode(chat_body()), **fields: str) -> tuple[bytes, bytes]:
    """Return the head and the body of a chat request."""
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    head = f"POST {CHAT} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n{more}"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode(), body


async def test_a_refused_connection_goes_on_and_is_served_when_there_is_room(serve: Serve) -> None:
    go = asyncio.Event()
    async with full(serve, go, limited(queue=0)) as running, line(running) as wire:
        for _ in range(3):
            wire.writer.write(b"".join(request()))
            assert await wire.status() == 503
        go.set()
        await empty(running)
        wire.writer.write(b"".join(request()))
        assert await wire.status() == 200
        assert len(running.connections) >= 1


async def test_a_body_that_comes_after_its_head_is_awaited(serve: Serve) -> None:
    async with full(serve, asyncio.Event(), limited(queue=0)) as running, line(running) as wire:
        head, body = request()
        for _ in range(2):
            wire.writer.write(head[:40])
            await until(lambda: any(each.head_bytes == 40 for each in running.connections._all))
            wire.writer.write(head[40:])
            await until(lambda: any(each.head_bytes == len(head) for each in running.connections._all))
            wire.writer.write(body)
            assert await wire.status() == 503
        assert not any(each.awaits_head for each in running.connections._all)


async def test_a_body_that_is_awaited_when_room_is_made_is_answered(serve: Serve) -> None:
    go = asyncio.Event()
    async with full(serve, go, limited(queue=0)) as running, line(running) as wire:
        head, body = request()
        wire.writer.write(head)
        await until(lambda: any(each.head_bytes == len(head) for each in running.connections._all))
        go.set()
        await empty(running)
        wire.writer.write(body[:10])
        wire.writer.write(body[10:])
        assert await wire.status() == 200


async def test_a_long_body_and_one_that_expects_to_be_asked_for_are_refused_by_the_handler(serve: Serve) -> None:
    async with full(serve, asyncio.Event(), limited(queue=0)) as running:
        for head, body in (request(b"x" * (AWAITED_BYTES + 1)), request(expect="100-continue")):
            async with line(running) as wire:
                wire.writer.write(head)
                assert await wire.status() == 503
                wire.writer.write(body)


async def test_requests_that_come_together_are_each_refused_in_turn(serve: Serve) -> None:
    async with full(serve, asyncio.Event(), limited(queue=0)) as running, line(running) as wire:
        wire.writer.write(b"".join(request()) * 3)
        assert [await wire.status() for _ in range(3)] == [503] * 3


async def test_most_refusals_cost_no_task_and_no_handler(serve: Serve) -> None:
    async with full(serve, asyncio.Event(), limited(queue=0)) as running:
        handled = running.connections._server.requests_count
        for path in ASKED:
            await ask(running, path)
        assert running.connections._server.requests_count == handled
        await ask(running, CHAT, CLOSING)
        assert running.connections._server.requests_count == handled + 1


async def test_who_is_refused_at_the_door_gets_what_the_handler_would_say(serve: Serve) -> None:
    async with full(serve, asyncio.Event(), limited(queue=0)) as running:
        for path in ASKED:
            replies = [await ask(running, path, headers) for headers in ({}, CLOSING)]
            for each in replies:
                for changing in ("date", "connection", "retry-after", "content-length"):
                    each.headers.pop(changing, None)
                each.body["error"]["message"] = each.body["error"]["message"].rpartition(" in ")[0]
            assert replies[0] == replies[1]
