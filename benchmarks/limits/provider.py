"""The provider as a process: streamed chat completions whose length the call itself says, with usage.

A call's ``user`` is ``limits-NUMBER-TOKENS``. ``GET /_seen`` returns, as JSON, what each call since the last time was
seen to be: the only witness of how many calls ran at the same time that no gateway can mislead.
"""

import asyncio
import re
import sys
import time
from typing import cast

import msgspec
import uvloop

from benchmarks.harness.mock_upstream import Requests
from benchmarks.limits.trials import PROMPT_TOKENS
from providers.simulator.wire import DONE, Answering, event, usage

FIRST_S = 0.15  # from the request to the first token
TOKEN_S = 0.003  # for each token of the answer
BACKLOG = 1024

_ASKED = re.compile(rb'"user" *: *"limits-(\d+)-(\d+)"')
_ANSWERING = Answering("chatcmpl-limits", "limits-model", created=0)
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Seen(msgspec.Struct, array_like=True):
    """One call as the provider saw it, in seconds of the machine's monotonic clock."""

    number: int
    arrived_s: float
    first_s: float | None = None  # when the first token was sent
    ended_s: float | None = None  # when the last one was, or the gateway hung up
    is_whole: bool = False


class Connection(asyncio.Protocol):
    """One kept-alive connection, one request at a time."""

    def __init__(self, log: list[Seen]) -> None:
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._requests = Requests()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._seen: Seen | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class is none of asyncio's

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._end(is_whole=False)

    def data_received(self, data: bytes) -> None:
        request = self._requests.next(data)
        if request is None:
            return
        if request.startswith(b"GET /_seen "):
            self._report()
            return
        asked = _ASKED.search(request)
        if asked is None:
            self._write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            return
        self._seen = Seen(int(asked[1]), time.monotonic())
        self._log.append(self._seen)
        self._timer = self._loop.call_later(FIRST_S, self._begin, int(asked[2]))

    def _begin(self, tokens: int) -> None:
        assert self._seen is not None
        self._seen.first_s = time.monotonic()
        self._write(_HEAD + _framed(_delta({"role": "assistant", "content": ""}) + _delta({"content": " token"})))
        self._timer = self._loop.call_later(TOKEN_S * tokens, self._finish, tokens)

    def _finish(self, tokens: int) -> None:
        rest = _delta({"content": " token" * (tokens - 1)}) + event(_ANSWERING.chunk({}, "stop"))
        end = event(_ANSWERING.usage_chunk(usage(PROMPT_TOKENS, tokens))) + DONE
        self._write(_framed(rest + end) + b"0\r\n\r\n")
        self._end(is_whole=True)

    def _end(self, *, is_whole: bool) -> None:
        if self._seen is not None:
            self._seen.ended_s, self._seen.is_whole = time.monotonic(), is_whole
        self._seen = self._timer = None

    def _report(self) -> None:
        """Send what ended; what is under way is for the next time."""
        ended = [seen for seen in self._log if seen.ended_s is not None]
        self._log[:] = [seen for seen in self._log if seen.ended_s is None]
        body = msgspec.json.encode(ended)
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self._write(head.encode() + body)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


def _delta(delta: dict[str, str]) -> bytes:
    return event(_ANSWERING.chunk(delta))


def _framed(data: bytes) -> bytes:
    """Return ``data`` as one chunk of HTTP/1.1."""
    return b"%x\r\n%b\r\n" % (len(data), data)


async def serve(port: int) -> None:
    """Serve until killed."""
    log: list[Seen] = []
    server = await asyncio.get_running_loop().create_server(lambda: Connection(log), "127.0.0.1", port, backlog=BACKLOG)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
