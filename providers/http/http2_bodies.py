"""The request bodies being sent on one HTTP/2 connection: they take turns, within the server's windows."""

from collections import deque
from collections.abc import Callable

from providers.http.frames import (
    DEFAULT_WINDOW_BYTES,
    END_STREAM,
    HEADER,
    MAX_WINDOW_BYTES,
    Code,
    ConnectionFault,
    Kind,
    StreamFault,
)
from providers.http.http2_settings import PeerSettings
from providers.http.http2_stream import Stream

_TURN_BYTES = 64 * 1024  # of one body before the next one's turn; joined to one write


class Bodies:
    """Sends bodies as far as the windows and the transport's buffer allow. ``window`` is the connection's."""

    __slots__ = ("_ready", "_settings", "_write", "paused", "window")

    def __init__(self, settings: PeerSettings, write: Callable[[bytes], None]) -> None:
        self.window = DEFAULT_WINDOW_BYTES
        self.paused = False
        self._settings = settings
        self._write = write
        self._ready: deque[Stream] = deque()  # streams with more to send, and room in their own window

    def start(self, stream: Stream, head: bytes, body: bytes | None) -> None:
        """Send a request: its head, and as much of its body as possible."""
        stream.send_window = self._settings.initial_window
        if not body:
            self._write(head)
            return
        stream.body = memoryview(body)
        if stream.send_window > 0:
            self._ready.append(stream)
        self.go_on(head)

    def stop(self, stream: Stream) -> None:
        """Stop sending a body."""
        stream.body = None
        if stream in self._ready:
            self._ready.remove(stream)

    def widen(self, size: int) -> None:
        """Widen the connection's window by ``size`` bytes, after a WINDOW_UPDATE.

        Raises:
            ConnectionFault: the size is 0, or the window becomes too large.

        """
        if not size:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a WINDOW_UPDATE of zero bytes")
        self.window += size
        if self.window > MAX_WINDOW_BYTES:
            raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "a connection's window that is too large")

    def widen_stream(self, stream: Stream, size: int) -> None:
        """Widen the window of ``stream`` by ``size`` bytes, after a WINDOW_UPDATE.

        Raises:
            StreamFault: the size is 0, or the window becomes too large.

        """
        if not size:
            raise StreamFault(Code.PROTOCOL_ERROR, "a WINDOW_UPDATE of zero bytes")
        self.change_window(stream, size)

    def change_window(self, stream: Stream, size: int) -> None:
        """Change a stream's window by ``size``, which may be negative, as may the window.

        Raises:
            StreamFault: the window becomes too large.

        """
        stream.send_window += size
        if stream.send_window > MAX_WINDOW_BYTES:
            raise StreamFault(Code.FLOW_CONTROL_ERROR, "a stream's window that is too large")
        if stream.body is not None and stream.send_window > 0 and stream not in self._ready:
            self._ready.append(stream)

    def go_on(self, before: bytes = b"") -> int:
        """Send ``before``, and as much of bodies as possible; return the number of their bytes."""
        pieces: list[bytes | memoryview] = [before] if before else []
        sent = batch = 0
        while self._ready and self.window > 0 and not self.paused:
            stream = self._ready.popleft()
            size = self._take_turn(stream, pieces)
            sent += size
            batch += size
            if batch >= _TURN_BYTES:
                self._write(b"".join(pieces))  # may call pause_writing
                pieces.clear()
                batch = 0
        if pieces:
            self._write(b"".join(pieces))
        return sent

    def _take_turn(self, stream: Stream, pieces: list[bytes | memoryview]) -> int:
        """Add the next frames of a body to ``pieces``."""
        body, begin = stream.body, stream.sent
        if body is None or stream.send_window <= 0:  # the server may have reduced the window
            return 0
        size = min(len(body) - begin, stream.send_window, self.window, _TURN_BYTES)
        end = begin + size
        last = end == len(body)
        max_frame = self._settings.max_frame
        for at in range(begin, end, max_frame):
            after = min(at + max_frame, end)
            flags = END_STREAM if last and after == end else 0
            pieces.append(HEADER.pack((after - at) << 8 | Kind.DATA, flags, stream.id))
            pieces.append(body[at:after])
        self.window -= size
        stream.send_window -= size
        stream.sent = end
        if last:
            stream.body = None
        elif stream.send_window > 0:
            self._ready.append(stream)
        return size
