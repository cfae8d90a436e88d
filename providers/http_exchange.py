"""One answer over HTTP: the response's body as an event stream, whatever its format is."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from providers.dialects.dialect import Translation
from providers.error_bodies import named_error
from providers.errors import ErrorKind, UpstreamError
from providers.exchange import Exchange
from providers.http.encoding import Body
from providers.http.response import Response
from providers.redaction import holds, redact
from providers.sse import EventSplitter, events
from providers.surrogates import HalfCharacters, without_halves

_MIB = 1024 * 1024
_LARGEST_ANSWER_BYTES = 128 * _MIB  # of a whole body; two thousand embeddings are about 80 MiB

_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")
_FIELD = re.compile(rb"(?:data|event|id|retry)?:")
_SHOWN = re.compile(r"id$|ratelimit")
_BOM_AND_SPACE = b"\xef\xbb\xbf \r\n\t"


class HttpExchange:
    """The ``Exchange`` of a 2xx response. A JSON body is presented as a stream.

    The declared type alone does not decide: servers send events as text/plain, and JSON errors as text/event-stream.
    ``events_of_answer`` converts a whole answer in the provider's dialect into events.
    """

    finishing = False  # what it says is passed on as it comes

    def __init__(
        self, response: Body, secrets: Sequence[str], events_of_answer: Callable[[bytes, Sequence[str]], bytes]
    ) -> None:
        self.status = response.status
        self.headers = masked(response.headers, secrets)
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
        """Return the next bytes of the event stream, as they came, ``b""`` at its end.

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
        """Call ``listener`` with data that arrives while ``read`` waits, unless it has to be decompressed first."""
        if self._is_stream and isinstance(self._response, Response):
            self._response.listener = listener

    def abort(self) -> None:
        """Drop the connection at once; without effect after the end."""
        self._response.abort()

    async def _first_events(self) -> bytes:
        head = b""
        while _is_undecided(head) and (data := await self._response.read()):
            head += data
        self._is_stream = True
        start = head.lstrip(_BOM_AND_SPACE)
        if _FIELD.match(start):
            return head
        declared = "event-stream" in self.headers.get("content-type", "")
        if declared and start[:1] not in {b"{", b"[", b"<"}:
            return head
        return self._events_of_answer(await read_body(self._response, _LARGEST_ANSWER_BYTES, head), self.secrets)


class TranslatedExchange:
    """An ``Exchange`` whose events are repaired or translated, in the order of the ``translations``."""

    def __init__(self, exchange: Exchange, translations: Sequence[Translation]) -> None:
        self.status = exchange.status
        self.headers = exchange.headers
        self.connect_ms = exchange.connect_ms
        self.secrets = exchange.secrets
        self._exchange = exchange
        self._translations = translations
        self._splitter = EventSplitter()
        self._halves = HalfCharacters()
        self._over = False

    @property
    def ended(self) -> bool:
        """Whether the provider has sent everything."""
        return self._exchange.ended

    async def read(self) -> bytes:
        """Return the next complete events, translated, ``b""`` at the end.

        Raises:
            UpstreamError: as of the inner exchange; or an event cannot be translated.

        """
        block = b""
        while not block and not self._over:
            data = await self._exchange.read()
            self._over = not data
            try:
                whole = self._splitter.feed(data) if data else self._splitter.rest()
                block = self._translated(self._halves.mend(whole))
            except UpstreamError:
                self.abort()
                raise
        return block

    @property
    def finishing(self) -> bool:
        """Whether the provider has said how the answer ends, and a translation holds that back until its end."""
        return any(translation.finishing for translation in self._translations)

    def conclude(self) -> bytes:
        """Return the end of such an answer, as if its stream had ended here; nothing may be read any more."""
        self._over = True
        self.abort()
        self._splitter.tail()  # may be half an event
        return self._translated(b"")

    def offer_to(self, listener: Callable[[bytes], bool]) -> None:
        """Ignore it: the events have to be translated."""

    def abort(self) -> None:
        """Drop the exchange at once."""
        self._exchange.abort()

    def _translated(self, block: bytes) -> bytes:
        """Apply all translations to ``block``; at the end of the stream, end each after the one before it."""
        if b"event:" in block:
            self._check_names(block)
        for translation in self._translations:
            block = translation.feed(block) if block else b""
            if self._over:
                block += translation.end()
        return block

    def _check_names(self, block: bytes) -> None:
        """Raise the error of an event that only its name calls one; translations know the others by their data."""
        for event in events(block):
            error = None if event.is_one_line else named_error(event.raw, event.data, self.secrets)
            if error is not None and b'"error"' not in event.data:
                raise error


async def read_body(response: Body, limit_bytes: int, head: bytes = b"") -> bytes:
    """Read a whole body, without halves of characters; ``head`` is what has been read of it before.

    Raises:
        UpstreamError: it is larger than the limit (invalid_response).

    """
    response.expect_all()
    body = bytearray(head)
    while data := await response.read():
        body += data
        if len(body) > limit_bytes:
            limit_mib = limit_bytes / _MIB
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, f"answered with more than {limit_mib:g} MiB")
    return without_halves(bytes(body))


def masked(headers: Mapping[str, str], secrets: Sequence[str], *, relayed: bool = False) -> Mapping[str, str]:
    """Return ``headers`` with our key masked: a provider may echo it in a header that is forwarded or stored.

    In all of them as it is, and in those that go further in every encoding and in part. Of an answer that is
    ``relayed`` the type goes further, too.
    """
    known = tuple(secrets)
    together = "\n".join(headers.values())  # no secret contains a line break, as it could not be sent
    for secret in known:
        if secret in together:
            break
    else:
        shown = _shown(tuple(headers), relayed)
        if not shown or not holds("\n".join([headers[name] for name in shown]), known):
            return headers
    return {name: redact(value, known) if holds(value, known) else value for name, value in headers.items()}


@lru_cache(maxsize=1024)
def _shown(names: tuple[str, ...], relayed: bool) -> tuple[str, ...]:
    """Return which of the headers called ``names`` are passed on to clients, or stored."""
    return tuple(name for name in names if _SHOWN.search(name) or (relayed and name.startswith("content-")))


def _is_undecided(head: bytes) -> bool:
    """Whether ``head`` may be the beginning of an event's field name."""
    start = head.lstrip(_BOM_AND_SPACE)
    return not start.startswith(_FIELDS) and any(field.startswith(start) for field in _FIELDS)
