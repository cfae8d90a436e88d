"""One answer over HTTP: the response's body as an event stream, whatever the body's format."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from io import BytesIO

import msgspec

from providers.bodies import (
    LARGE_BYTES,
    MOST_SILENT_BYTES,
    Event,
    EventSplitter,
    HalfCharacters,
    Masking,
    aside,
    broken_within,
    check_room,
    check_room_for_answer,
    check_values,
    complains,
    cut_within_event,
    end_of_event,
    events,
    is_cut,
    masked,
    masked_answer,
    masked_body,
    set_apart,
    silent_bytes,
    too_many_comments,
    without_halves,
)
from providers.dialects import DIALECTS, DONE, Run, Splicer, Translation
from providers.exchange.interface import Exchange
from providers.http import Body, Response
from providers.models import Usage, outline, reported
from providers.refusals import (
    UNREADABLE,
    ErrorKind,
    UpstreamError,
    check_entries,
    error_in,
    holds,
    named_error,
    read_answer,
    redact,
    says_error,
)

_MIB = 1024 * 1024
_LARGEST_ANSWER_BYTES = 64 * _MIB  # of a whole body: 48 MiB of pictures

_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")
_FIELD = re.compile(rb"(?:data|event|id|retry)?:")
_SHOWN = re.compile(r"id$|ratelimit")
_BOM = b"\xef\xbb\xbf"
_BOM_AND_SPACE = _BOM + b" \r\n\t"


class HttpExchange:
    """The ``Exchange`` of a 2xx response. A JSON body is presented as a stream.

    The declared type alone does not decide: servers send events as text/plain, and JSON errors as text/event-stream.
    ``events_of_answer`` converts a whole answer in the provider's dialect into events.
    """

    finishing = False  # ends are passed on as they arrive
    usage_so_far = None  # no usage is kept back

    def __init__(
        self, response: Body, secrets: Sequence[str], events_of_answer: Callable[[bytes, Sequence[str]], bytes]
    ) -> None:
        self.status = response.status
        self.headers = masked_headers(response.headers, secrets)
        self.connect_ms = response.connect_ms
        self.secrets = secrets
        self._response = response
        self._events_of_answer = events_of_answer
        self._is_stream = False

    @property
    def ended(self) -> bool:
        """Whether the provider has sent everything."""
        return self._response.ended

    async def read(self) -> bytes:
        """Return the next bytes of the event stream unchanged, ``b""`` at the end.

        Raises:
            UpstreamError: the connection broke; or the body is neither an event stream nor a JSON answer.

        """
        try:
            return await (self._response.read() if self._is_stream else self._first_events())
        except BaseException:
            self.abort()
            raise

    def conclude(self) -> bytes:
        """Return nothing: no end is held back."""
        return b""

    def offer_to(self, listener: Callable[[bytes], bool]) -> None:
        """Call ``listener`` with data that arrive while ``read`` waits, unless they have to be decompressed first."""
        if self._is_stream and isinstance(self._response, Response):
            self._response.listener = listener

    def abort(self) -> None:
        """Drop the connection at once; without effect after the end."""
        self._response.abort()

    async def _first_events(self) -> bytes:
        head = await self._response.read()
        while head and _is_undecided(head) and (data := await self._response.read()):
            head += data
        self._is_stream = True
        start = head.lstrip(_BOM_AND_SPACE)
        if _FIELD.match(start):
            return head
        declared = "event-stream" in self.headers.get("content-type", "")
        if declared and start[:1] not in {b"{", b"[", b"<"}:
            return head
        body = await read_body(self._response, _LARGEST_ANSWER_BYTES, head)
        if len(body) > LARGE_BYTES:  # in a thread, so that other calls go on
            return await aside(self._events_of_large, body)
        return self._events_of_answer(body, self.secrets)

    def _events_of_large(self, body: bytes) -> bytes:
        check_room(10 * len(body))  # the events of a response repeat a text four times, and are joined
        check_values(body)
        return self._events_of_answer(body, self.secrets)


_SLICE_BYTES = 8 * 1024  # of many small events, which are translated in some two milliseconds


def _first_events(block: bytes) -> tuple[bytes, bytes]:
    """Return the first whole events, as many as are translated at once, and the others."""
    if len(block) <= 2 * _SLICE_BYTES or len(block) > LARGE_BYTES:
        return block, b""  # the large ones are translated in the thread, and not copied before
    end = block.find(b"\n\n", _SLICE_BYTES) + 2
    if end == 1:  # lines that end with CRLF; any others are translated at once
        end = block.find(b"\r\n\r\n", _SLICE_BYTES) + 4
    return (block[:end], block[end:]) if end > _SLICE_BYTES else (block, b"")


class TranslatedExchange:
    """An ``Exchange`` that repairs or translates events, by one of ``translations`` after the other.

    ``unsaid``: called with whole events that become no event of the target, or not yet, and with whether the answer is
    ``finishing``.
    """

    def __init__(
        self,
        exchange: Exchange,
        translations: Sequence[Translation],
        unsaid: Callable[[bytes, bool], None] = lambda _, __: None,
        *,
        splicer: Splicer | None = None,
    ) -> None:
        """``splicer``: of the ``translations``; None: plain events are translated like all others."""
        self.run: Run | None = None  # the plain events returned last, or offered; None: the data must be read
        self.status = exchange.status
        self.headers = exchange.headers
        self.connect_ms = exchange.connect_ms
        self.secrets = exchange.secrets
        self._exchange = exchange
        self._translations = translations
        self._unsaid = unsaid
        self._splicer = splicer
        self._splitter = EventSplitter()
        self._waiting = b""  # whole events that wait for translation
        self._halves = HalfCharacters()
        self._silent_bytes = 0
        self._over = False

    @property
    def ended(self) -> bool:
        """Whether the provider has sent everything."""
        return self._exchange.ended and not self._waiting

    async def read(self) -> bytes:
        """Return the next complete events, translated, ``b""`` at the end.

        Raises:
            UpstreamError: as of the inner exchange; or an event cannot be translated. ``before``: the translation of
                the events before.

        """
        block, self.run = b"", None
        while not block and not self._over:
            is_last = False
            if not self._waiting:
                try:
                    data = await self._exchange.read()
                except UpstreamError as error:
                    raise (error.after([self._translated(error.before)]) if error.before else error) from None
                is_last = not data
                self._waiting = self._splitter.feed(data) if data else self._splitter.rest()
                del data  # the data may be large
            if self._splicer is not None and not is_last and (run := self._plain(self._splicer)) is not None:
                self._waiting, self.run = self._waiting[run.end :], run
                return self._splicer.say(run)
            whole, self._waiting = (self._waiting, b"") if is_last else _first_events(self._waiting)
            self._over = is_last
            learns = self._splicer is not None and self._splicer.looks_at(whole)
            try:
                if len(whole) > LARGE_BYTES:  # in the thread, so that other calls go on
                    block = await aside(self._translated_large, whole)
                elif self._splicer is not None and learns and not is_last:
                    block = self._translated_singly(self._splicer, whole)
                else:
                    block = self._translated(whole)
            except UpstreamError as error:
                self.abort()
                raise broken_within(error).after([error.before]) if is_last else error from None
            if whole and not block:
                self._unsaid(whole.removesuffix(self._waiting) if learns else whole, self.finishing)
            if self._waiting and not (self._over or learns):  # what was translated singly is short, and must not wait
                await asyncio.sleep(0)
        return block

    @property
    def finishing(self) -> bool:
        """Whether the provider has sent the answer's end, which a translation holds back until the stream ends."""
        return any(translation.finishing for translation in self._translations)

    @property
    def usage_so_far(self) -> Usage | None:
        """The usage that the provider has reported, in the words of the provider's API."""
        usage = self._exchange.usage_so_far
        for each in self._translations:
            usage = usage or each.usage_so_far
        return usage

    def conclude(self) -> bytes:
        """Return the end of a ``finishing`` answer, as if the stream had ended here. The exchange is not read again."""
        self._over, self.run = True, None
        self.abort()
        self._splitter.tail()  # may be half an event
        waiting, self._waiting = self._waiting, b""
        try:
            return self._translated(waiting)
        except UpstreamError as error:
            return error.before + self._translated(b"")

    def offer_to(self, listener: Callable[[bytes], bool]) -> None:
        """Call ``listener`` with the translation of plain events that arrive while ``read`` waits."""
        if (splicer := self._splicer) is None:
            return

        def listening(data: bytes) -> bool:
            if self._waiting or self._splitter.holds_back or self._halves.held:
                return False
            run = splicer.find(data)
            if run is None or run.end != len(data):
                return False
            self.run = run
            is_taken = listener(splicer.said(run))
            self.run = None
            if is_taken:
                splicer.sent(run)
            return is_taken

        self._exchange.offer_to(listening)

    def abort(self) -> None:
        """Drop the exchange at once."""
        self._exchange.abort()

    def _plain(self, splicer: Splicer) -> Run | None:
        """Return the plain events that come next, if they can pass without translation."""
        waiting = self._waiting
        return None if self._halves.held or len(waiting) > LARGE_BYTES else splicer.find(waiting)

    def _translated_singly(self, splicer: Splicer, block: bytes) -> bytes:
        """Translate single events until the translation of plain ones is learnt. The others wait."""
        blocks: list[bytes] = []
        while block and splicer.learns and not self._over:
            end = end_of_event(block)
            event, block = block[:end], block[end:]
            try:
                blocks.append(self._translated(event))
            except UpstreamError as error:
                raise error.after([*blocks, error.before]) from None
            splicer.learn(event, blocks[-1], self.secrets)
        self._waiting = block + self._waiting if block else self._waiting
        return b"".join(blocks)

    def _translated_large(self, block: bytes) -> bytes:
        # Each step reads the block, builds objects and writes events into a buffer, which is copied as it grows.
        check_room((1 + 3 * len(self._translations)) * len(block))
        return self._translated(block)

    def _translated(self, block: bytes) -> bytes:
        """Apply all translations to ``block``. At the end of the answer, end each translation after the one before it.

        The answer ends with [DONE], also if no event of the target says so: nothing after [DONE] is waited for.

        Raises:
            UpstreamError: an event is malformed or an error. ``before``: the translation of the events before.

        """
        check_values(block)
        self._silent_bytes += silent_bytes(block)
        if self._silent_bytes > MOST_SILENT_BYTES:
            raise too_many_comments()
        block = self._halves.mend(set_apart(block))
        broken: UpstreamError | None = None
        if block.find(b"event:") >= 0 or block.find(b"data: [{") >= 0 or block.find(b"data:[{") >= 0:
            block, broken = self._until_error(block)
        for translation in self._translations:
            if block.find(DONE) >= 0 and any(event.data.strip() == DONE for event in events(block)):
                self._over = True
            try:
                block = translation.feed(block) if block else b""
            except UpstreamError as error:  # earlier in the answer than one behind this block
                broken = error
                block = error.before + translation.feed(b"")
            try:
                block += translation.end() if self._over and broken is None else b""
            except UpstreamError as error:  # the source has given the reason
                broken = error
        if broken is not None:
            raise broken.after([block])
        return block

    def _until_error(self, block: bytes) -> tuple[bytes, UpstreamError | None]:
        """Return the events before one that is an error by its name alone, or in an array, as Google sends some.

        Translations recognise other errors by the data.
        """
        all_events = events(block)
        for number, event in enumerate(all_events):
            is_called_one = b'"error"' in event.data
            if is_called_one and event.data.startswith(b"["):
                error: UpstreamError | None = error_in(event.data, self.secrets, otherwise=ErrorKind.STREAM_ERROR)
            else:
                error = None if event.is_one_line or is_called_one else named_error(event.raw, event.data, self.secrets)
            if error is not None:
                return b"".join(each.raw for each in all_events[:number]), error
        return block, None


