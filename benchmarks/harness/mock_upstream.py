"""The upstream of all measurements: chat completions from prebuilt bytes behind a bare asyncio protocol.

The path's first element says how it answers (``behaviours.py``). Whoever asks for no stream gets one JSON body, at the
time of the first byte. ``GET /counts`` tells how many connections there were and how many of them are gone, and how
many requests were begun, answered, and cut before or after their first byte.
"""

import asyncio
import json
import re
import sys
from collections import Counter
from typing import cast

import uvloop

from benchmarks.harness.answers import (
    BEHAVIOURS,
    HEAD,
    JSON_RESPONSE,
    NAMED,
    PIECES,
    PIECES_WITH_USAGE,
    STREAM,
    STREAM_WITH_USAGE,
    Behaviour,
)

BACKLOG = 4096  # a crowd comes at once
_BEHAVIOURS = {name.encode(): behaviour for name, behaviour in BEHAVIOURS.items()}
_STREAMED = re.compile(rb'"stream" *: *true')
_MODEL = re.compile(rb'"model" *: *"([^"]+)"')


class Connection(asyncio.Protocol):
    """One kept-alive connection, one request at a time."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._requests = Requests()
        self._timer: asyncio.TimerHandle | None = None
        self._silent = False  # a request is under way, and nothing of its answer is sent
        self._answering = False  # part of the answer is sent

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not derive from it
        self._counts["connections"] += 1

    def connection_lost(self, error: Exception | None) -> None:
        del error
        if self._timer is not None:
            self._timer.cancel()
        if self._silent:
            self._counts["cut_before_first_byte"] += 1
        elif self._answering:
            self._counts["cut_later"] += 1
        self._transport = None
        self._counts["hung_up"] += 1

    def data_received(self, data: bytes) -> None:
        if (request := self._requests.next(data)) is not None:
            self._answer(request)

    def _answer(self, request: bytes) -> None:
        name = request.split(b"/", 2)[1].split(b" ")[0]
        if name == b"counts":
            self._send_counts()
            return
        if name == NAMED.encode():
            named = _MODEL.search(request)
            name = named[1] if named is not None else b""
        behaviour = _BEHAVIOURS[name]
        self._counts["begun"] += 1
        self._silent = True
        if behaviour.first_s:
            self._timer = self._loop.call_later(behaviour.first_s, self._begin, behaviour, request)
        elif behaviour.first_s is not None:
            self._begin(behaviour, request)

    def _begin(self, behaviour: Behaviour, request: bytes) -> None:
        with_usage = b'"include_usage"' in request
        if not _STREAMED.search(request):
            self._finish(JSON_RESPONSE)
        elif behaviour.gap_s is None and behaviour.rest_s is None:
            self._finish(STREAM_WITH_USAGE if with_usage else STREAM)
        else:
            self._silent, self._answering = False, True
            pieces = PIECES_WITH_USAGE if with_usage else PIECES
            self._write(HEAD + pieces[0])
            if behaviour.rest_s is not None:
                self._timer = self._loop.call_later(behaviour.rest_s, self._finish, b"".join(pieces[1:]))
            elif behaviour.gap_s is not None:
                self._next_in_time(pieces, 1, self._loop.time(), behaviour.gap_s)

    def _next_in_time(self, pieces: tuple[bytes, ...], number: int, began_at: float, gap_s: float) -> None:
        self._timer = self._loop.call_at(began_at + number * gap_s, self._pace, pieces, number, began_at, gap_s)

    def _pace(self, pieces: tuple[bytes, ...], number: int, began_at: float, gap_s: float) -> None:
        if number + 1 == len(pieces):
            self._finish(pieces[number])
        else:
            self._write(pieces[number])
            self._next_in_time(pieces, number + 1, began_at, gap_s)

    def _finish(self, last: bytes) -> None:
        self._timer = None
        self._silent = self._answering = False
        self._counts["answered"] += 1
        self._write(last)

    def _send_counts(self) -> None:
        body = json.dumps(self._counts).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self._write(head.encode() + body)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


async def serve(port: int) -> None:
    """Serve until killed."""
    counts: Counter[str] = Counter()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(counts), "127.0.0.1", port, backlog=BACKLOG)
    await server.serve_forever()


_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Requests:
    """Cuts what arrives into requests. The next one comes only after the answer, so one at a time is enough."""

    def __init__(self) -> None:
        self._received = bytearray()

    def next(self, data: bytes) -> bytes | None:
        """Add ``data``; return the request, head and body, once it is complete."""
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return None
        length = _LENGTH.search(self._received, 0, end)
        whole = end + 4 + (int(length[1]) if length else 0)
        if len(self._received) < whole:
            return None
        request = bytes(self._received[:whole])
        del self._received[:whole]
        return request


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
