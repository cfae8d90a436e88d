"""Simulated clients, and the wire between them and the gateway, in memory."""

import asyncio
import io
import os
import re
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from typing import Any, cast

import msgspec

from tests.schedules.loop import ShuffledLoop
from tests.schedules.scenario import Ask, Client

LAST_S = 30.0  # then a client that reads nothing any more is gone
PATHS = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
    "embeddings": "/v1/embeddings",
    "speech": "/v1/audio/speech",
}


TOKEN = re.compile(rb"<([a-z]+\d+)[:?]")  # of an answer: it begins with the tag of its request


class Wire(asyncio.Transport):
    """The gateway's end of a connection. What is written waits while the client does not read."""

    def __init__(self, client: "SimulatedClient", protocol: asyncio.Protocol, loop: ShuffledLoop) -> None:
        super().__init__()
        self.closed = False
        self._client = client
        self._protocol = protocol
        self._loop = loop
        self._high = 65_536
        self._unread = bytearray()  # by the client
        self._room = 0  # of it, what the network takes
        self._paused = False
        self._closing = False
        self._lost = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 5), "socket": _SOCKET}.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = self._high if high is None else high

    def get_write_buffer_size(self) -> int:
        return max(0, len(self._unread) - self._room)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or not data:
            return
        for tag in TOKEN.findall(data):
            self._loop.note("write", tag.decode())
        if self._client.reads:
            self._client.got(data)
            return
        self._room = self._client.plan.buffer_bytes
        self._unread += data
        if self.get_write_buffer_size() > self._high and not self._paused:
            self._paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def taken(self) -> None:
        """Give the client what waits for it."""
        self._client.got(bytes(self._unread))
        self._unread.clear()
        if self._lost:
            return
        if self._paused:
            self._paused = False
            self._protocol.resume_writing()
        if self._closing:
            self._lose(None)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if not self.get_write_buffer_size():
                self._lose(None)

    def abort(self) -> None:
        self._closing = True
        self._unread.clear()
        self._lose(None)

    def hang_up(self) -> None:
        """Lose the client."""
        self._closing = True
        self._unread.clear()
        self._lose(ConnectionResetError())

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._loop.call_soon(self._end, error)

    def _end(self, error: Exception | None) -> None:
        self.closed = True
        self._client.got(bytes(self._unread))  # what the network had
        self._protocol.connection_lost(error)
        self._client.hung_up()
        self._client = self._protocol = None  # type: ignore[assignment] # it is over, and must hold nobody

    def pause_reading(self) -> None:
        """Hold nothing back: what clients send here is short."""

    def resume_reading(self) -> None:
        """Likewise."""

    def is_reading(self) -> bool:
        return True

    def can_write_eof(self) -> bool:
        return False

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast("asyncio.Protocol", protocol)


class Seen:
    """What a client got for one request."""

    def __init__(self, name: str, ask: Ask) -> None:
        self.name = name  # its x-request-id
        self.ask = ask
        self.sent = False  # whole
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.body = b""
        self.is_whole = False
        self.gave_up = False  # the client left, or stopped reading for good, before the end


