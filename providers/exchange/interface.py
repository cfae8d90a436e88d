"""The interface to all providers: send a request, read its answer as server-sent events, abort it.

``Upstream`` is a provider, ``Exchange`` one running request. Whatever the provider sends (a JSON body, another
dialect's events, litellm's objects), an exchange yields the bytes of an event stream in the request's dialect.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from providers.bodies import LARGE_BYTES, aside
from providers.dialects import PIVOT, TELLS, Dialect, Loss, UnshownThought, bound_reasoning
from providers.exchange.multipart import Form
from providers.exchange.sendings import Sendings
from providers.models import Listing, Usage
from providers.refusals import Facts, LearntFacts, MaskedRecord, UpstreamError


class Apart(MaskedRecord, frozen=True):
    """The request without its reasoning, for those of a provider's ``keys`` that cannot read the reasoning."""

    keys: frozenset[str]  # the names of the keys
    fields: Mapping[str, msgspec.Raw]
    left_out: tuple[str, ...]  # the places where the reasoning was

    def shown(self) -> Iterable[tuple[str, object]]:
        """Return the fields for the repr; of the body only the names, as the values are private."""
        yield "keys", sorted(self.keys)
        yield "fields", list(self.fields)
        yield "left_out", self.left_out


class Request(MaskedRecord, frozen=True):
    """A request in a dialect that the provider speaks. ``fields``: the body's top level, values still raw JSON."""

    model: str  # the provider's own name for the model
    fields: Mapping[str, msgspec.Raw]
    dialect: Dialect = PIVOT  # of ``fields`` and of the answer
    drop_params: bool = False  # leave out parameters that the model does not support; the client is told
    headers: Mapping[str, str] = {}  # only headers that may be forwarded
    own_headers: tuple[tuple[str, str], ...] = ()  # the deployment's own, which replace all others; names in lower case
    extra_body: Mapping[str, msgspec.Raw] = {}  # the deployment's own fields, which replace the client's
    added: frozenset[str] = frozenset()  # the ``fields`` that the gateway added, not the client
    keeps: bool = False  # the vendor keeps prompts, unless a request says ``store: false``
    upstream_stream: bool = True  # False: request one JSON body, and present it as a stream
    takes_whole: bool = False  # the client streams no answer: a refused stream may be replaced by a whole answer
    connect_timeout_s: float = 5.0
    first_key: str | None = None  # the name of the provider's key to ask first, while that key is usable
    conversation: bytes | None = None  # a digest: the key that answered last has the prompt cache
    is_ceiling: bool = False  # the client had to set a limit of the answer, so a lower one is no surprise
    unchosen: frozenset[str] = frozenset()  # by the API of the client: see ``RequestFormat``
    once: bool = False  # the request has side effects at the provider: never sent again
    client: str | None = None  # the sender: what one client alone meets takes no key from others; None: unnamed
    key_name: str | None = None  # of several keys only this one may be used; None: any
    apart: Apart | None = None  # what is sent instead with the keys of other accounts
    taught: Facts = ()  # what errors within the request's answers have taught: see ``Upstream.learn``
    may_have_refused: bool = True  # ``fields`` may have what the vendor refuses in messages or tools; False: surely not
    form: Form | None = None  # instead of ``fields``, for APIs with files
    sendings: Sendings = msgspec.field(default_factory=Sendings)  # the upstream counts each request

    def shown(self) -> Iterable[tuple[str, object]]:
        """Return the fields for the repr; of headers and body only the names, as the values are private."""
        yield "model", self.model
        yield "dialect", self.dialect.name
        yield "fields", list(self.fields)
        yield "headers", [*self.headers, *(name for name, _ in self.own_headers)]
        yield "extra_body", list(self.extra_body)
        yield "form", self.form


