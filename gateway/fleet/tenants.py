"""Keys of providers that clients bring, and the upstreams that are opened with them.

Such a key goes only to the configured base URL of its provider. The key is in memory while it is used, and in no row,
log or shared store. Facts that were learnt with a key are kept by the key's digest, apart from facts of other keys.
"""

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from weakref import WeakSet

import msgspec

from gateway.settings import LONGEST_KEY
from providers import (
    Exchange,
    Facts,
    HttpUpstream,
    LearntFacts,
    Listing,
    MaskedRecord,
    Request,
    Upstream,
    UpstreamAnswer,
    UpstreamError,
)
from providers.dialects import Dialect, Loss

WELL_FORMED_KEY = re.compile(rf"[\x21-\x7e]{{1,{LONGEST_KEY}}}")  # printable ASCII without blanks
_DIGEST_CHARS = 32

# Headers and fields that name an account at a provider (``openai-organization``): never sent with another's key.
_OF_ACCOUNT = re.compile(
    r"auth(?!or)|(?:^|-)key(?:-|$)|key(?:-?id)?$|token$|secret|passw|credential|cookie|session|signature"
    r"|login|account|project|organi[sz]ation|subscription",
    re.IGNORECASE,
)
# Headers that are public whatever their value. The value of any other header may be a key, if it is as long as one.
_PUBLIC = re.compile(r"-(?:beta|version)$|^(?:accept.*|content-type|user-agent|referer|http-referer|x-title)$")
_SHORTEST_KEY = 16


def is_of_account(name: str, value: str = "") -> bool:
    """Whether a header or field may tell a provider the operator's account: by its name, or as long as a key."""
    if _OF_ACCOUNT.search(name.replace("_", "-")) is not None:
        return True
    return len(value) >= _SHORTEST_KEY and _PUBLIC.search(name.lower()) is None


def has_account(value: object) -> bool:
    """Whether a JSON value has a field, at any depth, that may tell a provider the operator's account."""
    if isinstance(value, dict):
        return any(is_of_account(name) or has_account(each) for name, each in value.items())
    return isinstance(value, list) and any(map(has_account, value))


class TenantKeys(MaskedRecord, frozen=True):
    """The keys that a client brings for its calls, by provider."""

    keys: Mapping[str, str]
    client: str | None = None  # the client's name

    def shown(self) -> Iterable[tuple[str, object]]:
        """Yield only the providers, for the ``repr``."""
        yield "providers", sorted(self.keys)

    @property
    def digests(self) -> Collection[str]:
        """The digest of each key."""
        return {digest_of(provider, key) for provider, key in self.keys.items()}

    @property
    def id(self) -> str:
        """The digest of all keys together."""
        return digest_of("", "\n".join(f"{provider}={self.keys[provider]}" for provider in sorted(self.keys)))


def digest_of(provider: str, key: str) -> str:
    """Return the digest by which a key is known. The key is long and random: the digest does not reveal it."""
    return sha256(f"{provider}\n{key}".encode(errors="surrogateescape")).hexdigest()[:_DIGEST_CHARS]


MOST_KEPT, MOST_KEPT_A_CLIENT = 1_000, 64  # upstreams: each has connections of its own
KEPT_S = 600.0  # without a call


class TenantUpstreams:
    """The upstreams of clients' keys, opened when first asked, and forgotten after a while without use.

    A forgotten upstream may still have running requests, and keeps no other connection.
    """

    def __init__(
        self, open_upstream: Callable[[str, str], Upstream], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``open_upstream`` opens the upstream of a provider and a key."""
        self._open = open_upstream
        self._clock = clock
        # By client, provider and key, with the time of the last use; the upstream used last stands at the end.
        self._kept: dict[tuple[str | None, str, str], tuple[Upstream, float]] = {}
        self._opened: WeakSet[Upstream] = WeakSet()

    def __repr__(self) -> str:
        return f"TenantUpstreams({len(self._kept)})"

    def of(self, client: str | None, provider: str, key: str) -> Upstream:
        """Return the upstream of a provider with a client's key."""
        place, now_s = (client, provider, key), self._clock()
        known = self._kept.pop(place, None)
        self.forget()
        if known is not None:
            upstream = known[0]
        else:
            self._make_room(client)
            upstream = self._open(provider, key)
            self._opened.add(upstream)
        self._kept[place] = (upstream, now_s)
        return upstream

    def learnt(self, client: str | None, provider: str, key: str) -> LearntFacts | None:
        """Return the facts of refusals with a client's key; None: the key was not used, or is forgotten."""
        known = self._kept.get((client, provider, key))
        return None if known is None else known[0].learnt

    def forget(self) -> None:
        """Forget upstreams that were not used for a while."""
        before_s = self._clock() - KEPT_S
        while self._kept:
            oldest = next(iter(self._kept))
            if self._kept[oldest][1] > before_s:
                return
            self._let_go(oldest)

    async def aclose(self) -> None:
        """Close all connections."""
        self._kept.clear()
        for upstream in list(self._opened):
            await upstream.aclose()

    def _make_room(self, client: str | None) -> None:
        own = [place for place in self._kept if place[0] == client]
        if len(own) >= MOST_KEPT_A_CLIENT:
            self._let_go(own[0])
        elif len(self._kept) >= MOST_KEPT:
            self._let_go(next(iter(self._kept)))

    def _let_go(self, place: tuple[str | None, str, str]) -> None:
        upstream, _ = self._kept.pop(place)
        if isinstance(upstream, HttpUpstream):
            upstream.retire()


class LazyUpstream:
    """The upstream of a client's key, opened when it is first asked: most plans ask only one of several.

    Until then ``like``, the operator's own upstream at that provider, says what the upstream can do.
    """

    needs_warming = False

    def __init__(self, like: Upstream, opened: Callable[[], Upstream]) -> None:
        self._like = like
        self._open = opened
        self._opened: Upstream | None = None
        self.accepts_all_parameters = like.accepts_all_parameters
        self.refused_fields = like.refused_fields
        self.can_fetch = like.can_fetch

    async def warm_up(self) -> None:
        """Do nothing: there is nothing to prepare."""

    @property
    def learnt(self) -> LearntFacts | None:
        """The facts that refusals have taught with this key; None: the key has not been used."""
        return None if self._opened is None else self._opened.learnt

    def learn(self, request: Request, error: UpstreamError) -> Facts:
        """Return what an error within an answer teaches of the model, with this key."""
        return self._asked().learn(request, error)

    def connect(self) -> None:
        """Do nothing: connections are kept open for the operator's keys alone."""

    async def stream(self, request: Request) -> Exchange:
        """Request an answer in events."""
        return await self._asked().stream(request)

    def losses(self, dialect: Dialect, model: str, fields: Mapping[str, msgspec.Raw]) -> Sequence[Loss]:
        """Return the parts of a request that would be lost."""
        return self._like.losses(dialect, model, fields)

    async def send(self, path: str, request: Request) -> UpstreamAnswer:
        """Post ``request`` to ``path``."""
        return await self._asked().send(path, request)

    async def fetch(self, method: str, path: str, query: list[tuple[str, str]]) -> UpstreamAnswer:
        """Send a request without a body to ``path``."""
        return await self._asked().fetch(method, path, query)

    async def list_models(self, connect_timeout_s: float = 5.0) -> Listing:
        """Return the models that the provider offers to the key."""
        return await self._asked().list_models(connect_timeout_s)

    async def aclose(self) -> None:
        """Do nothing: ``TenantUpstreams`` closes the upstreams that were opened."""

    def _asked(self) -> Upstream:
        if self._opened is None:
            self._opened = self._open()
        return self._opened
