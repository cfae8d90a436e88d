"""Affinity: which deployments should still hold the beginning of a prompt in their provider's prompt cache.

A provider that has just read a prompt answers the next one that begins with the same bytes sooner, and asks less for
what it had read already. So a conversation is worth sending where its last turn went, while the cache is warm. Where
nothing is known of it in this replica, its first bytes choose among the deployments (``rendezvous``).
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from gateway.steering.constants import CACHE_MISSES, CACHE_WARM_S, PREFIX_BYTES, PREFIXES_KEPT
from providers.prices import Price

Held: TypeAlias = Mapping[str, int]  # by deployment: how many bytes of the prompt its cache should hold

NOTHING_HELD: Held = MappingProxyType({})
_NOBODY: frozenset[str] = frozenset()


class Prefix(msgspec.Struct, frozen=True, gc=False):
    """The beginnings of one prompt, each as a hash: of its first 4 KB, 8 KB and so on, as far as it reaches.

    ``shared`` is that of the first 4 KB once more, 8 bytes that are the same in every replica.
    """

    digests: tuple[int, ...]
    shared: bytes | None = None


def prefix_of(parts: Iterable[bytes | memoryview | msgspec.Raw], key: str | None) -> Prefix | None:
    """Return the beginnings of the prompt made of ``parts``; None for one too short for any provider to keep.

    Parts are raw JSON in the order in which providers read them: tools, system prompt, and last the messages, for these
    grow. A conversation's array of messages begins with that of the turn before, but for its closing bracket: so the
    last byte does not count. ``key`` is the client's own ``prompt_cache_key``, by which providers keep caches apart.

    The hash is Python's own for bytes: keyed again in each process, so that nobody can make prompts that collide, and
    several times as fast as those for good. 16 KB take 6 µs, and the BLAKE2 of the first 4 KB another 4.
    """
    head = _head(parts, PREFIX_BYTES[-1] + 1)
    if len(head) <= PREFIX_BYTES[0]:
        return None
    digest, start, digests = hash(key), 0, []
    for end in PREFIX_BYTES:
        if end >= len(head):
            break
        digest = hash((digest, head[start:end]))
        digests.append(digest)
        start = end
    shared = blake2b(head[: PREFIX_BYTES[0]], digest_size=8)
    if key:
        shared.update(key.encode("utf-8", "surrogatepass"))
    return Prefix(tuple(digests), shared.digest())


def _head(parts: Iterable[bytes | memoryview | msgspec.Raw], size: int) -> bytes:
    """Return the first ``size`` bytes of ``parts``, without copying what is beyond them."""
    pieces: list[memoryview] = []
    for part in parts:
        piece = memoryview(part)[:size]
        pieces.append(piece)
        size -= len(piece)
        if not size:
            break
    return b"".join(pieces)


class _Use(msgspec.Struct):
    """The last use of a beginning at one deployment."""

    at_s: float
    misses: int  # in a row: it should have been warm, and the provider said that nothing was


class Affinity:
    """What the prompt caches should hold, from the answers of this replica. Instants are of any one monotonic clock.

    It keeps the last 20,000 beginnings that were used within five minutes. Beginnings belong to a model: what is sent
    upstream for the same request may differ from model to model.
    """

    def __init__(self) -> None:
        self._uses: OrderedDict[tuple[str, int], dict[str, _Use]] = OrderedDict()  # the latest used last
        self._cachers: set[str] = set()  # deployments seen to have read a prompt from their cache

    def __len__(self) -> int:
        return len(self._uses)

    def served(self, model: str, prefix: Prefix, deployment: str, cached_tokens: int | None, now_s: float) -> None:
        """Take an answer: ``cached_tokens`` of its prompt came from the cache, None where the provider does not say.

        A hit keeps the entry alive as long as a new one. A prefix that missed twice in a row where it should have been
        warm is not expected there any more: not every provider caches without being asked to.
        """
        if cached_tokens:
            self._cachers.add(deployment)
        for digest in reversed(prefix.digests):  # the shortest last, which is the last to be dropped
            uses = self._uses.setdefault((model, digest), {})
            known = uses.get(deployment)
            misses = 0
            if known is not None and now_s - known.at_s < CACHE_WARM_S and not cached_tokens:
                misses = known.misses + (cached_tokens is not None)
            uses[deployment] = _Use(now_s, misses)
            self._uses.move_to_end((model, digest))
        self._forget(now_s)

    def held(self, model: str, prefix: Prefix, prices: Mapping[str, Price] | None, now_s: float) -> Held:
        """Return what is worth going back to: who should hold how much, where a cache saves something.

        It does where the price of cached input is known to be lower, or where cached tokens were seen.
        """
        held: dict[str, int] = {}
        for digest, size in zip(prefix.digests, PREFIX_BYTES, strict=False):
            uses = self._uses.get((model, digest))
            if uses is None:
                break  # whoever knows the longer beginning knows the shorter one
            for name, use in uses.items():
                if now_s - use.at_s < CACHE_WARM_S and use.misses < CACHE_MISSES and self.saves(name, prices):
                    held[name] = size
        return held

    def saves(self, deployment: str, prices: Mapping[str, Price] | None) -> bool:
        """Return whether the cache of ``deployment`` is known to save something."""
        if deployment in self._cachers:
            return True
        price = prices.get(deployment) if prices else None
        return price is not None and price.cached_input_usd is not None and price.cached_input_usd < price.input_usd

    def misses(self, model: str, prefix: Prefix, now_s: float) -> frozenset[str]:
        """Return the deployments where the shortest beginning should have been warm lately, and was not."""
        uses = self._uses.get((model, prefix.digests[0]))
        if uses is None:
            return _NOBODY
        return frozenset(
            [name for name, use in uses.items() if now_s - use.at_s < CACHE_WARM_S and use.misses >= CACHE_MISSES]
        )

    def keep(self, deployments: set[str]) -> None:
        """Forget all deployments but these."""
        self._cachers &= deployments

    def _forget(self, now_s: float) -> None:
        """Drop the beginnings that are cold, and the longest unused of too many."""
        while self._uses:
            oldest = next(iter(self._uses))
            used_s = max(use.at_s for use in self._uses[oldest].values())
            if len(self._uses) <= PREFIXES_KEPT and now_s - used_s < CACHE_WARM_S:
                return
            del self._uses[oldest]
