"""The one interface to a provider: send a request, read its answer as OpenAI server-sent events, abort it.

``Upstream`` is a provider as the gateway uses it, ``Exchange`` one request under way. However a provider really
answers (a plain JSON body, another vendor's events, litellm's objects), an exchange yields the bytes of an OpenAI
chat-completions event stream, so a race compares like with like.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec


class Request(msgspec.Struct, frozen=True):
    """What to ask of a provider. ``fields`` is the client's body, top level only, values still raw JSON."""

    model: str  # the provider's own name for the model
    fields: Mapping[str, msgspec.Raw]
    headers: Mapping[str, str] = {}  # already reduced to what may be forwarded
    extra_body: Mapping[str, msgspec.Raw] = {}  # the deployment's own fields, over the client's
    upstream_stream: bool = True  # False: ask for one JSON body, and present it as a stream
    connect_timeout_s: float = 5.0


class Answer(msgspec.Struct, frozen=True):
    """A whole answer to a request that is not raced (embeddings)."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    connect_ms: float | None
    headers_ms: float


class Exchange(Protocol):
    """One chat completion under way. Opened, read and closed by one task."""

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

    def offer_to(self, listener: Callable[[bytes], bool]) -> None:
        """Offer ``listener`` what arrives while ``read`` waits; what it does not want (False), ``read`` returns.

        It spares the reader's task from being woken for each event. An exchange that cannot do it leaves it.
        """

    def abort(self) -> None:
        """Drop the exchange at once, so that the provider sees it now; harmless when it is over or aborted."""


class Upstream(Protocol):
    """A provider that can be asked. Cancelling a task inside any method aborts its request at the provider."""

    async def stream(self, request: Request) -> Exchange:
        """Ask for a chat completion; return when the response's headers say 2xx.

        Raises:
            UpstreamError: no connection, or any other status, with its kind, message and ``retry-after``.

        """

    async def send(self, path: str, request: Request) -> Answer:
        """Post ``request`` to ``path`` (``embeddings``) and read the whole JSON answer.

        Raises:
            UpstreamError: as for ``stream``, and when the body is not JSON.

        """

    async def aclose(self) -> None:
        """Close kept connections. Called once nothing is under way."""
