"""An answer that is not raced, over HTTP: what is JSON is read whole and judged, of anything else its beginning.

Sound, pictures and texts are passed on as they come. Their type as declared is what tells them from an error: what is
declared as JSON, or as nothing in particular and looks like an object, is read to its end first.
"""

from collections.abc import Sequence

import msgspec

from providers.error_bodies import error_in, says_error
from providers.errors import ErrorKind, UpstreamError
from providers.http.encoding import Body
from providers.http.response import Response
from providers.http_exchange import read_body
from providers.json_stream import read_answer
from providers.sse import EventSplitter, events
from providers.usage import Usage
from providers.whole_answers import reported_usage

_LARGEST_ANSWER_BYTES = 128 * 1024 * 1024  # two thousand embeddings are some 80 MiB
_JSON_ONLY = frozenset({"embeddings", "moderations", "rerank", "messages/count_tokens"})
_LONGEST_SILENCE_BYTES = 1024 * 1024  # of comments before the first event
_EVENTS = "text/event-stream"
_UNSAID = ("", "text/plain", "binary/octet-stream")

_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])


def comes_whole(path: str) -> bool:
    """Tell whether every answer of the API at ``path`` is one JSON object, so that it may as well come compressed."""
    return path in _JSON_ONLY


async def read_beginning(path: str, response: Body, secrets: Sequence[str]) -> tuple[bytes, "HttpRest | None"]:
    """Return the answer if it comes whole, else its first bytes, and the rest of it.

    Raises:
        UpstreamError: it says that it is an error, is empty, or is not what the API at ``path`` answers with.

    """
    declared = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_json = declared == "application/json" or declared.endswith("+json")
    if comes_whole(path) or declared == "text/html":
        body = await read_body(response, _LARGEST_ANSWER_BYTES)
        read_answer(body, secrets)
        return body, None
    head = await response.read()
    if is_json or (declared in _UNSAID and head.lstrip().startswith(b"{")):
        body = await read_body(response, _LARGEST_ANSWER_BYTES, head)
        # Whoever transcribes to plain text may still call it JSON.
        if not path.startswith("audio/") or body.lstrip().startswith(b"{") or not body.strip():
            _judge(body, secrets, is_json=is_json)
        return body, None
    if declared == _EVENTS:
        return await _read_events(head, response, secrets)
    if not head and not (declared.startswith("text/") and path.startswith("audio/")):  # silence has no words
        raise UpstreamError(ErrorKind.UPSTREAM_EMPTY, "answered with an empty body")
    rest = HttpRest(response, None)
    await rest.look_for_end()
    return (head, None) if rest.ended else (head, rest)


class HttpRest:
    """What is still to come of an answer; each read is passed on as it came."""

    def __init__(self, response: Body, watch: "_Watch | None") -> None:
        self.ended = False  # all of it was read
        self._response = response
        self._watch = watch
        self._broken: UpstreamError | None = None

    @property
    def usage(self) -> Usage | None:
        """The tokens that an event has reported so far."""
        return self._watch.usage if self._watch is not None else None

    @property
    def error(self) -> UpstreamError | None:
        """The error that an event has told of; it is among what was read."""
        return self._watch.error if self._watch is not None else None

    async def read(self) -> bytes:
        """Return the next bytes, ``b""`` at the end.

        Raises:
            UpstreamError: the connection broke.

        """
        if self._broken is not None:
            raise self._broken
        data = await self._response.read()
        if self._watch is not None:
            self._watch.see(data)
        if data:
            await self.look_for_end()
        else:
            self.ended = True
        return data

    async def look_for_end(self) -> None:
        """Learn whether what was read last was all of it, as far as that is known already. Waits for nothing."""
        # A compressed body has more to give after its connection has none.
        if isinstance(self._response, Response) and self._response.ended and not self._response.buffered:
            try:
                self.ended = not await self._response.read()
            except UpstreamError as error:
                self._broken = error

    def abort(self) -> None:
        """Drop the exchange at once; harmless when it is over."""
        self._response.abort()


class _Watch:
    """Looks along at a stream of events, for the tokens and the error it may tell of."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self.usage: Usage | None = None
        self.error: UpstreamError | None = None
        self.begun = False  # an event that is no comment has come
        self._secrets = secrets
        self._splitter: EventSplitter | None = EventSplitter()

    def see(self, data: bytes) -> None:
        if self._splitter is None:
            return
        try:
            block = self._splitter.feed(data) if data else self._splitter.rest()
        except UpstreamError:  # an event larger than is looked into: it is passed on all the same
            self.begun, self._splitter = True, None
            return
        for event in events(block) if block else ():
            if event.data:
                self.begun = True
                if b'"usage"' in event.data or b'"error"' in event.data:
                    self._read(event.data)

    def _read(self, data: bytes) -> None:
        try:
            said = _objects.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        if says_error(said) or bytes(said.get("type", b"")) == b'"error"':
            self.error = error_in(data, self._secrets, otherwise=ErrorKind.STREAM_ERROR)
        else:
            self.usage = reported_usage(data) or self.usage


async def _read_events(head: bytes, response: Body, secrets: Sequence[str]) -> tuple[bytes, HttpRest | None]:
    """Read up to the first event, which may be an error."""
    watch = _Watch(secrets)
    rest = HttpRest(response, watch)
    watch.see(head)
    while not watch.begun and len(head) < _LONGEST_SILENCE_BYTES and (data := await rest.read()):
        head += data
    if watch.error is not None:
        raise watch.error
    if not watch.begun:
        raise UpstreamError(ErrorKind.UPSTREAM_EMPTY, "answered with a stream of no events")
    return head, rest


def _judge(body: bytes, secrets: Sequence[str], *, is_json: bool) -> None:
    """Raise what a body that may be JSON says of an error; where it is only taken for JSON it may be anything else."""
    if is_json:
        read_answer(body, secrets)
        return
    try:
        said = _objects.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if says_error(said):
        raise error_in(body, secrets, otherwise=ErrorKind.SERVER_ERROR)
