"""One HTTP/2 connection, client side: how it and its exchanges begin and end.

Many exchanges share it, and dropping one costs a single frame. All frames that one read causes are sent in one write.
It follows RFC 9113; ``limits.py`` has the limits on what a server can make us store or do.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from providers.http import frames
from providers.http.frames import EMPTY_TABLE, Code, ConnectionFault, FrameKind, StreamFault, code_name, request_block
from providers.http.http2_receiving import Receiving
from providers.http.http2_stream import BodySender, Outgoing, PeerSettings, Stream, hello
from providers.http.message import (
    HTTP2_ANSWER_S,
    HTTP2_QUIET_S,
    HTTP2_RESETS,
    HTTP2_RESETS_WEARING,
    HTTP2_WINDOW_S,
    ConnectionOwner,
    HttpRequest,
    Response,
    Unsent,
)
from providers.refusals import ErrorKind, UpstreamError, redact

if TYPE_CHECKING:
    from providers.http.addresses import Place
    from providers.http.batches import Batches

# Which error an exchange on an HTTP/2 connection ends with, and whether its request may be sent again (``Unsent``).


def lost(stream: Stream, exc: Exception | None, goaway: int | None) -> UpstreamError | Unsent:
    """Return the error of an exchange whose connection has ended; ``goaway`` is the server's code for it, if any."""
    if goaway is not None:
        message = f"the provider gave up the connection ({code_name(goaway)})"
    elif stream.begun:
        message = "the connection broke in the middle of the answer"
    elif stream.may_resend:
        return Unsent("kept connection lost")
    elif exc is not None:
        message = redact(f"the connection broke ({exc})")
    else:
        message = "the connection was closed before the answer"
    return UpstreamError(ErrorKind.DISCONNECTED, message)


def reset(stream: Stream, code: int) -> UpstreamError | Unsent:
    """Return the error of an exchange that the server reset."""
    if code == Code.REFUSED_STREAM and not stream.begun:
        return Unsent("the provider refused the stream")
    where = "in the middle of" if stream.begun else "before"
    message = f"the provider reset the stream {where} the answer ({code_name(code)})"
    return UpstreamError(ErrorKind.DISCONNECTED, message)


def no_http(fault: ConnectionFault | StreamFault) -> UpstreamError:
    """Return the error of an answer that violates the protocol."""
    return UpstreamError(ErrorKind.INVALID_RESPONSE, redact(f"its answer is not valid HTTP/2 ({fault.problem})"))


_PROGRESS_BYTES = 256  # of a body; smaller increments of a window do not count as progress


