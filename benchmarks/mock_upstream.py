"""The upstream of all measurements: chat completions from prebuilt bytes behind a bare asyncio protocol.

The path's first element says how it answers: ``/burst`` at once and in one write, ``/soon`` and ``/late`` like it but
after a while (the two sides of a race), ``/paced`` one token every 5 ms. Whoever asks for no stream gets one JSON body.
``GET /counts`` tells how many requests were begun, answered, and cut before or after their first byte.
"""

import asyncio
import json
import re
import sys
from collections import Counter
from typing import cast

import uvloop

from benchmarks.answers import HEAD, JSON_RESPONSE, PIECES, PIECES_WITH_USAGE, STREAM, STREAM_WITH_USAGE

WAITS_S = {b"soon": 0.005, b"late": 0.1}
PACE_S = 0.005

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_STREAMED = re.compile(rb'"stream" *: *true')


class Connection(asyncio.Protocol):
    """One kept-alive connection, one request at a time."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._silent = False  # a request is under way and nothing of its answer is sent
        self._answering = False  # part of the answer is sent

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not derive from it

    def connection_lost(self, error: Exception | None) -> None:
        del error
        if self._timer is not None:
            self._timer.cancel()
        if self._silent:
            self._counts["cut_before_first_byte"] += 1
        elif self._answering:
            self._counts["cut_later"] += 1
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        length = _LENGTH.search(self._received, 0, end)
        whole = end + 4 + (int(length[1]) if length else 0)
        if len(self._received) >= whole:
            request = bytes(self._received[:whole])
            del self._received[:whole]
            self._answer(request)

    def _answer(self, request: bytes) -> None:
        behaviour = request.split(b"/", 2)[1].split(b" ")[0]
        if behaviour == b"counts":
            self._send_counts()
            return
        self._counts["begun"] += 1
        if not _STREAMED.search(request):
            self._finish(JSON_RESPONSE)
            return
        with_usage = b'"include_usage"' in request
        if behaviour == b"paced":
            self._answering = True
            self._write(HEAD)
            self._pace(PIECES_WITH_USAGE if with_usage else PIECES, 0, self._loop.time())
            return
        answer = STREAM_WITH_USAGE if with_usage else STREAM
        if wait_s := WAITS_S.get(behaviour):
            self._silent = True
            self._timer = self._loop.call_later(wait_s, self._finish, answer)
        else:
            self._finish(answer)

    def _pace(self, pieces: tuple[bytes, ...], number: int, began_at: float) -> None:
        if number + 1 == len(pieces):
            self._finish(pieces[number])
            return
        self._write(pieces[number])
        next_at = began_at + (number + 1) * PACE_S
        self._timer = self._loop.call_at(next_at, self._pace, pieces, number + 1, began_at)

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
    server = await loop.create_server(lambda: Connection(counts), "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
