"""A WebSocket (RFC 6455) on a client's connection: the handshake, frames within bounds, and the end.

aiohttp's own WebSocket reads a frame before it checks the length, and counts no bytes before a message is complete.
Here a message counts in the budget of bodies from the first byte. There are no extensions, so nothing is compressed.
"""

import asyncio
import base64
import binascii
import hashlib
import math
from collections import deque
from collections.abc import Callable, Hashable
from io import BytesIO

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter

from gateway.core.errors import ApiError, NoWebSocket
from gateway.http.aiohttp_adapter import DirectResponse, reading_is_paused
from gateway.http.headers import SERVER
from gateway.overload import Bodies, Body
from gateway.racing import ClientGone

# The codes of RFC 6455, 7.4.1.
NORMAL, GOING_AWAY, PROTOCOL_ERROR, POLICY, TOO_BIG = 1000, 1001, 1002, 1008, 1009

LOOK_S = 0.25  # between two checks whether the client has left, while nothing is received
CLOSE_S = 1.0  # for the client's closing frame
READ_AHEAD = 1  # complete messages that may wait; then reading stops
LARGE_BYTES = 64 * 1024  # received: a millisecond of work, and uvloop would read thirty times as much in one turn
SMALL_BYTES = 512  # shorter frames cost more time than their bytes are worth, so their number is limited
SMALL_FRAMES, SMALL_FRAMES_PER_S = 2000.0, 200.0
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY_BYTES = 16
_TEXT, _BINARY, _CLOSE, _PING, _PONG = 1, 2, 8, 9, 10
_CONTROL = 8  # the first opcode of control frames
_LONGEST_CONTROL = 125  # bytes
_LENGTH_16, _LENGTH_64 = 126, 127
_FINAL, _RESERVED, _OPCODE, _MASKED, _LENGTH = 0x80, 0x70, 0x0F, 0x80, 0x7F
_MASK_BYTES = 4


def is_upgrade(request: web.Request) -> bool:
    """Whether the request asks for a WebSocket, validly or not."""
    return request.headers.get("upgrade", "").strip().lower() == "websocket"


def accepted_key(request: web.Request) -> str:
    """Return the value of ``sec-websocket-accept`` for a handshake.

    Raises:
        NoWebSocket: the handshake is not valid.

    """
    fields = request.headers
    key = fields.get("sec-websocket-key", "")
    try:
        is_key = len(base64.b64decode(key, validate=True)) == _KEY_BYTES
    except (binascii.Error, ValueError):
        is_key = False
    is_handshake = (
        is_key
        and request.version >= HttpVersion11
        and not request.can_read_body
        and fields.get("sec-websocket-version") == "13"
        and "upgrade" in fields.get("connection", "").lower()
    )
    if not is_handshake:
        raise NoWebSocket(
            "this is no handshake of a WebSocket of version 13: it needs 'connection: upgrade', 'sec-websocket-version:"
            " 13' and 'sec-websocket-key'; or send a POST request",
            headers={"sec-websocket-version": "13"},
        )
    return base64.b64encode(hashlib.sha1(key.encode() + _GUID, usedforsecurity=False).digest()).decode()


class WebSocketResponse(DirectResponse):
    """The response to a handshake. Afterwards the connection is a WebSocket's, closed when the handler returns."""

    keep_alive = False
    _writer: AbstractStreamWriter | None = None

    def __init__(self, accepted: str) -> None:
        self._accepted = accepted

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        """Send the head."""
        writer = request.writer
        if self._writer is None:
            self._writer = writer
            head = (
                "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
                f"sec-websocket-accept: {self._accepted}\r\nserver: {SERVER}\r\n\r\n"
            ).encode()
            if request.transport is None:
                raise ConnectionResetError
            request.transport.write(head)
            writer.output_size += len(head)
        return writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: frames end a WebSocket."""
        del data


class SocketMessage:
    """One message, counted in the budget of bodies until ``release``. After an ``error`` the bytes are dropped."""

    __slots__ = ("_budgeted", "_parts", "error", "is_text", "size")

    def __init__(self, *, is_text: bool) -> None:
        self.is_text = is_text
        self.size = 0  # bytes declared so far
        self.error: ApiError | None = None
        self._parts = BytesIO()
        self._budgeted: Body | None = None

    def begin(self, bodies: Bodies, owner: Hashable, address: Hashable) -> None:
        """Count the message's bytes from now on."""
        try:
            self._budgeted = bodies.begin(owner, address, self._cut)
        except ApiError as error:
            self.error = error

    @property
    def received(self) -> int:
        """The number of bytes that have arrived."""
        return self._parts.tell()

    def add(self, piece: bytes) -> None:
        """Add the next bytes; without effect after an error."""
        if self.error is None and self._budgeted is not None:
            try:
                self._budgeted.grow(len(piece))
            except ApiError as error:
                self.drop(error)
            else:
                self._parts.write(piece)

    def finish(self) -> None:
        """Mark the message as complete; a complete message is not cut to make room for others."""
        if self._budgeted is not None:
            self._budgeted.finish()

    def drop(self, error: ApiError) -> None:
        """Drop the message's bytes."""
        self.error = error
        self._parts = BytesIO()
        self.release()

    def take(self) -> bytes:
        """Return the message's bytes; works once."""
        data, self._parts = self._parts.getvalue(), BytesIO()
        return data

    def release(self) -> None:
        """Stop counting the message's bytes. May be called repeatedly."""
        if self._budgeted is not None:
            self._budgeted.release()

    def _cut(self) -> None:
        self._parts = BytesIO()
        self.error = None if self._budgeted is None else self._budgeted.error


