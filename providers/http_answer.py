"""Answers that are not raced, over HTTP: JSON is read completely and checked, of anything else only the beginning.

Audio, images and texts are streamed to the client. Their declared type distinguishes them from errors: what is declared
as JSON, or has no specific type and looks like an object, is read completely first.
"""

from collections.abc import Sequence

import msgspec

from providers.error_bodies import error_in, says_error
from providers.errors import ErrorKind, UpstreamError
from providers.event_masks import complains, masked, masked_answer, masked_body
from providers.http.encoding import Body
from providers.http.response import Response
from providers.http_exchange import read_body
from providers.json_answer import read_answer
from providers.sse import Event, EventSplitter, events
from providers.usage import Usage
from providers.whole_answers import reported

_LARGEST_ANSWER_BYTES = 128 * 1024 * 1024  # two thousand embeddings are about 80 MiB
_JSON_ONLY = frozenset({"embeddings", "moderations", "rerank", "messages/count_tokens"})
_LARGEST_EVENT_BYTES = 32 * 1024 * 1024  # held back until it is complete
_LONGEST_SILENCE_BYTES = 1024 * 1024  # of comments before the first event
_EVENTS = "text/event-stream"
_UNSAID = ("", "text/plain", "binary/octet-stream")

_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])


def comes_whole(path: str) -> bool:
    """Whether every answer of the API at ``path`` is one JSON object, so that it can be compressed."""
    return path in _JSON_ONLY


async def read_beginning(path: str, response: Body, secrets: Sequence[str]) -> tuple[bytes, "HttpRest | None"]:
    """Return the complete answer if it is JSON, else its first bytes and the rest.

    Raises:
        UpstreamError: it is an error, empty, or not an answer of the API at ``path``.

    """
    declared = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_json = declared == "application/json" or declared.endswith("+json")
    if comes_whole(path) or declared == "text/html":
        body = await read_body(response, _LARGEST_ANSWER_BYTES)
        read_answer(body, secrets)
        return masked_body(body, secrets), None
    head = await response.read()
    if is_json or (declared in _UNSAID and head.lstrip().startswith(b"{")):
        body = await read_body(response, _LARGEST_ANSWER_BYTES, head)
        # Some servers declare a transcription in plain text as JSON.
        if not path.startswith("audio/") or body.lstrip().startswith(b"{") or not body.strip():
            _judge(body, secrets, is_json=is_json)
        return masked_body(body, secrets), None
    if declared == _EVENTS:
        return await _read_events(head, response, secrets)
    # The transcription of silence is empty.
    if not head and not (declared.startswith("text/") and path.startswith("audio/")):
        raise UpstreamError(ErrorKind.UPSTREAM_EMPTY, "answered with an empty body")
    rest = HttpRest(response, None)
    await rest.look_for_end()
    return (head, None) if rest.ended else (head, rest)


class HttpRest:
    """The rest of an answer. Each read is passed on unchanged; of an event stream only complete events."""

    def __init__(self, response: Body, stream: "_Stream | None") -> None:
        self.ended = False  # all of it has been read
        self._response = response
        self._stream = stream
        self._broken: UpstreamError | None = None

    @property
    def usage(self) -> Usage | None:
        """The usage from the events so far."""
        return self._stream.usage if self._stream is not None else None

    @property
    def model(self) -> str | None:
        """The model from the events so far."""
        return self._stream.model if self._stream is not None else None

    @property
    def error(self) -> UpstreamError | None:
        """The error from an event, which is also in the bytes that were read."""
        return self._stream.error if self._stream is not None else None

    async def read(self) -> bytes:
        """Return the next bytes; ``b""`` at the end, or if none can be passed on yet.

        Raises:
            UpstreamError: the connection broke.

        """
        if self._broken is not None:
            raise self._broken
        data = await self._response.read()
        if data:
            await self.look_for_end()
        else:
            self.ended = True
        return self.passed_on(data)

    def passed_on(self, data: bytes) -> bytes:
        """Return the part of ``data``, and of data held back before, that can be passed on now."""
        if self._stream is None:
            return data
        return self._stream.feed(data) + (self._stream.rest() if self.ended else b"")

    async def look_for_end(self) -> None:
        """Set ``ended`` if it is already known that the last read was the end. Does not wait."""
        # A compressed body may have more output after the last byte from the connection.
        if isinstance(self._response, Response) and self._response.ended and not self._response.buffered:
            try:
                self.ended = not await self._response.read()
            except UpstreamError as error:
                self._broken = error

    def abort(self) -> None:
        """Drop the exchange at once; without effect after the end."""
        self._response.abort()


class _Stream:
    """An event stream that is passed on: its usage and error are noted, and our keys masked."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self.usage: Usage | None = None
        self.model: str | None = None
        self.error: UpstreamError | None = None
        self.begun = False  # there was an event that is not a comment
        self._secrets = secrets
        self._splitter = EventSplitter(tail_limit_bytes=_LARGEST_ANSWER_BYTES)
        self._looks = True

    def feed(self, data: bytes) -> bytes:
        """Return the events that are complete now."""
        if not self._looks or not data:
            return data
        passed = self._seen(self._splitter.feed(data))
        if self._splitter.held_bytes > _LARGEST_EVENT_BYTES:  # passed on without being parsed
            self.begun, self._looks = True, False
            passed += self._splitter.tail()
        return passed

    def rest(self) -> bytes:
        """Return the incomplete event at the end."""
        return self._seen(self._splitter.rest())

    def _seen(self, block: bytes) -> bytes:
        seen = list(map(self._see, events(block))) if block else []
        return b"".join(event.raw for event in seen)

    def _see(self, event: Event) -> Event:
        if not event.is_one_line:
            event = masked(event, self._secrets)
        if not event.data:
            return event
        self.begun = True
        event = masked_answer(event, self._secrets)
        if b'"usage"' in event.data or b'"error"' in event.data:
            return self._read(event)
        return masked(event, self._secrets, is_error=True) if complains(event.data) else event

    def _read(self, event: Event) -> Event:
        try:
            said = _objects.decode(event.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return event
        if says_error(said) or bytes(said.get("type", b"")) == b'"error"':
            self.error = error_in(event.data, self._secrets, otherwise=ErrorKind.STREAM_ERROR)
            return masked(event, self._secrets, is_error=True)
        said_of = reported(event.data)
        self.usage, self.model = said_of.usage or self.usage, said_of.model or self.model
        return event


async def _read_events(head: bytes, response: Body, secrets: Sequence[str]) -> tuple[bytes, HttpRest | None]:
    """Read until the first event, which may be an error."""
    stream = _Stream(secrets)
    rest = HttpRest(response, stream)
    head = rest.passed_on(head)
    while not stream.begun and not rest.ended and len(head) < _LONGEST_SILENCE_BYTES:
        head += await rest.read()
    if stream.error is not None:
        raise stream.error
    if not stream.begun:
        raise UpstreamError(ErrorKind.UPSTREAM_EMPTY, "answered with an event stream without events")
    return head, rest


def _judge(body: bytes, secrets: Sequence[str], *, is_json: bool) -> None:
    """Raise the error in a body, if there is one. It must be JSON if ``is_json``, else it may be anything."""
    if is_json:
        read_answer(body, secrets)
        return
    try:
        said = _objects.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if says_error(said):
        raise error_in(body, secrets, otherwise=ErrorKind.SERVER_ERROR)
