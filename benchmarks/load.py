"""The load: so many calls over so many connections, every answer checked to be whole; a process of its own.

Prints one JSON object: how long each call took to its first token (streams) or its end, in milliseconds.
"""

import argparse
import asyncio
import re
import sys
from time import perf_counter
from typing import cast

import msgspec
import uvloop

from benchmarks.answers import TOKEN_MARK, is_whole_json, is_whole_stream

_LIMIT_S = 300.0
_PROMPT = "Explain to a new colleague, in plain words and about a hundred tokens, why a proxy should not be slow. " * 2
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_HEADERS_END = b"\r\n\r\n"
_LAST_CHUNK = b"\r\n0\r\n\r\n"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What to send, where, how often. ``launched`` is how many attempts a gateway must say it started."""

    port: int
    path: str
    model: str
    streamed: bool
    calls: int
    concurrency: int
    key: str | None = None
    launched: int | None = None


class Outcome(msgspec.Struct, frozen=True):
    """``latencies_ms``: to the first token of each streamed call, to the end of the others."""

    latencies_ms: list[float]


class BrokenAnswerError(Exception):
    """An answer was not what it should be: the measurement would mean nothing."""


class Run:
    """The calls still to make, and what came of the others."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.request = _request(order)
        self.latencies_ms: list[float] = []
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left = order.calls

    def take(self) -> bool:
        """Take one of the calls to make."""
        self._left -= 1
        return self._left >= 0

    def note(self, latency_s: float) -> None:
        """Take a whole answer."""
        self.latencies_ms.append(round(latency_s * 1000, 4))
        if len(self.latencies_ms) == self.order.calls and not self.over.done():
            self.over.set_result(None)

    def fail(self, reason: str) -> None:
        """End it: something is broken."""
        if not self.over.done():
            self.over.set_exception(BrokenAnswerError(reason))


class Connection(asyncio.Protocol):
    """One connection, one call after the other."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._began = 0.0
        self._first_token_at: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not derive from it
        self._call()

    def connection_lost(self, error: Exception | None) -> None:
        if self._began:
            self._run.fail(f"the server closed the connection ({error}) after {bytes(self._received[-300:])!r}")

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        if self._first_token_at is None and TOKEN_MARK in received:
            self._first_token_at = perf_counter()
        head_end = received.find(_HEADERS_END)
        if head_end < 0:
            return
        length = _LENGTH.search(received, 0, head_end)
        start = head_end + len(_HEADERS_END)
        if length is None:
            if received.endswith(_LAST_CHUNK):
                self._take(bytes(received[:start]), _unchunked(received, start))
        elif len(received) >= start + int(length[1]):
            self._take(bytes(received[:start]), bytes(received[start:]))

    def _take(self, head: bytes, body: bytes) -> None:
        now = perf_counter()
        order = self._run.order
        is_whole = is_whole_stream if order.streamed else is_whole_json
        if not head.startswith(b"HTTP/1.1 200 ") or not is_whole(body):
            self._run.fail(f"not a whole answer: {head!r} … {body[-300:]!r}")
            return
        if order.launched is not None and b"x-holeshot-launched: %d\r\n" % order.launched not in head.lower():
            self._run.fail(f"not raced as it should be: {head!r}")
            return
        until = self._first_token_at if order.streamed and self._first_token_at is not None else now
        began, self._began = self._began, 0.0
        self._call()
        self._run.note(until - began)

    def _call(self) -> None:
        assert self._transport is not None
        self._received.clear()
        self._first_token_at = None
        if self._run.take():
            self._began = perf_counter()
            self._transport.write(self._run.request)
        else:
            self._transport.close()


async def run(order: Order) -> Outcome:
    """Make the calls.

    Raises:
        BrokenAnswerError: an answer is not whole.
        TimeoutError: it takes too long.

    """
    loop = asyncio.get_running_loop()
    work = Run(order)
    for _ in range(order.concurrency):
        await loop.create_connection(lambda: Connection(work), "127.0.0.1", order.port)
    async with asyncio.timeout(_LIMIT_S):
        await work.over
    return Outcome(work.latencies_ms)


def _request(order: Order) -> bytes:
    body = msgspec.json.encode(
        {"model": order.model, "messages": [{"role": "user", "content": _PROMPT}], "stream": order.streamed}
    )
    authorization = f"authorization: Bearer {order.key}\r\n" if order.key else ""
    head = (
        f"POST {order.path} HTTP/1.1\r\nhost: 127.0.0.1:{order.port}\r\ncontent-type: application/json\r\n"
        f"{authorization}accept: */*\r\nuser-agent: load\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _unchunked(received: bytearray, start: int) -> bytes:
    """Return the body of a chunked response that is complete."""
    parts: list[bytearray] = []
    while True:
        line_end = received.index(b"\r\n", start)
        size = int(received[start:line_end], 16)
        if size == 0:
            return b"".join(parts)
        start = line_end + 2
        parts.append(received[start : start + size])
        start += size + 2


def main() -> None:
    """Run the order given as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("order", help="an Order as JSON")
    order = msgspec.json.decode(parser.parse_args().order, type=Order)
    try:
        outcome = uvloop.run(run(order))
    except TimeoutError:
        sys.exit(f"load: not done within {_LIMIT_S:g} s")
    except (BrokenAnswerError, OSError) as error:
        sys.exit(f"load: {error}")
    sys.stdout.buffer.write(msgspec.json.encode(outcome))


if __name__ == "__main__":
    main()