async def read_body(response: Body, limit_bytes: int, head: bytes = b"") -> bytes:
    """Read a whole body, without a BOM and halves of characters. ``head``: the part that was read before.

    Raises:
        UpstreamError: the body is larger than the limit (invalid_response), or than the free memory (local_resources).

    """
    response.expect_all()
    body = BytesIO()  # gives the bytes away without a copy
    body.write(head)
    checked_bytes = _MIB
    while data := await response.read():
        body.write(data)
        if body.tell() > checked_bytes:
            check_room_for_answer(_MIB)
            checked_bytes = body.tell() + _MIB
        if body.tell() > limit_bytes:
            limit_mib = limit_bytes / _MIB
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, f"answered with more than {limit_mib:g} MiB")
    return without_halves(body.getvalue().removeprefix(_BOM))


def masked_headers(headers: Mapping[str, str], secrets: Sequence[str], *, relayed: bool = False) -> Mapping[str, str]:
    """Return ``headers`` with our key masked: a provider may echo the key in a header that is forwarded or stored.

    The literal key is masked in all headers. In those that are forwarded or stored, every encoding and part of the key
    is masked as well. The ``content-…`` headers of a ``relayed`` answer are forwarded too.
    """
    secret_texts = secrets if isinstance(secrets, tuple) else tuple(secrets)
    together = "\n".join(headers.values())  # no secret contains a line break, which could not be sent
    for secret in secret_texts:
        if secret in together:
            break
    else:
        shown = _shown(tuple(headers), relayed)
        if not shown or not holds("\n".join([headers[name] for name in shown]), secret_texts):
            return headers
    return {
        name: redact(value, secret_texts) if holds(value, secret_texts) else value for name, value in headers.items()
    }


