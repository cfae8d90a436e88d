"""One exchange on an HTTP/2 connection: what is known of it on the way out and on the way in."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from providers.http.frames import Code, StreamFault
from providers.http.header_blocks import check_regular, response_head
from providers.http.limits import HTTP2_STREAM_BYTES, HTTP2_WHOLE_BYTES, INTERIM_RESPONSES
from providers.http.response import Field, Response

_FIRST_FINAL_STATUS = 200


class Line(Protocol):
    """The connection, as an exchange sees it."""

    def credit(self, stream: "Stream") -> None:
        """Tell the server that what was taken may be sent again."""

    def cancel(self, stream: "Stream") -> None:
        """Stop the exchange now."""


class Stream:
    """An exchange under way. It is its response's ``Source``.

    ``plain`` is set once DATA needs no more than to be passed on: the head is in and promised no length.
    """

    __slots__ = (
        *("_line", "_method", "id", "may_resend", "response"),
        *("body", "send_window", "sent"),
        *("_interim", "_length", "_wide", "begun", "plain", "received", "taken_bytes", "window"),
    )

    def __init__(
        self, line: Line, loop: asyncio.AbstractEventLoop, stream_id: int, method: str, connect_ms: float | None
    ) -> None:
        self.id = stream_id
        self.response = Response(self, loop, connect_ms)
        self.may_resend = False  # should the connection turn out to be gone: it is old, and nothing has come back
        # On the way out:
        self.body: memoryview | None = None  # None: all of it has been sent
        self.sent = 0  # bytes of ``body``
        self.send_window = 0
        # On the way in:
        self.begun = False
        self.plain = False
        self.window = HTTP2_STREAM_BYTES
        self.received = 0  # bytes of the body, while ``plain`` is not set
        self.taken_bytes = 0  # by the reader, and not yet told to the server
        self._line = line
        self._method = method
        self._interim = 0
        self._length: int | None = None
        self._wide = False

    def taken(self, response: Response, size: int) -> None:  # noqa: ARG002 - a stream has only one
        """Let the server send more, once it is worth a frame."""
        self.taken_bytes += size
        if self.taken_bytes >= HTTP2_STREAM_BYTES // 2:
            self._line.credit(self)

    def widen(self, response: Response) -> None:  # noqa: ARG002 - a stream has only one
        """Let the server send further ahead."""
        if not self._wide:
            self._wide = True
            self.taken_bytes += HTTP2_WHOLE_BYTES - HTTP2_STREAM_BYTES
            self._line.credit(self)

    def drop(self, response: Response) -> None:  # noqa: ARG002 - a stream has only one
        """Stop the exchange now."""
        self._line.cancel(self)

    def take_head(self, fields: Sequence[Field], *, ends: bool) -> None:
        """Take a header block: the head, a 1xx before it, or trailers.

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
        self._length = length
        self.plain = length is None
        self.response.begin(status, fields[1:])

    def take_data(self, data: bytes, size: int) -> None:
        """Take a piece of the body, which may be empty, and ``size`` bytes with its padding.

        Raises:
            StreamFault: there should be none, or not as much.

        """
        self.window -= size
        if self.window < 0:
            raise StreamFault(Code.FLOW_CONTROL_ERROR, "more than the stream's window")
        if not self.begun:
            raise StreamFault(Code.PROTOCOL_ERROR, "a body without a head")
        self.received += len(data)
        if self._length is not None and self.received > self._length:
            raise StreamFault(Code.PROTOCOL_ERROR, "more body than its content-length says")
        if data:
            self.response.feed(data)

    def check_end(self) -> None:
        """Check that the body may end here.

        Raises:
            StreamFault: it is shorter than was promised.

        """
        if self._length is not None and self.received != self._length:
            raise StreamFault(Code.PROTOCOL_ERROR, "less body than its content-length says")
