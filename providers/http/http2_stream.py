"""One exchange on an HTTP/2 connection: the state of its request and of its response."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from providers.http.frames import Code, StreamFault
from providers.http.header_blocks import check_regular, response_head
from providers.http.limits import HTTP2_STREAM_BYTES, HTTP2_WHOLE_BYTES, INTERIM_RESPONSES
from providers.http.response import Field, Response

_FIRST_FINAL_STATUS = 200


class Line(Protocol):
    """The connection, as far as an exchange needs it."""

    def credit(self, stream: "Stream") -> None:
        """Send a WINDOW_UPDATE for the bytes that were read."""

    def cancel(self, stream: "Stream") -> None:
        """Reset the exchange now."""


class Stream:
    """An exchange that has not ended. It is the ``Source`` of its response.

    ``plain`` is set when DATA only has to be passed on: the head has arrived, without a content-length.
    """

    __slots__ = (
        *("_line", "_method", "id", "may_resend", "response"),
        *("body", "send_window", "sent"),
        *("_interim", "_left_bytes", "_wide", "begun", "plain", "taken_bytes", "window"),
    )

    def __init__(
        self, line: Line, loop: asyncio.AbstractEventLoop, stream_id: int, method: str, connect_ms: float | None
    ) -> None:
        self.id = stream_id
        self.response = Response(self, loop, connect_ms)
        self.may_resend = False  # if the connection turns out to be closed: it was kept, and nothing has arrived
        # Of the request:
        self.body: memoryview | None = None  # None: all of it was sent
        self.sent = 0  # bytes of ``body`` that were sent
        self.send_window = 0
        # Of the response:
        self.begun = False
        self.plain = False
        self.window = HTTP2_STREAM_BYTES
        self.taken_bytes = 0  # bytes that were read, without a WINDOW_UPDATE so far
        self._line = line
        self._method = method
        self._interim = 0
        self._left_bytes: int | None = None  # of a body with a content-length
        self._wide = False

    def taken(self, response: Response, size: int) -> None:  # noqa: ARG002 - a stream has only one
        """Let the server send more, once enough was read for a WINDOW_UPDATE."""
        self.taken_bytes += size
        if self.taken_bytes >= HTTP2_STREAM_BYTES // 2:
            self._line.credit(self)

    def widen(self, response: Response) -> None:  # noqa: ARG002 - a stream has only one
        """Widen the window, so that the server may send more in advance."""
        if not self._wide:
            self._wide = True
            self.taken_bytes += HTTP2_WHOLE_BYTES - HTTP2_STREAM_BYTES
            self._line.credit(self)

    def drop(self, response: Response) -> None:  # noqa: ARG002 - a stream has only one
        """Reset the exchange now."""
        self._line.cancel(self)

    def take_head(self, fields: Sequence[Field], *, ends: bool) -> None:
        """Process a header block: the head, an interim response, or trailers.

        Raises:
            StreamFault: HTTP/2 does not allow it.

        """
        if self.begun:
            if not ends:
                raise StreamFault(Code.PROTOCOL_ERROR, "trailers in the middle of the body")
            check_regular(fields)
            return
        self.may_resend = False
        status, length = response_head(fields, self._method)
        if status < _FIRST_FINAL_STATUS:
            self._interim += 1
            if ends:
                raise StreamFault(Code.PROTOCOL_ERROR, f"nothing after status {status}")
            if self._interim > INTERIM_RESPONSES:
                raise StreamFault(Code.ENHANCE_YOUR_CALM, f"more than {INTERIM_RESPONSES} interim responses")
            return
        self.begun = True
        self._left_bytes = length
        self.plain = length is None
        self.response.begin(status, fields[1:])

    def take_data(self, data: bytes, size: int) -> None:
        """Process a piece of the body, which may be empty; ``size`` is its length with padding.

        Raises:
            StreamFault: a body is not allowed here, or it is too long.

        """
        self.window -= size
        if self.window < 0:
            raise StreamFault(Code.FLOW_CONTROL_ERROR, "more than the stream's window")
        if not self.begun:
            raise StreamFault(Code.PROTOCOL_ERROR, "a body without a head")
        if self._left_bytes is not None:
            self._left_bytes -= len(data)
            if self._left_bytes < 0:
                raise StreamFault(Code.PROTOCOL_ERROR, "more body than its content-length says")
        if data:
            self.response.feed(data)

    def check_end(self) -> None:
        """Check that the body may end here.

        Raises:
            StreamFault: it is shorter than its content-length.

        """
        if self._left_bytes:
            raise StreamFault(Code.PROTOCOL_ERROR, "less body than its content-length says")