@lru_cache(maxsize=1024)
def _shown(names: tuple[str, ...], relayed: bool) -> tuple[str, ...]:
    """Return which of the headers called ``names`` are passed on to clients, or stored."""
    return tuple(name for name in names if _SHOWN.search(name) or (relayed and name.startswith("content-")))


def _is_undecided(head: bytes) -> bool:
    """Whether ``head`` may be the beginning of an event's field name."""
    start = head.lstrip(_BOM_AND_SPACE)
    return not start.startswith(_FIELDS) and any(field.startswith(start) for field in _FIELDS)


# Answers that are not raced, over HTTP. JSON is read completely and checked. Audio, images and texts are streamed to
# the client after their beginning is read. The declared type tells these from errors: a body that is declared as JSON,
# or has no specific type and looks like an object, is read completely first.

_HTTP_ANSWER_LARGEST_ANSWER_BYTES = 128 * 1024 * 1024  # two thousand embeddings are about 80 MiB
_JSON_ONLY = frozenset({"embeddings", "moderations", "rerank", "decisions", "responses/compact"}).union(
    dialect.counting.path for dialect in DIALECTS.values() if dialect.counting is not None
)
_LARGEST_EVENT_BYTES = 32 * 1024 * 1024  # an event is held back until it is complete
_LONGEST_SILENCE_BYTES = 1024 * 1024  # of comments before the first event
_EVENTS = "text/event-stream"
_UNSAID = ("", "text/plain", "binary/octet-stream")

