"""One connection of the load generator: it makes one call after the other, and checks every answer to be whole."""

import asyncio
import re
from collections.abc import Mapping
from time import perf_counter
from typing import Protocol, cast

import msgspec

from benchmarks.harness.answers import TOKEN_MARK, is_whole_json, is_whole_stream

_PROMPT = "Explain to a new colleague, in plain words and about a hundred tokens, why a proxy should not be slow. " * 2
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_HEADERS_END = b"\r\n\r\n"
_LAST_CHUNK = b"\r\n0\r\n\r\n"


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked. ``launched`` is how many attempts a gateway must say it started."""

    port: int
    path: str
    model: str
    streamed: bool
    prompt_bytes: int = len(_PROMPT)
    headers: Mapping[str, str] = {}
    launched: int | None = None

    def rendered(self) -> bytes:
        """Return it as HTTP/1.1 writes it."""
        prompt = (_PROMPT * (self.prompt_bytes // len(_PROMPT) + 1))[: self.prompt_bytes]
        body = msgspec.json.encode(
            {"model": self.model, "messages": [{"role": "user", "content": prompt}], "stream": self.streamed}
        )
        more = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        head = (
            f"POST {self.path} HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\ncontent-type: application/json\r\n"
            f"{more}accept: */*\r\nuser-agent: load\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


class Foreman(Protocol):
    """Who has the connections make calls."""

    question: Question
    request: bytes

    def made(self, caller: "Caller") -> None:
        """Hear that ``caller`` is connected."""

    def free(self, caller: "Caller") -> None:
        """Hear that ``caller`` can make a call: it is connected, or has its answer."""

    def note(self, latency_s: float) -> None:
        """Hear of a whole answer, before its caller is free."""

    def fail(self, reason: str) -> None:
        """Hear that something is broken."""

    def gone(self, caller: "Caller") -> None:
        """Hear that ``caller`` has no connection any more."""


class Caller(asyncio.Protocol):
    """One connection."""

    def __init__(self, foreman: Foreman) -> None:
        self._foreman = foreman
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._began: float | None = None
        self._first_token_at: float | None = None

    def call(self, due: float) -> None:
        """Send a request; ``due`` is when its time begins to count."""
        assert self._transport is not None
        self._began = due
        self._first_token_at = None
        self._transport.write(self._foreman.request)

    def close(self) -> None:
        """Hang up."""
        assert self._transport is not None
        self._began = None
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not derive from it
        self._foreman.made(self)
        self._foreman.free(self)

    def connection_lost(self, error: Exception | None) -> None:
        if self._began is not None:
            self._foreman.fail(f"the server closed the connection ({error}) after {bytes(self._received[-300:])!r}")
        self._foreman.gone(self)

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
        question = self._foreman.question
        is_whole = is_whole_stream if question.streamed else is_whole_json
        if not head.startswith(b"HTTP/1.1 200 ") or not is_whole(body):
            self._foreman.fail(f"not a whole answer: {head!r} … {body[-300:]!r}")
            return
        if question.launched is not None and b"x-holeshot-launched: %d\r\n" % question.launched not in head.lower():
            self._foreman.fail(f"not raced as it should be: {head!r}")
            return
        assert self._began is not None
        until = self._first_token_at if question.streamed and self._first_token_at is not None else now
        began, self._began = self._began, None
        self._received.clear()
        self._foreman.note(until - began)
        self._foreman.free(self)


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
