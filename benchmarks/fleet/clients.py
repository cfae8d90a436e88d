"""The clients: streaming calls over bare HTTP/1.1 connections, timed from when they were due to their first token."""

import asyncio
import re
import time
from collections.abc import Sequence
from random import Random

import msgspec

from benchmarks.fleet.provider import TOKENS
from benchmarks.harness.client_connection import TOKEN_MARK, Connections, NothingReceived, Refused
from benchmarks.harness.gateways import PATH
from benchmarks.harness.load import rendered

CALL_LIMIT_S = 60.0
TRIES = 2  # as the SDKs do: once more, when nothing was received

_HEADER = re.compile(rb"^x-holeshot-([a-z-]+): *([^\r]+)\r$", re.IGNORECASE | re.MULTILINE)


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


class Clients:
    """Any number of clients, who keep their connections to any number of servers."""

    def __init__(self, random: Random) -> None:
        self._connections = Connections()
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
        self._connections.close()

    async def _try(self, port: int, request: bytes, answer: Answer, due_at: float) -> None:
        connection = await self._connections.take(port)
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
            self._connections.keep(port, connection)
        else:
            connection.abort()


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
    messages = [{"role": "user", "content": prompt}]
    return rendered(PATH, {"model": model, "user": f"fleet-{number}", "stream": True, "messages": messages})