_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])


def comes_whole(path: str) -> bool:
    """Whether every answer of the API at ``path`` is one JSON object: such an answer may be compressed."""
    return path in _JSON_ONLY


async def read_beginning(
    path: str, response: Body, secrets: Sequence[str], fewest: int
) -> tuple[bytes, "HttpRest | None"]:
    """Return the complete answer if it is JSON, else its first bytes and the rest.

    Raises:
        UpstreamError: the answer is an error, is empty, has fewer entries than ``fewest``, or is not an answer of the
            API at ``path``.

    """
    declared = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_json = declared == "application/json" or declared.endswith("+json")
    if comes_whole(path) or declared == "text/html":
        body = await read_body(response, _HTTP_ANSWER_LARGEST_ANSWER_BYTES)
        check_entries(path, body, read_answer(outline(body), secrets), secrets, fewest)
        return masked_body(body, secrets), None
    head = await response.read()
    if is_json or (declared in _UNSAID and head.lstrip().startswith(b"{")):
        body = await read_body(response, _HTTP_ANSWER_LARGEST_ANSWER_BYTES, head)
        # Some servers declare a transcription in plain text as JSON.
        if not path.startswith("audio/") or body.lstrip().startswith(b"{") or not body.strip():
            check_entries(path, body, _judge(body, secrets, is_json=is_json), secrets, fewest)
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
    """The rest of an answer. Each read is passed on unchanged; of an event stream only complete events, mended."""

    def __init__(self, response: Body, stream: "_Stream | None") -> None:
        self.ended = False  # everything has been read
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
        """The error from an event. The bytes that were read contain the error as well."""
        return self._stream.error if self._stream is not None else None

    async def read(self) -> bytes:
        """Return the next bytes; ``b""`` at the end, or if none can be passed on yet.

        Raises:
            UpstreamError: the connection broke, or ended within an event.

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
        passed = self._stream.feed(data)
        if self.ended:
            try:
                passed += self._stream.rest()
            except UpstreamError as error:  # the next read raises the error, after the data before it
                self._broken, self.ended = error, False
        return passed

    async def look_for_end(self) -> None:
        """Set ``ended`` if the last read is already known to be the end. Does not wait."""
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
    """An event stream that is passed on. Its usage and error are noted, our keys masked, and cut characters joined."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self.usage: Usage | None = None
        self.model: str | None = None
        self.error: UpstreamError | None = None
        self.begun = False  # an event has come that is not a comment
        self._secrets = secrets
        self._masking = Masking(secrets)
        self._splitter = EventSplitter(tail_limit_bytes=_HTTP_ANSWER_LARGEST_ANSWER_BYTES, are_apart=True)
        self._halves = HalfCharacters()
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
        """Return the last event, if only the blank line is missing.

        Raises:
            UpstreamError: more than the blank line is missing (disconnected).

        """
        rest = self._splitter.rest()
        if is_cut(rest):
            raise cut_within_event()
        return self._seen(rest)

    def _seen(self, block: bytes) -> bytes:
        events_seen = list(map(self._see, events(self._halves.mend(block)))) if block else []
        return b"".join(event.raw for event in events_seen)

    def _see(self, event: Event) -> Event:
        if not event.is_one_line:
            event = self._masking.masked(event)
        if not event.data:
            return event
        self.begun = True
        event = masked_answer(event, self._secrets)
        if b'"usage"' in event.data or b'"error"' in event.data:
            return self._read(event)
        return masked(event, self._secrets, is_error=True) if complains(event.data) else event

    def _read(self, event: Event) -> Event:
        try:
            fields = _objects.decode(event.data)
        except UNREADABLE:
            return event
        if says_error(fields) or bytes(fields.get("type", b"")) == b'"error"':
            self.error = error_in(event.data, self._secrets, otherwise=ErrorKind.STREAM_ERROR)
            return masked(event, self._secrets, is_error=True)
        said_of = reported(event.data)
        self.usage, self.model = said_of.usage or self.usage, said_of.model or self.model
        return event