class Rest(Protocol):
    """The rest of an answer that is not raced (audio, events, text). Read by one task."""

    @property
    def ended(self) -> bool:
        """Whether the whole answer has been read."""

    @property
    def usage(self) -> Usage | None:
        """The tokens that the answer has reported so far."""

    @property
    def model(self) -> str | None:
        """The model that answers, if the answer has named one."""

    @property
    def error(self) -> UpstreamError | None:
        """The error that the answer has reported. The bytes that were read contain the error as well."""

    async def read(self) -> bytes:
        """Return the next bytes unchanged, ``b""`` at the end.

        Raises:
            UpstreamError: the connection broke.

        """

    def abort(self) -> None:
        """Drop the exchange at once, so that the provider notices. Does nothing after the end."""


class UpstreamAnswer(MaskedRecord, frozen=True):
    """An answer to a request that is not raced (embeddings, moderations, images, speech)."""

    status: int
    headers: Mapping[str, str]
    body: bytes  # the whole body, or its beginning
    connect_ms: float | None
    headers_ms: float
    rest: Rest | None = None  # must be read to the end or aborted; None: ``body`` is everything
    secrets: Sequence[str] = ()  # as of ``Exchange``

    def shown(self) -> Iterable[tuple[str, object]]:
        """Return the fields for the repr, without values of headers and body, which are private."""
        yield "status", self.status
        yield "headers", list(self.headers)
        yield "body", f"{len(self.body)} bytes"
        yield "rest", self.rest is not None


class Exchange(Protocol):
    """One running request and its answer. Opened, read and closed by one task."""

    status: int
    headers: Mapping[str, str]  # the provider's response headers, lower-case names
    connect_ms: float | None  # time to connect, DNS and TLS included; None when a kept connection was reused
    secrets: Sequence[str]  # must not appear in messages: the key, for example

    @property
    def ended(self) -> bool:
        """Whether the provider has sent everything: nothing is left to wait for or to abort."""

    async def read(self) -> bytes:
        """Return the next bytes of the event stream unchanged, ``b""`` at the end.

        Raises:
            UpstreamError: the connection broke, or the body is not an event stream.

        """

    @property
    def finishing(self) -> bool:
        """Whether the provider has sent the answer's end, and ``read`` has not returned the end: see ``conclude``."""

    @property
    def usage_so_far(self) -> Usage | None:
        """The usage that the provider has reported, which a translation keeps back until the answer's end."""

    def conclude(self) -> bytes:
        """Return the last events of a ``finishing`` answer whose stream does not end; drop the rest."""

    def offer_to(self, listener: Callable[[bytes], bool]) -> None:
        """Call ``listener`` with data that arrive while ``read`` waits; data that it refuses (False) go to ``read``.

        So the reader's task need not be woken for each event. An exchange that cannot do this ignores the call.
        """

    def abort(self) -> None:
        """Drop the exchange at once, so that the provider notices. Does nothing after the end or an abort.

        A waiting ``read`` need not return: aborting what another task reads includes cancelling that task.
        """


class Upstream(Protocol):
    """A provider. Cancelling a task inside any method aborts its request at the provider."""

    # In the provider's own dialects every parameter is taken: ``losses`` is empty, but for ``refused_fields`` and for
    # what the vendor's row drops, as ``Deployment.dropped`` tells.
    accepts_all_parameters: bool
    # In chat: fields of other vendors' answers that the provider refuses in a history (``reasoning_content``).
    refused_fields: frozenset[str]
    # ``fetch`` works: for stored responses, and any path below the base URL.
    can_fetch: bool
    # Whether the first request would wait for a library, or for credentials: see ``warm_up``.
    needs_warming: bool

    @property
    def learnt(self) -> LearntFacts | None:
        """What refusals have taught about the provider's models; None: nothing yet, or such things are not kept."""

    def learn(self, request: Request, error: UpstreamError) -> Facts:
        """Return what an ``error`` in a stream, before anything of the answer to ``request``, teaches.

        The request is to be sent again with these facts. No facts: the error teaches nothing, or there is no other
        form.
        """

    def connect(self) -> None:
        """Have a connection open for the next request, if the gateway makes the provider's connections."""

    async def warm_up(self) -> None:
        """Load the library or credentials for the first request: in the background, before the provider is raced."""

    async def stream(self, request: Request) -> Exchange:
        """Request an answer in events; return when the response's headers have arrived with a status of 2xx.

        Raises:
            UpstreamError: no connection, or any other status, with its kind, message and ``retry-after``.

        """

    def losses(self, dialect: Dialect, model: str, fields: Mapping[str, msgspec.Raw]) -> Sequence[Loss]:
        """Return the parts of a request in ``dialect`` that this provider would ignore or refuse. Sends nothing.

        Raises:
            Malformed: the request has to be translated, and is not valid in ``dialect``.

        """

    async def send(self, path: str, request: Request) -> UpstreamAnswer:
        """Post ``request`` to ``path`` (``embeddings``, ``audio/speech``); return the answer once it has begun.

        A JSON answer is read completely before.

        Raises:
            UpstreamError: as of ``stream``; or the answer is an error, or not an answer of the API at ``path``.

        """

    async def fetch(self, method: str, path: str, query: list[tuple[str, str]]) -> UpstreamAnswer:
        """Send a request without a body to ``path``, and return the whole JSON answer.

        Raises:
            UpstreamError: as of ``send``; always not_found if the provider has nothing to fetch.

        """

    async def list_models(self, connect_timeout_s: float = 5.0) -> Listing:
        """Return the models that the provider offers for the key.

        Raises:
            UpstreamError: as of ``send``.

        """

    async def aclose(self) -> None:
        """Close kept connections. Called when no request is running."""