class Http2Connection(asyncio.Protocol):
    """A connection with several exchanges at a time, which stays open when one of them is dropped."""

    version = "2"

    def __init__(self, owner: ConnectionOwner, loop: asyncio.AbstractEventLoop, connect_ms: float | None) -> None:
        self.room = 0
        self.connect_ms = connect_ms  # for the first response; later ones did not wait for the connection
        self.idle_since = loop.time()
        self.closed = False
        self.next_id = 1  # the id of the next stream
        self.batches: Batches | None = None
        self.place: Place | None = None
        self._owner = owner
        self._loop = loop
        self._out = Outgoing()
        self._streams: dict[int, Stream] = {}
        self._settings = PeerSettings()
        self._bodies = BodySender(self._settings, self._out.write)
        self._receiving = Receiving(self, self._streams, self._settings, self._bodies, self._out)
        self._kept = False  # it has had an exchange, or was opened in advance
        self._retired = False  # it accepts no more requests, and its owner was notified
        self._silence: asyncio.TimerHandle | None = None  # runs until our PING is answered
        self._held_up: asyncio.TimerHandle | None = None  # runs until the server accepts more of the waiting bodies
        self._trickled = 0  # bytes of bodies that it has accepted meanwhile

    @property
    def streams(self) -> int:
        """The number of exchanges under way."""
        return len(self._streams)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to accept requests, without waiting for the server's SETTINGS."""
        self._out.connect(cast("asyncio.Transport", transport))  # uvloop's is not a subclass
        self._out.write(hello())
        self.room = self._settings.streams

    def alive(self) -> bool:
        """Whether the connection can be used."""
        return not self._retired and self._out.is_open()

    def takes(self, size: int) -> bool:
        """Whether a body of ``size`` bytes can be sent without waiting for the server to open a window."""
        return size <= min(self._bodies.window, self._settings.initial_window)

    def send(self, request: HttpRequest) -> Response:
        """Send ``request`` and return the response before it arrives."""
        stream_id = self.next_id
        stream = Stream(self, self._loop, stream_id, request.head.method, self.connect_ms)
        stream.response.batches = self.batches
        if not self.alive():
            stream.response.fail(Unsent("the connection is gone"))
            return stream.response
        request.sendings.number += 1
        if stream_id == 1:
            self._kept = self.connect_ms is None
        self.connect_ms = None
        block = request_block(request) if stream_id > 1 else EMPTY_TABLE + request_block(request)
        head = frames.headers(stream_id, block, self._settings.max_frame, end=not request.body)
        if not self.streams and self._loop.time() - self.idle_since > HTTP2_QUIET_S and self._silence is None:
            head = frames.frame(FrameKind.PING, 0, 0, bytes(frames.PING_BYTES)) + head
            self._silence = self._loop.call_later(HTTP2_ANSWER_S, self._fall_silent)
        stream.may_resend = self._kept or self._silence is not None
        self.next_id += 2
        self._streams[stream_id] = stream
        self._receiving.useless = 0
        self.room -= 1
        self._bodies.start(stream, head, request.body)
        if stream.body is not None and self._held_up is None:
            self._await_window()
        if self.next_id > frames.MAX_STREAM_ID:
            self._retire()
        return stream.response

    def retire(self) -> None:
        """Accept no more requests, and end once the exchanges have ended."""
        self._retire()
        if not self.streams:
            self._shut(Code.NO_ERROR)

    def close(self) -> None:
        """Abort the connection and all its exchanges."""
        self._shut(Code.NO_ERROR)
        self._fail_all(lambda _: UpstreamError(ErrorKind.DISCONNECTED, "the connection was closed by the gateway"))

    def data_received(self, data: bytes) -> None:
        """Process data from the server."""
        if self.closed:
            return
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None
        self._out.hold()
        try:
            self._receiving.read(data)
        except ConnectionFault as fault:
            self._shut(fault.code)
            error = no_http(fault)
            self._fail_all(lambda _: error)
        finally:
            out = self._out.release()
        if (out or self._receiving.widened) and not self.closed:
            self._answer(out)

    def pause_writing(self) -> None:
        """Pause request bodies; other frames are short, and still sent."""
        self._bodies.paused = True

    def resume_writing(self) -> None:
        """Resume request bodies."""
        self._bodies.paused = False
        if not self.closed:
            self._moved(self._bodies.go_on())

    def eof_received(self) -> None:
        """Process the end of the server's data, which ends the connection."""
        self._lose(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Process the end of the connection."""
        self._lose(exc)
        self._out.disconnect()

    def credit(self, stream: Stream) -> None:
        """Open the window of ``stream`` by the number of bytes that its reader has read."""
        self._out.write(frames.window_update(stream.id, stream.taken_bytes))
        stream.window += stream.taken_bytes
        stream.taken_bytes = 0

    def cancel(self, stream: Stream) -> None:
        """Reset a stream whose response was dropped."""
        if stream.id in self._streams:
            self._reset(stream, Code.CANCEL)

    def end(self, stream: Stream) -> None:
        """End an exchange whose response is complete."""
        if stream.body is not None:  # the server answered without reading the whole body
            self._out.write(frames.reset(stream.id, Code.NO_ERROR))
        stream.response.end()
        self._forget(stream)

    def refute(self, stream: Stream, fault: StreamFault, *, ended: bool) -> None:
        """End an exchange after a stream error; ``ended``: the server has ended its side already."""
        stream.response.fail(no_http(fault))
        if not ended:
            self._reset(stream, fault.code)
            return
        if stream.body is not None:
            self._out.write(frames.reset(stream.id, fault.code))
        self._forget(stream)

    def was_reset(self, stream: Stream, code: int) -> None:
        """End an exchange that the server reset."""
        stream.response.fail(reset(stream, code))
        self._forget(stream)

    def resettle(self) -> None:
        """Update ``room`` after new SETTINGS from the server."""
        before = self.room
        self._make_room()
        if self.room > before == 0:
            self._owner.freed(self)

    def go_away(self, last_id: int) -> None:
        """Accept no more requests after a GOAWAY; exchanges that the server began to process continue."""
        self._retire()
        for stream in list(self._streams.values()):
            if stream.id > last_id:
                stream.response.fail(
                    lost(stream, None, self._receiving.goaway) if stream.begun else Unsent("the provider sent GOAWAY")
                )
                self._forget(stream)
            elif last_id != frames.MAX_STREAM_ID:  # the maximal id only announces a second GOAWAY
                stream.may_resend = False
        if not self.streams:
            self._shut(Code.NO_ERROR)

    def _answer(self, out: bytes) -> None:
        """Send the frames that one read has caused, and the parts of bodies that can be sent now."""
        if not self._receiving.widened:
            self._out.write(out)
            return
        self._receiving.widened = False
        sent = self._bodies.go_on(out)
        if sent >= _PROGRESS_BYTES:
            self._receiving.useless = 0
        self._moved(sent)

    def _await_window(self) -> None:
        """Limit the time until the server accepts more of the waiting bodies; cancelled calls do not end it."""
        self._trickled = 0
        self._held_up = self._loop.call_later(HTTP2_WINDOW_S, self._give_up_bodies)

    def _moved(self, sent: int) -> None:
        """Note that the server has accepted ``sent`` bytes of bodies, or widened a window by as much."""
        if self._held_up is None or not sent:
            return
        self._trickled += sent
        waits = any(stream.body is not None for stream in self._streams.values())
        if self._trickled >= _PROGRESS_BYTES or not waits:
            self._held_up.cancel()
            self._held_up = None
            if waits:
                self._await_window()

    def _give_up_bodies(self) -> None:
        """Retire a connection whose server accepts no bodies; the calls that wait for it go to another one."""
        self._held_up = None
        self._retire()
        for stream in list(self._streams.values()):
            if stream.body is not None and not stream.begun:
                stream.response.fail(Unsent("the provider opened no window for the request"))
                self._reset(stream, Code.CANCEL)
        if not self.streams:
            self._shut(Code.NO_ERROR)

    def _reset(self, stream: Stream, code: Code) -> None:
        self._out.write(frames.reset(stream.id, code))
        resets = self._receiving.orphan(stream)
        if resets == HTTP2_RESETS_WEARING and not self._retired:
            self._owner.wearing(self)
        elif resets == HTTP2_RESETS:
            self._retire()
        self._forget(stream)

    def _forget(self, stream: Stream) -> None:
        """Forget an exchange that has ended."""
        del self._streams[stream.id]
        if stream.body is not None:
            self._bodies.stop(stream)
        self._kept = True
        self.idle_since = self._loop.time()
        self._make_room()
        if self.room:
            self._owner.freed(self)
        elif self._retired and not self.streams:
            self._shut(Code.NO_ERROR)

    def _make_room(self) -> None:
        self.room = 0 if self._retired else max(0, self._settings.streams - self.streams)

    def _retire(self) -> None:
        """Accept no more requests."""
        self.room = 0
        if not self._retired:
            self._retired = True
            self._owner.gone(self, dropped=False)

    def _shut(self, code: Code) -> None:
        """Send GOAWAY and abort: a TLS close would wait for the server."""
        if not self.closed:
            self._out.write(self._out.release() + frames.goaway(code))
            self._abort()

    def _abort(self) -> None:
        self.closed = True
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None
        if self._held_up is not None:
            self._held_up.cancel()
            self._held_up = None
        self._out.abort()

    def _fall_silent(self) -> None:
        """Close a connection on which nothing arrives, not even the answer to a PING."""
        self._silence = None
        self._lose(TimeoutError("nothing arrived, not even the answer to a PING"))

    def _lose(self, exc: Exception | None) -> None:
        if not self.closed:
            self._abort()
            self._fail_all(lambda stream: lost(stream, exc, self._receiving.goaway))

    def _fail_all(self, error: Callable[[Stream], UpstreamError | Unsent]) -> None:
        streams = list(self._streams.values())
        self._streams.clear()
        self._retire()
        for stream in streams:
            self._bodies.stop(stream)
            stream.response.fail(error(stream))