def events_to_come(response: Body, secrets: Sequence[str]) -> HttpRest | None:
    """Return the reader of an event stream that has not begun; None: the answer is no event stream."""
    declared = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return HttpRest(response, _Stream(secrets)) if declared == _EVENTS else None


async def _read_events(head: bytes, response: Body, secrets: Sequence[str]) -> tuple[bytes, HttpRest | None]:
    """Read until the first event, which may be an error. Some servers also declare JSON with an error so."""
    if head.lstrip(_BOM_AND_SPACE).startswith(b"{"):
        _judge(await read_body(response, _HTTP_ANSWER_LARGEST_ANSWER_BYTES, head), secrets, is_json=False)
        raise UpstreamError(ErrorKind.INVALID_RESPONSE, "answered with JSON that is declared as an event stream")
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


def _judge(body: bytes, secrets: Sequence[str], *, is_json: bool) -> Mapping[str, msgspec.Raw]:
    """Return the top level of a body, or raise the error in the body. ``is_json``: the body must be JSON."""
    if is_json:
        return read_answer(body, secrets)
    try:
        fields = _objects.decode(body)
    except UNREADABLE:
        return {}
    if says_error(fields):
        raise error_in(body, secrets, otherwise=ErrorKind.SERVER_ERROR)
    return fields
