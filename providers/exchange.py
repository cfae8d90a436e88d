"""The one interface to a provider: send a request, read its answer as server-sent events, abort it.

``Upstream`` is a provider as the gateway uses it, ``Exchange`` one request under way. However a provider really
answers (a plain JSON body, another dialect's events, litellm's objects), an exchange yields the bytes of an event
stream in the dialect it was asked in.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from providers.dialects.dialect import Dialect
from providers.dialects.index import PIVOT
from providers.dialects.wording import Loss
from providers.errors import UpstreamError
from providers.listings import Listing
from providers.masked_record import MaskedRecord
from providers.multipart import Form
from providers.sendings import Sendings
from providers.usage import Usage


class Request(MaskedRecord, frozen=True):
    """What to ask of a provider, in a dialect it speaks. ``fields`` is a body's top level, values still raw JSON."""

    model: str  # the provider's own name for the model
    fields: Mapping[str, msgspec.Raw]
    dialect: Dialect = PIVOT  # that of ``fields``, and of the answer
    drop_params: bool = False  # leave out what the model does not know; the client is told
    headers: Mapping[str, str] = {}  # already reduced to what may be forwarded
    own_headers: tuple[tuple[str, str], ...] = ()  # the deployment's own, names in lower case, over all others
    extra_body: Mapping[str, msgspec.Raw] = {}  # the deployment's own fields, over the client's
    upstream_stream: bool = True  # False: ask for one JSON body, and present it as a stream
    connect_timeout_s: float = 5.0
    once: bool = False  # it leaves something behind at the provider: never to be sent again
    form: Form | None = None  # instead of ``fields``, where an API takes files
    sendings: Sendings = msgspec.field(default_factory=Sendings)  # counted by the upstream as it sends

    def shown(self) -> Iterable[tuple[str, object]]:
        """Return what it asks for, and the names alone of what it sends: the values are the prompt, or secrets."""
        yield "model", self.model
        yield "dialect", self.dialect.name
        yield "fields", list(self.fields)
        yield "headers", [*self.headers, *(name for name, _ in self.own_headers)]
        yield "extra_body", list(self.extra_body)
        yield "form", self.form


class Rest(Protocol):
    """What is still to come of an answer that is not raced: sound, events, a text. Read by one task."""

    @property
    def ended(self) -> bool:
        """Whether all of it was read."""

    @property
    def usage(self) -> Usage | None:
        """The tokens it has reported so far."""

    @property
    def model(self) -> str | None:
        """What it says has answered, as far as it has."""

    @property
    def error(self) -> UpstreamError | None:
        """The error it has told of; that is among what was read."""

    async def read(self) -> bytes:
        """Return the next bytes as they came, ``b""`` at the end.

        Raises:
            UpstreamError: the connection broke.

        """

    def abort(self) -> None:
        """Drop the exchange at once, so that the provider sees it now; harmless when it is over."""


class Answer(MaskedRecord, frozen=True):
    """An answer to a request that is not raced (embeddings, moderations, pictures, speech)."""

    status: int
    headers: Mapping[str, str]
    body: bytes  # all of it, or how it begins
    connect_ms: float | None
    headers_ms: float
    rest: Rest | None = None  # to be read to its end or aborted; None: ``body`` is all
    secrets: Sequence[str] = ()  # as of ``Exchange``

    def shown(self) -> Iterable[tuple[str, object]]:
        """Return its status and how much there is; the key may be in the headers, and the rest is the client's."""
        yield "status", self.status
        yield "headers", list(self.headers)
        yield "body", f"{len(self.body)} bytes"
        yield "rest", self.rest is not None


class Exchange(Protocol):
    """One answer under way. Opened, read and closed by one task."""

    status: int
    headers: Mapping[str, str]  # the provider's response headers, lower-case names
    connect_ms: float | None  # time to connect, DNS and TLS included; None when a kept connection was reused
    secrets: Sequence[str]  # what must not show up in a message: the key, and the like

    @property
    def ended(self) -> bool:
        """Whether the provider has sent all of it, so that there is nothing to wait for and nothing to abort."""

    async def read(self) -> bytes:
        """Return the next bytes of the event stream, as they came, ``b""`` at its end.

        Raises:
            UpstreamError: the connection broke, or what arrives is no event stream.

        """

    @property
    def finishing(self) -> bool:
        """Whether the provider has said how the answer ends, and that is not among what was read: see ``conclude``."""

    def conclude(self) -> bytes:
        """Return the events that end an answer which is ``finishing``, whose own end does not come; drop the rest."""

    def offer_to(self, listener: Callable[[bytes], bool]) -> None:
        """Offer ``listener`` what arrives while ``read`` waits; what it does not want (False), ``read`` returns.

        It spares the reader's task from being woken for each event. An exchange that cannot do it leaves it.
        """

    def abort(self) -> None:
        """Drop the exchange at once, so that the provider sees it now; harmless when it is over or aborted."""


class Upstream(Protocol):
    """A provider that can be asked. Cancelling a task inside any method aborts its request at the provider."""

    # No parameter of a request in a dialect it speaks is lost: ``losses`` is always empty.
    accepts_all_parameters: bool
    # ``fetch`` reaches the provider: responses that it keeps, and any path below its base URL.
    can_fetch: bool
    # Its first request would wait seconds for a library to be imported.
    needs_warming: bool

    async def stream(self, request: Request) -> Exchange:
        """Ask for an answer in events; return when the response's headers say 2xx.

        Raises:
            UpstreamError: no connection, or any other status, with its kind, message and ``retry-after``.

        """

    def losses(self, dialect: Dialect, model: str, fields: Mapping[str, msgspec.Raw]) -> Sequence[Loss]:
        """Return what of a request, rendered in a ``dialect`` it speaks, this provider would not hear. Asks nobody."""

    async def send(self, path: str, request: Request) -> Answer:
        """Post ``request`` to ``path`` (``embeddings``, ``audio/speech``); return its answer once it has begun well.

        What is JSON has been read whole then.

        Raises:
            UpstreamError: as for ``stream``, and when the answer is an error, or none that ``path`` could have.

        """

    async def fetch(self, method: str, path: str, query: list[tuple[str, str]]) -> Answer:
        """Send a request without a body to ``path``, and return the whole JSON answer.

        Raises:
            UpstreamError: as for ``send``; always not_found where it cannot fetch.

        """

    async def list_models(self, connect_timeout_s: float = 5.0) -> Listing:
        """Return the models the provider offers to its key.

        Raises:
            UpstreamError: as for ``send``.

        """

    async def aclose(self) -> None:
        """Close kept connections. Called once nothing is under way."""