class SimulatedClient:
    """One connection and its requests, one after the other. It is what the gateway takes for a socket."""

    def __init__(self, number: int, plan: Client, loop: ShuffledLoop) -> None:
        self.plan = plan
        self.received = bytearray()
        self.reads = True
        self.seen = [Seen(f"c{number}-{index}", ask) for index, ask in enumerate(plan.asks)]
        self.extra = b""  # bytes beyond the last answer
        self.wire: Wire | None = None
        self.left = False
        self._loop = loop
        self._gone = asyncio.Event()
        self._news = asyncio.Event()
        self._accepted = asyncio.Event()

    def got(self, data: bytes | bytearray | memoryview) -> None:
        """Receive."""
        self.received += data
        self._news.set()

    def open(self, protocol: asyncio.BaseProtocol, loop: ShuffledLoop) -> asyncio.Transport:
        """Be accepted."""
        self.wire = Wire(self, cast("asyncio.Protocol", protocol), loop)
        protocol.connection_made(self.wire)
        self._accepted.set()
        return self.wire

    def close(self) -> None:
        """Be dropped before that."""
        self._accepted.set()
        self._gone.set()
        self._news.set()

    def hung_up(self) -> None:
        """Hear that the connection is no more."""
        self.wire = None
        self._gone.set()
        self._news.set()

    async def run(self, connect: Callable[["SimulatedClient", str], None]) -> None:
        """Connect, ask everything, close."""
        plan, timers = self.plan, []
        await asyncio.sleep(plan.at_s)
        connect(self, "127.0.0.1")
        if plan.leaves_s is not None:
            timers.append(self._loop.call_later(plan.leaves_s, self._leave))
        if plan.stops_reading_s is not None:
            timers.append(self._loop.call_later(plan.stops_reading_s, self._stop_reading))
            if plan.reads_on_s is not None:
                timers.append(self._loop.call_later(plan.reads_on_s, self._read_on))
            else:
                timers.append(self._loop.call_later(plan.stops_reading_s + LAST_S, self._leave))
        try:
            for seen in self.seen:
                await asyncio.sleep(seen.ask.waits_s)
                if not await self._ask(seen):
                    break
            if self.wire is not None:
                self.wire.hang_up()
                await self._gone.wait()
        finally:
            for timer in timers:
                timer.cancel()

    async def _ask(self, seen: Seen) -> bool:
        """Ask one thing, and wait for the end of the answer; return whether the connection can be used again."""
        await self._accepted.wait()
        data = request_bytes(seen)
        size = -(-len(data) // seen.ask.pieces)
        begins = len(self.received)
        for start in range(0, len(data), size):
            if self.wire is None or self.wire.is_closing():
                break
            self.wire._protocol.data_received(data[start : start + size])
            seen.sent = start + size >= len(data)
            if not seen.sent:
                await asyncio.sleep(0.001)
        while not self._gone.is_set() and not self._is_whole(seen, begins):
            self._news.clear()
            await self._news.wait()
        self._is_whole(seen, begins)
        if not seen.is_whole:
            seen.gave_up = self.left or not self.reads
        return seen.is_whole and not self._gone.is_set() and seen.headers.get("connection") != "close"

    def _is_whole(self, seen: Seen, begins: int) -> bool:
        """Read what is there of the answer as a client would."""
        data = bytes(self.received[begins:])
        head, ends, _ = data.partition(b"\r\n\r\n")
        if not ends or (b"chunked" in head and not data.endswith(b"\r\n0\r\n\r\n") and not self._gone.is_set()):
            return False
        file = io.BytesIO(data)
        response = HTTPResponse(cast("Any", _Readable(file)), method="POST")
        try:
            response.begin()
            seen.status, seen.headers = response.status, {key.lower(): value for key, value in response.getheaders()}
            closes = response.length is None and not response.chunked
            seen.body = response.read()
            seen.is_whole = not closes or self._gone.is_set()
        except HTTPException as error:
            seen.body = getattr(error, "partial", b"") if not response.chunked else chunks(data)
            return False
        self.extra = file.read()
        return seen.is_whole

    def _leave(self) -> None:
        self.left = True
        if self.wire is not None:
            self.wire.hang_up()

    def _stop_reading(self) -> None:
        self.reads = False

    def _read_on(self) -> None:
        self.reads = True
        if self.wire is not None:
            self.wire.taken()


class _Readable:
    """A socket, as http.client wants one."""

    def __init__(self, file: io.BytesIO) -> None:
        self._file = file

    def makefile(self, _: str) -> io.BytesIO:
        return _Unclosed(self._file)


class _Unclosed(io.BytesIO):
    """A file that goes on where another one is, and stays open."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__()
        self._of = file

    def read(self, size: int | None = -1) -> bytes:
        return self._of.read(size)

    def readinto(self, buffer: Any) -> int:
        return self._of.readinto(buffer)

    def readline(self, size: int | None = -1) -> bytes:
        return self._of.readline(size)

    def peek(self, size: int = 0) -> bytes:
        at = self._of.tell()
        data = self._of.read(size)
        self._of.seek(at)
        return data


class _Socket:
    """Enough of one."""

    def __init__(self) -> None:
        self.family = 0
        self._fd = os.open(os.devnull, os.O_RDONLY)

    def fileno(self) -> int:
        return self._fd

    def setsockopt(self, *_: object) -> None:
        """Do nothing."""


_SOCKET = _Socket()


def chunks(data: bytes) -> bytes:
    """Return what is there of a chunked body."""
    _, _, rest = data.partition(b"\r\n\r\n")
    body = b""
    while b"\r\n" in rest:
        size, _, rest = rest.partition(b"\r\n")
        number = int(size, 16)
        body, rest = body + rest[:number], rest[number + 2 :]
        if not number:
            break
    return body


def request_bytes(seen: Seen) -> bytes:
    """Return a request as it is sent."""
    ask = seen.ask
    text = "x" * ask.prompt
    body: dict[str, Any] = {"model": ask.model}
    match ask.dialect:
        case "embeddings" | "speech":
            body["input"] = text
        case "completions":
            body["prompt"] = text
        case "responses":
            body["input"] = text
        case _:
            body["messages"] = [{"role": "user", "content": text}]
    if ask.dialect not in {"embeddings", "speech"}:
        body["stream"] = ask.stream
        if ask.wants_usage and ask.stream and ask.dialect in {"chat", "completions"}:
            body["stream_options"] = {"include_usage": True}
        if ask.json:
            body["response_format"] = {"type": "json_object"}
        if ask.max_tokens is not None or ask.dialect == "messages":
            body["max_output_tokens" if ask.dialect == "responses" else "max_tokens"] = ask.max_tokens or 100
    if ask.dialect == "speech":
        body["voice"] = "alloy"
    if ask.order:
        body["provider"] = {"order": [*ask.order]}
    if ask.fallback is not None:
        body["models"] = [ask.model, ask.fallback]
    payload = msgspec.json.encode(body)
    head = [
        f"POST {PATHS[ask.dialect]} HTTP/1.1",
        "host: 127.0.0.1",
        "content-type: application/json",
        f"content-length: {len(payload)}",
        f"x-request-id: {seen.name}",
    ]
    if ask.key is not None:
        head.append(f"authorization: Bearer {ask.key}")
    if ask.race is not None:
        head.append(f"x-holeshot-race: {ask.race}")
    if ask.deadline_ms is not None:
        head.append(f"x-holeshot-deadline-ms: {ask.deadline_ms:g}")
    return ("\r\n".join(head) + "\r\n\r\n").encode() + payload