class WrappedExchange:
    """An ``Exchange`` that passes everything on to the one within, but for what a subclass changes."""

    def __init__(self, exchange: Exchange) -> None:
        self.status = exchange.status
        self.headers: Mapping[str, str] = exchange.headers
        self.connect_ms = exchange.connect_ms
        self.secrets: Sequence[str] = exchange.secrets
        self._exchange = exchange

    @property
    def ended(self) -> bool:
        """Whether the provider has sent everything."""
        return self._exchange.ended

    async def read(self) -> bytes:
        """Return the next bytes of the event stream, ``b""`` at the end.

        Raises:
            UpstreamError: as of the inner exchange.

        """
        return await self._exchange.read()

    @property
    def finishing(self) -> bool:
        """Whether the provider has sent the answer's end, which is held back."""
        return self._exchange.finishing

    @property
    def usage_so_far(self) -> Usage | None:
        """The usage that is kept back until the end."""
        return self._exchange.usage_so_far

    def conclude(self) -> bytes:
        """Return the end that was held back."""
        return self._exchange.conclude()

    def offer_to(self, listener: Callable[[bytes], bool]) -> None:
        """Call ``listener`` with data that arrives while ``read`` waits."""
        self._exchange.offer_to(listener)

    def abort(self) -> None:
        """Drop the exchange at once; without effect after the end or an abort."""
        self._exchange.abort()


_LONGEST_LINE_BYTES = 1024 * 1024


class BoundReasoningExchange(WrappedExchange):
    """An ``Exchange`` that calls ``found`` with the hash of each reasoning that only its maker can read.

    Also calls ``told`` with what events say about such reasoning in the request (``input_transformations``, found by
    ``read_told``). The call comes before these events are read, so the facts are known when the answer begins.
    """

    def __init__(
        self,
        exchange: Exchange,
        found: Callable[[bytes], object],
        read_told: Callable[[bytes], Sequence[UnshownThought] | None] = lambda _: None,
        told: Callable[[Sequence[UnshownThought]], object] | None = None,
    ) -> None:
        super().__init__(exchange)
        self._found, self._read_told, self._told = found, read_told, told
        self._line = b""  # the beginning of an incomplete line

    async def read(self) -> bytes:
        """Return the next bytes of the event stream, ``b""`` at the end.

        Raises:
            UpstreamError: as of the inner exchange.

        """
        data = await self._exchange.read()
        lines = self._lines(data or b"\n")
        # Long lines in the thread, so that other calls go on.
        hashes = bound_reasoning(lines) if len(lines) <= LARGE_BYTES else await aside(bound_reasoning, lines)
        for each in hashes:
            self._found(each)
        return data

    def offer_to(self, listener: Callable[[bytes], bool]) -> None:
        """Call ``listener`` with data that arrives while ``read`` waits."""

        def listening(data: bytes) -> bool:
            is_taken = listener(data)
            if is_taken:
                for each in bound_reasoning(self._lines(data)):
                    self._found(each)
            return is_taken

        self._exchange.offer_to(listening)

    def _lines(self, data: bytes) -> bytes:
        """Return the lines that ``data`` complete."""
        data = self._line + data
        end = data.rfind(b"\n") + 1
        self._line = data[end:] if len(data) - end < _LONGEST_LINE_BYTES else b""
        lines = data[:end]
        if self._told is not None and TELLS in lines and (unshown := self._read_told(lines)) is not None:
            self._told(unshown)
        return lines


