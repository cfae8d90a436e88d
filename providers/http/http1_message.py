"""What httptools finds in the answers of one HTTP/1.1 connection: a head, pieces of a body, and an end."""

from typing import TYPE_CHECKING

from httptools import HttpResponseParser

from providers.http.limits import HEAD_BYTES, HEAD_FIELDS, INTERIM_RESPONSES

if TYPE_CHECKING:
    from providers.http.response import Field, Response

OVERSIZED = f"more than {HEAD_BYTES // 1024} KiB or {HEAD_FIELDS} fields of head"
_FIRST_STATUS, _FIRST_FINAL_STATUS = 100, 200  # interim responses have a status between these


class Fault(Exception):
    """The server violates the protocol. Raised inside a callback of the parser, which stops then."""


class Message:
    """The current answer, as far as it has been parsed; ``parser`` calls the methods below while it is fed."""

    __slots__ = ("complete", "fields", "interim", "keep_alive", "on_body", "parser", "pieces", "response")

    def __init__(self) -> None:
        self.parser: HttpResponseParser | None = None  # None: the connection is not open
        self.response: Response | None = None  # None: nothing was requested
        self.fields: list[Field] = []
        self.pieces: list[bytes] = []
        self.on_body = self.pieces.append  # called by httptools for each chunk, so about once per token
        self.complete = False
        self.interim = 0
        self.keep_alive = False

    def open(self) -> None:
        """Begin to parse."""
        self.parser = HttpResponseParser(self)

    def on_message_begin(self) -> None:
        """Begin a message: an interim response, or the one response."""
        if self.complete:
            raise Fault("a second response to one request")  # its body must not be added to this one's
        self.fields = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field of the head, or of the trailers, which are ignored."""
        if len(self.fields) == HEAD_FIELDS:
            raise Fault(OVERSIZED)
        self.fields.append((name, value))

    def on_headers_complete(self) -> None:
        """Begin the response."""
        assert self.parser is not None
        assert self.response is not None
        status = self.parser.get_status_code()
        if sum(len(name) + len(value) for name, value in self.fields) > HEAD_BYTES:
            raise Fault(OVERSIZED)
        if status >= _FIRST_FINAL_STATUS:
            self.keep_alive = self.parser.should_keep_alive()
            self.response.begin(status, self.fields)
            self.fields = []
            return
        self.interim += 1
        if status < _FIRST_STATUS or self.interim > INTERIM_RESPONSES:
            raise Fault(f"{self.interim} interim responses, the last with status {status}")

    def on_message_complete(self) -> None:
        """End the response, unless it is an interim one."""
        if self.response is not None and self.response.status:
            self.complete = True
