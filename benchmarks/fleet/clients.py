"""The clients: streaming calls over bare HTTP/1.1 connections, timed from when they were due to their first token."""

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import cast

import msgspec

from benchmarks.fleet.provider import TOKENS

TOKEN_MARK = b'"delta":{"content":'  # once per token; the role-only chunk has other fields before it
CALL_LIMIT_S = 60.0
TRIES = 2  # as the SDKs do: once more, when nothing was received

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_HEADER = re.compile(rb"^x-holeshot-([a-z-]+): *([^\r]+)\r$", re.IGNORECASE | re.MULTILINE)
_LAST_CHUNK = b"\r\n0\r\n\r\n"


class Answer(msgspec.Struct):
    """What came of one call. Times are seconds since it was due."""

    status: int | None = None  # None: no answer at all
    whole: bool = False  # every token and the end
    ttft_s: float | None = None
    total_s: float | None = None
    tries: int = 1
    refused: int = 0  # of these: nobody listened
    launched: int | None = None  # attempts, as the gateway says
    overhead_ms: float | None = None  # likewise


class NothingReceived(Exception):
    """The connection could not be made, or was closed before the first byte."""


class Connection(asyncio.Protocol):
    """One connection to one server, one call after the other."""

    def __init__(self, dropped: Callable[["Connection"], None]) -> None:
        self._dropped = dropped
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._ended: asyncio.Future[None] | None = None
        self.first_token_at: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class is none of asyncio's

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self._transport = None
        self._dropped(self)
        self._end()

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        if self.first_token_at is None and TOKEN_MARK in received:
            self.first_token_at = time.perf_counter()
        head_end = received.find(b"\r\n\r\n")
        if head_end < 0:
            return
        length = _LENGTH.search(received, 0, head_end)
        if received.endswith(_LAST_CHUNK) if length is None else len(received) >= head_end + 4 + int(length[1]):
            self._end()

    async def exchange(self, request: bytes) -> bytes:
        """Send a request and return all that came: the whole response, or what there was before it broke off.

        Raises:
            NothingReceived: there was nothing.

        """
        self._received.clear()
        self.first_token_at = None
        if self._transport is None:
            raise NothingReceived
        self._ended = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        await self._ended
        if not self._received:
            raise NothingReceived
        return bytes(self._received)

    def abort(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.abort()

    def _end(self) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)


class Refused(NothingReceived):
    """Nobody listens there."""


class Clients:
    """Any number of clients, who keep their connections to any number of servers."""

    def __init__(self, random: Random) -> None:
        self._idle: dict[int, list[Connection]] = {}
        self._random = random

    async def call(self, ports: Sequence[int], model: str, number: int, prompt: str, due_at: float) -> Answer:
        """Make a call to any of the servers on ``ports``; when that one is away, to another."""
        request = _request(model, number, prompt)
        answer = Answer()
        chosen = self._random.sample(ports, min(TRIES, len(ports)))
        for each in range(TRIES):
            answer.tries = each + 1
            try:
                async with asyncio.timeout(CALL_LIMIT_S):
                    await self._try(chosen[each % len(chosen)], request, answer, due_at)
            except (NothingReceived, TimeoutError) as failure:
                answer.refused += isinstance(failure, Refused)
                continue
            break
        return answer

    def close(self) -> None:
        """Close every connection."""
        for connection in [each for idle in self._idle.values() for each in idle]:
            connection.abort()

    async def _try(self, port: int, request: bytes, answer: Answer, due_at: float) -> None:
        idle = self._idle.setdefault(port, [])
        connection = idle.pop() if idle else await self._connect(port, idle)
        try:
            received = await connection.exchange(request)
        except asyncio.CancelledError:
            connection.abort()
            raise
        _read(received, answer)
        answer.total_s = time.perf_counter() - due_at
        if connection.first_token_at is not None:
            answer.ttft_s = connection.first_token_at - due_at
        if answer.whole:
            idle.append(connection)
        else:
            connection.abort()

    async def _connect(self, port: int, idle: list[Connection]) -> Connection:
        def dropped(connection: Connection) -> None:
            if connection in idle:
                idle.remove(connection)

        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: Connection(dropped), "127.0.0.1", port
            )
        except OSError as error:
            raise Refused from error
        return connection


def _read(received: bytes, answer: Answer) -> None:
    head, _, body = received.partition(b"\r\n\r\n")
    answer.status = int(head[9:12])
    answer.whole = answer.status == 200 and body.count(TOKEN_MARK) == TOKENS and b"data: [DONE]" in body
    fields = {name.lower(): value.decode() for name, value in _HEADER.findall(head + b"\r\n")}
    if b"launched" in fields:
        answer.launched = int(fields[b"launched"])
    if b"overhead-ms" in fields:
        answer.overhead_ms = float(fields[b"overhead-ms"])


def _request(model: str, number: int, prompt: str) -> bytes:
    body = msgspec.json.encode(
        {
            "model": model,
            "user": f"fleet-{number}",
            "stream": True,
            "messages": [{"role": "user", "content": prompt}],
        }
    )
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
