"""A crowd: many calls that arrive in one instant. The first are sent upstream before the last have begun."""

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from gateway.connections.connection import GROUP
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, chat_body

CROWD = 300
REQUEST_BODY = msgspec.json.encode(chat_body())
REQUEST = (
    "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    f"content-length: {len(REQUEST_BODY)}\r\n\r\n"
).encode() + REQUEST_BODY
LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


class Line:
    """A client's connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def status(self) -> int:
        """Return the status of the next whole answer."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = LENGTH.search(head)
        assert length is not None
        await self._reader.readexactly(int(length[1]))
        return int(head.split(b" ", 2)[1])


async def lines(running: RunningGateway, number: int) -> Sequence[Line]:
    """Return so many open connections, none of which has made a call yet."""
    host, _, port = running.url.removeprefix("http://").partition(":")
    made = [Line(*await asyncio.open_connection(host, int(port))) for _ in range(number)]
    while len(running.connections) < number:  # noqa: ASYNC110 - nobody else is told
        await asyncio.sleep(0)
    return made


async def call_together(made: Sequence[Line]) -> Sequence[int]:
    """Send a request over each in the same turn of the loop; return the statuses of all answers."""
    for each in made:
        each.writer.write(REQUEST)
    return await asyncio.gather(*(each.status() for each in made))


def crowd_settings(**race: Any) -> dict[str, Any]:
    """Settings for a crowd from one address, which is no overload here."""
    return {
        "connections": {"max_per_address": 10_000},
        "overload": {"loop_delay_ms": 0},
        "models": {MODEL: {"race": race}},
    }


async def close(made: Sequence[Line]) -> None:
    for each in made:
        each.writer.close()


async def test_the_calls_of_a_crowd_begin_in_groups_and_each_is_answered(serve: Serve) -> None:
    async with serve(alpha=None, beta=None, config=crowd_settings()) as running:
        made = await lines(running, CROWD)
        server, begun = running.connections._server, list[int]()

        async def count() -> None:
            """Note in each turn how many requests have begun in it."""
            before = server.requests_count
            while before < CROWD:
                await asyncio.sleep(0)
                begun.append(server.requests_count - before)
                before = server.requests_count

        async def begun_when_the_first_is_sent() -> int:
            await running["alpha"].requested.wait()
            return server.requests_count

        counting, sent = asyncio.create_task(count()), asyncio.create_task(begun_when_the_first_is_sent())
        assert await call_together(made) == [200] * CROWD
        await counting
        assert await sent < CROWD
        assert max(begun) <= 2 * GROUP  # a group, and those that are read in the same turn
        assert running.gateway.context.intake.in_flight == 0
        await close(made)


async def test_a_client_that_leaves_while_its_call_waits_to_begin_holds_up_nobody(serve: Serve) -> None:
    async with serve(alpha=None, config=crowd_settings()) as running:
        made = await lines(running, CROWD)
        staying, leaving = made[::2], made[1::2]
        for each in made:
            each.writer.write(REQUEST)
        for each in leaving:
            each.writer.transport.abort()
        assert await asyncio.gather(*(each.status() for each in staying)) == [200] * len(staying)
        while len(running.connections) > len(staying):  # noqa: ASYNC110 - nobody else is told
            await asyncio.sleep(0)
        assert not running.connections.arrivals.waiting
        assert await call_together(staying) == [200] * len(staying)
        await close(staying)
