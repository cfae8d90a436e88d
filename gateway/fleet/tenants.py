"""Keys of providers that clients bring, and the upstreams that are opened with them.

Such a key goes to the configured base URL of its provider only. It is in memory while it is used, and in no row, log or
shared store; what is learnt with it is kept by its digest, apart from what is learnt with other keys.
"""

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import sha256
from weakref import WeakSet

from gateway.settings import LONGEST_KEY
from providers import MaskedRecord, Upstream

KEY = re.compile(rf"[\x21-\x7e]{{1,{LONGEST_KEY}}}")  # printable ASCII without blanks
_DIGEST_CHARS = 32

# What tells a provider whose account it is, by the names of headers and fields: it never goes with another's key.
_OF_ACCOUNT = re.compile(
    r"auth(?!or)|(?:^|-)key(?:-|$)|key(?:-?id)?$|token$|secret|passw|credential|cookie|session|signature"
    r"|login|account|project|organi[sz]ation|subscription",
    re.IGNORECASE,
)
# Headers that are public whatever they say. The value of any other may be a key, if it is as long as one.
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

    def shown(self) -> Iterable[tuple[str, object]]:
        """Yield the providers for its ``repr``."""
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
    """Return the digest by which a key is known: it tells nothing of the key, which is long and random."""
    return sha256(f"{provider}\n{key}".encode(errors="surrogateescape")).hexdigest()[:_DIGEST_CHARS]


MOST_KEPT = 1_000  # upstreams: each has connections of its own
KEPT_S = 600.0  # without a call


class TenantUpstreams:
    """The upstreams of clients' keys, opened when they are first used, and forgotten when they are not used any more.

    A forgotten one may still have running requests. When these have ended its connections close by themselves.
    """

    def __init__(
        self, open_upstream: Callable[[str, str], Upstream], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``open_upstream`` opens the one of a provider and a key."""
        self._open = open_upstream
        self._clock = clock
        self._kept: dict[tuple[str, str], tuple[Upstream, float]] = {}  # with the last use; the last used at the end
        self._opened: WeakSet[Upstream] = WeakSet()

    def __repr__(self) -> str:
        return f"TenantUpstreams({len(self._kept)})"

    def of(self, provider: str, key: str) -> Upstream:
        """Return the upstream of a provider with a client's key."""
        now_s = self._clock()
        known = self._kept.pop((provider, key), None)
        if known is None:
            self._forget(now_s)
            upstream = self._open(provider, key)
            self._opened.add(upstream)
        else:
            upstream = known[0]
        self._kept[provider, key] = (upstream, now_s)
        return upstream

    async def aclose(self) -> None:
        """Close all connections."""
        self._kept.clear()
        for upstream in list(self._opened):
            await upstream.aclose()

    def _forget(self, now_s: float) -> None:
        while self._kept:
            oldest = next(iter(self._kept))
            if len(self._kept) < MOST_KEPT and now_s - self._kept[oldest][1] < KEPT_S:
                return
            del self._kept[oldest]