# Where a sound begins after its container's header, so that a header alone wins no race.

_MOST_HEADER_BYTES = 64 * 1024  # pictures and tags may be longer: then what follows counts as sound
_EVENTS = "text/event-stream"
_TOLD = (
    b".delta",
    b".done",
    b".segment",
    b'"delta"',
)  # the types of events with a part of the sound or text, or with the whole
_PAGE_BYTES, _GRANULE = 27, slice(6, 14)  # of Ogg
_RIFF_BYTES = 12
_ID3_BYTES, _ID3_VERSIONS = 10, (2, 3, 4)
_LAST_OF_FLAC = 0x80


def sound_has_begun(content_type: str, head: bytes) -> bool:
    """Whether ``head``, the beginning of an answer, has some of the sound, or of the text, beyond a header."""
    if len(head) > _MOST_HEADER_BYTES:
        return True
    if content_type.partition(";")[0].strip().lower() == _EVENTS:
        return any(event_type in head for event_type in _TOLD)
    header = next((check for magic, check in _HEADERS.items() if head.startswith(magic)), None)
    if header is not None:
        return header(head)
    # The first bytes of a known container may be cut.
    return bool(head) and not any(magic.startswith(head) for magic in _HEADERS)


def _wave(head: bytes) -> bool:
    if len(head) >= _RIFF_BYTES and head[8:_RIFF_BYTES] != b"WAVE":  # something else
        return True
    at = head.find(b"data", _RIFF_BYTES)
    return at >= 0 and len(head) > at + 8


def _ogg(head: bytes) -> bool:
    """Whether one of the pages is not of headers: those have the granule 0."""
    at = 0
    while len(head) >= at + _PAGE_BYTES:
        lengths = head[at + _PAGE_BYTES : at + _PAGE_BYTES + head[at + _PAGE_BYTES - 1]]
        begins = at + _PAGE_BYTES + len(lengths)
        if head[at:][_GRANULE] != bytes(8):
            return len(head) > begins
        at = begins + sum(lengths)
    return False


def _id3(head: bytes) -> bool:
    if len(head) < _ID3_BYTES:
        return False
    if head[3] not in _ID3_VERSIONS:  # no tag at all
        return True
    size = 0
    for byte in head[6:_ID3_BYTES]:
        size = size << 7 | byte & 0x7F
    return len(head) > _ID3_BYTES + size


def _flac(head: bytes) -> bool:
    at = 4
    while len(head) >= at + 4:
        is_last, size = head[at] & _LAST_OF_FLAC, int.from_bytes(head[at + 1 : at + 4])
        at += 4 + size
        if is_last:
            return len(head) > at
    return False


def _after(mark: bytes) -> Callable[[bytes], bool]:
    return lambda head: (at := head.find(mark)) >= 0 and len(head) > at + len(mark) + 8


# By the first bytes of a container: whether more than the header has come. Sounds without a header begin at once.
_HEADERS: Mapping[bytes, Callable[[bytes], bool]] = {
    b"RIFF": _wave,
    b"OggS": _ogg,
    b"ID3": _id3,
    b"fLaC": _flac,
    b"\x1aE\xdf\xa3": _after(b"\x1fC\xb6u"),  # Matroska: its first cluster
    b"\x00\x00\x00\x18ftyp": _after(b"mdat"),
    b"\x00\x00\x00\x1cftyp": _after(b"mdat"),
    b"\x00\x00\x00\x20ftyp": _after(b"mdat"),
}