class _Violation(Exception):
    """The client's bytes end the connection."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.close_code = code


class WebSocket:
    """An open WebSocket. The connection feeds it, and ``receive`` returns the messages.

    The caller sets ``is_idle``: an idle WebSocket may be closed to make room for another connection.
    """

    def __init__(
        self, request: web.Request, bodies: Bodies, owner: Hashable, address: Hashable, most_bytes: Callable[[], int]
    ) -> None:
        """``most_bytes``: returns the maximum of a message, with all its fragments."""
        self.is_idle = True
        self.heard_at = asyncio.get_running_loop().time()  # the last byte from the client
        self._loop = asyncio.get_running_loop()
        self._request = request
        self._connection = request.protocol
        self._bodies, self._owner, self._address = bodies, owner, address
        self._most_bytes = most_bytes
        self._messages: deque[SocketMessage] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._is_closing = False  # the closing frame was sent
        self._is_deaf = False  # further bytes are not read as frames
        self._draining: asyncio.Task[None] | None = None  # ends when the client has read, or the connection has ended
        self._gone: asyncio.Future[None] = self._loop.create_future()  # the client or the connection has ended it
        self._ends: asyncio.Future[None] = self._loop.create_future()  # also when the closing frame was sent
        self._unread = b""  # bytes after as many messages as may wait
        self._head = bytearray()  # of the next frame, as far as received
        self._opcode = 0
        self._is_final = False
        self._left = 0  # bytes of the frame's payload
        self._mask = b""
        self._in_frame = False
        self._control = bytearray()
        self._message: SocketMessage | None = None  # the incomplete message
        self._begun_at: float | None = None  # the beginning of that message, also after it was dropped
        self._small_frames, self._small_since = 0.0, self.heard_at

    # For the connection.

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Read bytes that have arrived; called by the connection."""
        self.heard_at = self._loop.time()
        if self._unread:
            self._unread += data
        else:
            self._hear(data)
            if len(data) >= LARGE_BYTES and not reading_is_paused(self._connection):
                self._connection.pause_reading()
                self._loop.call_soon(self._receive_more)
        return False, b""

    def feed_eof(self) -> None:
        """Note that the connection has ended; called by the connection."""
        self._drop_message()
        self._end()

    # For the user.

    async def open(self) -> WebSocketResponse:
        """Answer the handshake; return the response, which the request's handler must return at the end.

        Raises:
            NoWebSocket: the handshake is not valid.
            ConnectionError: the client has gone.

        """
        response = WebSocketResponse(accepted_key(self._request))
        await response.prepare(self._request)
        self._connection.set_parser(self)  # type: ignore[arg-type] # fed like aiohttp's own reader
        return response

    async def receive(self) -> SocketMessage | None:
        """Return the next message; None if the connection has ended or ``close`` was called."""
        while True:
            if self._is_closing or self._gone.done():
                return None
            if self._messages:
                break
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        message = self._messages.popleft()
        self._hear_on()
        return message

    async def rest(self, seconds: float) -> None:
        """Wait ``seconds``, or until the connection ends; messages in this time are not read."""
        until = self._loop.time() + seconds
        while self.is_open and (left_s := until - self._loop.time()) > 0:
            if getattr(self._connection, "has_left", False):  # otherwise noticed only when something is received
                self.abort()
            await asyncio.wait({self._ends}, timeout=min(left_s, LOOK_S))

    def send(self, *texts: bytes) -> None:
        """Send messages of text, each in one frame.

        Raises:
            ClientGone: the connection has ended, or is about to.

        """
        if self._is_closing or self._gone.done():
            raise ClientGone
        self._write(b"".join([part for text in texts for part in (_head(_TEXT, len(text)), text)]))

    @property
    def is_open(self) -> bool:
        """Whether the WebSocket is open: neither side has ended it."""
        return not self._ends.done()

    @property
    def is_slow(self) -> bool:
        """Whether the client has to read before more is sent."""
        return bool(self._connection.writing_paused)

    async def drain(self) -> None:
        """Wait until the client has read enough.

        Raises:
            ClientGone: the connection has ended.

        """
        # All waiters share one future of aiohttp, which a cancelled waiter would cancel: so only this task awaits it.
        while self._connection.writing_paused and not self._gone.done():
            if self._draining is None:
                self._draining = self._loop.create_task(self._request.writer.drain())
                self._draining.add_done_callback(self._drained)
            await asyncio.wait({self._draining})
        if self._gone.done():
            raise ClientGone

    def _drained(self, task: "asyncio.Task[None]") -> None:
        self._draining = None
        if not task.cancelled():
            task.exception()  # the connection has ended, as is reported elsewhere

    def is_late(self, now: float, timeout_s: float, bytes_per_s: float) -> bool:
        """Whether a message takes longer than ``timeout_s``, plus a second for every ``bytes_per_s`` of its bytes."""
        if self._begun_at is None or self._message is None or reading_is_paused(self._connection):
            return False
        return now - self._begun_at > timeout_s + self._message.received / bytes_per_s

    def ping(self) -> None:
        """Send a ping, so that proxies see that the connection is in use."""
        if not self._is_closing:
            self._write(_head(_PING, 0))

    def close(self, code: int, why: str = "") -> None:
        """Send the closing frame, once; afterwards nothing is sent, and no message is received."""
        if not self._is_closing:
            payload = code.to_bytes(2, "big") + why.encode()[: _LONGEST_CONTROL - 2]
            self._write(_head(_CLOSE, len(payload)) + payload)
            self._is_closing = True
            self._wake()
            _resolve(self._ends)

    async def finish(self) -> None:
        """Wait for the client's closing frame; messages before it are dropped."""
        self.drop_messages()
        self._hear_on()
        await asyncio.wait({self._gone}, timeout=CLOSE_S)

    def drop_messages(self) -> None:
        """Drop messages that were received but not read."""
        for message in self._messages:
            message.release()
        self._messages.clear()
        self._drop_message()

    def abort(self) -> None:
        """End the connection at once, as the client does not answer."""
        if self._request.transport is not None:
            self._request.transport.abort()

    def _hear(self, data: bytes) -> None:
        if not self._is_deaf:
            try:
                self._read(data)
            except _Violation as violation:
                self._is_deaf = True
                self._drop_message()
                self.close(violation.close_code, str(violation))

    def _hear_on(self) -> None:
        """Read the waiting bytes, and receive more if few messages wait."""
        unread, self._unread = self._unread, b""
        self._hear(unread)
        self._receive_more()

    def _receive_more(self) -> None:
        if len(self._messages) < READ_AHEAD and reading_is_paused(self._connection):
            self._connection.resume_reading()

    # Frames.

    def _read(self, data: bytes) -> None:
        at, end = 0, len(data)
        while (at < end or (self._in_frame and not self._left)) and not self._is_deaf:
            if len(self._messages) >= READ_AHEAD:
                self._unread = data[at:]
                return
            if not self._in_frame:
                at = self._read_head(data, at)
                continue
            if self._left:
                piece = data[at : at + self._left]
                at += len(piece)
                self._left -= len(piece)
                if self._opcode >= _CONTROL:
                    self._control += self._unmasked(piece)
                elif self._message is not None:
                    self._message.add(self._unmasked(piece))
            if not self._left:
                self._in_frame = False
                self._end_frame()

    def _read_head(self, data: bytes, at: int) -> int:
        """Read on in a frame's head; return the place of its end, or of the data's end."""
        head = self._head
        while True:
            needed = _head_bytes(head) - len(head)
            if not needed:
                break
            piece = data[at : at + needed]
            if not piece:
                return at
            head += piece
            at += len(piece)
        first, length = head[0], head[1] & _LENGTH
        if first & _RESERVED:
            raise _Violation(PROTOCOL_ERROR, "extensions, such as compression, were not agreed")
        if not head[1] & _MASKED:
            raise _Violation(PROTOCOL_ERROR, "frames of a client must be masked")
        if length >= _LENGTH_16:
            length = int.from_bytes(head[2:-_MASK_BYTES], "big")
        self._mask = bytes(head[-_MASK_BYTES:])
        head.clear()
        self._begin_frame(first & _OPCODE, length, is_final=bool(first & _FINAL))
        return at

    def _begin_frame(self, opcode: int, length: int, *, is_final: bool) -> None:
        self._opcode, self._left, self._is_final, self._in_frame = opcode, length, is_final, True
        if length < SMALL_BYTES:
            self._count_small()
        if opcode >= _CONTROL:
            if opcode > _PONG or not is_final or length > _LONGEST_CONTROL:
                raise _Violation(PROTOCOL_ERROR, "this control frame is not valid")
            self._control.clear()
            return
        if opcode > _BINARY or (opcode == 0) is not (self._begun_at is not None):
            raise _Violation(PROTOCOL_ERROR, "this frame does not continue what was sent before")
        if opcode:
            self._begun_at = self.heard_at
            if not self._is_closing:
                self._message = SocketMessage(is_text=opcode == _TEXT)
                self._message.begin(self._bodies, self._owner, self._address)
        if self._message is not None:
            self._message.size += length
            if self._message.size > (most := self._most_bytes()):  # the frame is skipped, so that the client reads why
                self._drop_message()
                self.close(TOO_BIG, f"a message may have {most} bytes")

    def _count_small(self) -> None:
        now = self.heard_at
        self._small_frames = max(0.0, self._small_frames - SMALL_FRAMES_PER_S * (now - self._small_since)) + 1.0
        self._small_since = now
        if self._small_frames > SMALL_FRAMES:
            raise _Violation(POLICY, "too many small frames: send larger ones, or fewer")

    def _end_frame(self) -> None:
        if self._opcode == _PING:
            if not self._is_closing:
                self._write(_head(_PONG, len(self._control)) + self._control)
        elif self._opcode == _CLOSE:
            code = int.from_bytes(self._control[:2], "big") if len(self._control) > 1 else NORMAL
            self._is_deaf = True
            self.close(code if _is_sendable(code) else PROTOCOL_ERROR)
            self._end()
        elif self._opcode < _CONTROL and self._is_final:
            message, self._message, self._begun_at = self._message, None, None
            if message is not None:
                message.finish()
                self._messages.append(message)
                self._wake()
                if len(self._messages) >= READ_AHEAD and not reading_is_paused(self._connection):
                    self._connection.pause_reading()

    def _unmasked(self, piece: bytes) -> bytes:
        """Return a piece of a frame's payload without the mask, and rotate the mask for the next piece."""
        size = len(piece)
        whole = self._mask * (size // _MASK_BYTES + 1)
        turn = size % _MASK_BYTES
        self._mask = self._mask[turn:] + self._mask[:turn]
        return (int.from_bytes(piece, "little") ^ int.from_bytes(whole[:size], "little")).to_bytes(size, "little")

    def _write(self, data: bytes) -> None:
        transport = self._request.transport
        if transport is not None and not transport.is_closing():
            transport.write(data)
            self._request.writer.output_size += len(data)  # shows whether a client reads

    def _drop_message(self) -> None:
        if self._message is not None:
            self._message.release()
            self._message = None

    def _end(self) -> None:
        self._unread = b""
        _resolve(self._gone)
        _resolve(self._ends)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None:
            _resolve(self._waiter)


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _head_bytes(head: bytearray) -> int:
    """Return the length of a frame's head, as far as its first bytes show."""
    if len(head) < 2:  # noqa: PLR2004 - the flags and the length
        return 2
    length = head[1] & _LENGTH
    more = 0 if length < _LENGTH_16 else 2 if length < _LENGTH_64 else 8
    return 2 + more + (_MASK_BYTES if head[1] & _MASKED else 0)


def _head(opcode: int, length: int) -> bytes:
    """Return the head of a frame to a client: final, and not masked."""
    first = bytes((_FINAL | opcode,))
    if length < _LENGTH_16:
        return first + bytes((length,))
    if length < 2**16:
        return first + bytes((_LENGTH_16,)) + length.to_bytes(2, "big")
    return first + bytes((_LENGTH_64,)) + length.to_bytes(8, "big")


def _is_sendable(code: int) -> bool:
    """Whether a close frame may have this code."""
    return code in {NORMAL, GOING_AWAY, 1002, 1003, *range(1007, 1012)} or math.floor(code / 1000) in {3, 4}
